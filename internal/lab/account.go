package lab

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// Account is a service account with rights, such as an installation gives a role.
type Account struct {
	// Namespace and Name are the account's. What gives it its rights has the same name.
	Namespace, Name string
	// Cluster are its rights everywhere, In those in namespaces, by their names.
	Cluster []rbacv1.PolicyRule
	In      map[string][]rbacv1.PolicyRule
}

// AddAccount makes an account, of which there is nothing yet, and returns the path of a kubeconfig in the lab's folder by which a process is that account for a day.
func (l *Lab) AddAccount(ctx context.Context, a Account) (kubeconfig string, err error) {
	wrong := func(what string, err error) error {
		return fmt.Errorf("add account %s/%s: %s: %w", a.Namespace, a.Name, what, err)
	}
	accounts, rights := l.client.CoreV1().ServiceAccounts(a.Namespace), l.client.RbacV1()
	meta := metav1.ObjectMeta{Name: a.Name}
	who := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.Namespace, Name: a.Name}}
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		return "", wrong("the account", err)
	}
	_, err = rights.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: a.Cluster}, metav1.CreateOptions{})
	if err == nil {
		to := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: a.Name}
		_, err = rights.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: who, RoleRef: to}, metav1.CreateOptions{})
	}
	if err != nil {
		return "", wrong("its rights everywhere", err)
	}
	for _, namespace := range slices.Sorted(maps.Keys(a.In)) {
		if len(a.In[namespace]) == 0 {
			continue
		}
		_, err := rights.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: a.In[namespace]}, metav1.CreateOptions{})
		if err == nil {
			to := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: a.Name}
			_, err = rights.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: who, RoleRef: to}, metav1.CreateOptions{})
		}
		if err != nil {
			return "", wrong("its rights in namespace "+namespace, err)
		}
	}
	token, err := accounts.CreateToken(ctx, a.Name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 3600)}}, metav1.CreateOptions{})
	if err != nil {
		return "", wrong("its token", err)
	}
	file := clientcmdapi.NewConfig()
	file.Clusters["lab"] = &clientcmdapi.Cluster{Server: l.config.Host, CertificateAuthority: l.config.CAFile, CertificateAuthorityData: l.config.CAData}
	file.AuthInfos[a.Name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	file.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: a.Name}
	file.CurrentContext = "lab"
	path := filepath.Join(l.dir, a.Name+".kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		return "", wrong("its kubeconfig", err)
	}
	return path, nil
}

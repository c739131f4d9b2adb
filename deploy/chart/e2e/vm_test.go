package e2e

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/muster-scheduler/muster/internal/install"
)

// TestVMIsOff: nothing of machines is there unless it is asked for, and without the pod nothing but their RuntimeClass.
func TestVMIsOff(t *testing.T) {
	t.Parallel()
	for values, want := range map[string][]string{
		"":                                      nil,
		"vm: {enabled: true, daemonSet: false}": {"RuntimeClass /muster-vm", "ValidatingAdmissionPolicy /muster-vm-suspend", "ValidatingAdmissionPolicyBinding /muster-vm-suspend"},
		"vm: {enabled: true, daemonSet: false, virtletCRDs: true}": {
			"CustomResourceDefinition /virtletconfigmappings.virtlet.k8s", "CustomResourceDefinition /virtletimagemappings.virtlet.k8s",
			"RuntimeClass /muster-vm", "ValidatingAdmissionPolicy /muster-vm-suspend", "ValidatingAdmissionPolicyBinding /muster-vm-suspend",
		},
		"vm: {virtletCRDs: true}": nil,
		"vm: {enabled: true, domainType: qemu}": {
			"DaemonSet muster-vm/muster-vm", "Namespace /muster-vm", "RuntimeClass /muster-vm", "ServiceAccount muster-vm/muster-vm", "ValidatingAdmissionPolicy /muster-vm-suspend",
			"ValidatingAdmissionPolicyBinding /muster-vm-suspend",
		},
	} {
		rendered, err := render(t, values, false)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for key := range objects(t, map[string]string{"vm.yaml": rendered["vm.yaml"], "vm-virtlet.yaml": rendered["vm-virtlet.yaml"]}) {
			got = append(got, key)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", values, got, want)
		}
		if notes := rendered["NOTES.txt"]; strings.Contains(notes, "muster.dev/vm=true") != (want != nil) {
			t.Errorf("%q: %s", values, notes)
		}
	}
}

// TestVMPrivileges: what the pod on nodes may do is this and no more, each with its reason beside it, and the namespace that lets it in is nobody else's.
func TestVMPrivileges(t *testing.T) {
	t.Parallel()
	rendered, err := render(t, "vm: {enabled: true, domainType: kvm}", false)
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, rendered)
	pod := all["DaemonSet muster-vm/muster-vm"].(*appsv1.DaemonSet).Spec.Template.Spec
	c := pod.Containers[0]
	s := c.SecurityContext
	switch {
	case !pod.HostPID || !pod.HostNetwork || !*s.Privileged || *s.RunAsUser != 0:
		t.Errorf("it lacks what it needs: %+v", pod)
	case pod.HostIPC || pod.ShareProcessNamespace != nil || pod.HostUsers != nil || len(pod.Volumes) > 0 || len(pod.Containers) > 1 || len(pod.InitContainers) > 0:
		t.Errorf("it has more than it needs: %+v", pod)
	case *pod.AutomountServiceAccountToken || *all["ServiceAccount muster-vm/muster-vm"].(*corev1.ServiceAccount).AutomountServiceAccountToken:
		t.Error("it has a token")
	case !*s.ReadOnlyRootFilesystem:
		t.Error("it can write its image")
	}
	lines := strings.Split(rendered["vm.yaml"], "\n")
	for _, privilege := range []string{"hostPID: true", "hostNetwork: true", "privileged: true", "runAsUser: 0", "pod-security.kubernetes.io/enforce: privileged", "priorityClassName: system-node-critical"} {
		i := slices.IndexFunc(lines, func(l string) bool { return strings.TrimSpace(l) == privilege })
		if i < 1 || !strings.HasPrefix(strings.TrimSpace(lines[i-1]), "# ") {
			t.Errorf("%s: no reason stands above it", privilege)
		}
	}
	for key, o := range all {
		if n, ok := o.(*corev1.Namespace); ok && (n.Labels["pod-security.kubernetes.io/enforce"] == "privileged") != (key == "Namespace /muster-vm") {
			t.Errorf("%s: %v", key, n.Labels)
		}
		switch o := o.(type) { // the control plane gets nothing of it
		case *rbacv1.ClusterRoleBinding:
			if slices.ContainsFunc(o.Subjects, func(s rbacv1.Subject) bool { return s.Namespace == "muster-vm" }) {
				t.Errorf("%s is for the pod on nodes", key)
			}
		case *rbacv1.RoleBinding:
			if o.Namespace == "muster-vm" {
				t.Errorf("%s", key)
			}
		}
	}
	if may := install.Rules(install.Operator); strings.Contains(strings.ToLower(rendered["rbac.yaml"]), "runtimeclass") || len(may.Cluster) == 0 {
		t.Error("the operator may write RuntimeClasses")
	}
}

// TestVMPlaces: machines are placed where the pod is, with what QEMU takes counted; and each value goes where it belongs.
func TestVMPlaces(t *testing.T) {
	t.Parallel()
	rendered, err := render(t, `{global: {registry: r.example/m, tag: v1, daemonsetsTolerations: [{key: a, operator: Exists}]}, openshift: true,
		vm: {enabled: true, domainType: qemu, nodeSelector: {pool: vm, muster.dev/vm: null}, tolerations: [{key: vm, operator: Exists}], overhead: {memory: 1Gi, cpu: null}, image: {digest: "sha256:`+strings.Repeat("a", 64)+`"}}}`, false)
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, rendered)
	class, set := all["RuntimeClass /muster-vm"].(*nodev1.RuntimeClass), all["DaemonSet muster-vm/muster-vm"].(*appsv1.DaemonSet)
	pod := set.Spec.Template.Spec
	if class.Handler != "muster-vm" || class.Overhead.PodFixed.Memory().String() != "1Gi" || len(class.Overhead.PodFixed) != 1 {
		t.Errorf("%+v", class)
	}
	for _, nodes := range []map[string]string{class.Scheduling.NodeSelector, pod.NodeSelector} {
		if len(nodes) != 1 || nodes["pool"] != "vm" {
			t.Errorf("nodes %v", nodes)
		}
	}
	if len(class.Scheduling.Tolerations) != 1 || len(pod.Tolerations) != 2 {
		t.Errorf("tolerated: %v, %v", class.Scheduling.Tolerations, pod.Tolerations)
	}
	if image := pod.Containers[0].Image; image != "r.example/m/muster-vm:v1@sha256:"+strings.Repeat("a", 64) {
		t.Error(image)
	}
	if b := all["RoleBinding muster-vm/muster-vm-scc"].(*rbacv1.RoleBinding); b.RoleRef.Name != "system:openshift:scc:privileged" || b.Subjects[0].Name != pod.ServiceAccountName {
		t.Errorf("%+v", b)
	}
}

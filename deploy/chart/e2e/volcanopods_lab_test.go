//go:build lab

package e2e

import (
	"testing"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	review "github.com/muster-scheduler/muster/internal/controllers/admission"
)

// podsOfVolcano: a real API server takes the chart's policies that change Volcano's pods, and lets the account of admission write the templates that stand for resource groups, where they are, and neither
// templates elsewhere nor policies.
func podsOfVolcano(t *testing.T, p *place) {
	t.Helper()
	rendered, err := render(t, "volcano: {enabled: true, queueGates: true}", false, "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")
	if err != nil {
		t.Fatal(err)
	}
	const role, groups = "muster-admission-volcano", "volcano-system"
	all := objects(t, map[string]string{"volcano.yaml": rendered["volcano.yaml"]})
	made := []client.Object{all["Namespace /"+groups].(*corev1.Namespace), all["Role "+groups+"/"+role].(*rbacv1.Role), all["RoleBinding "+groups+"/"+role].(*rbacv1.RoleBinding)}
	for _, name := range []string{review.PolicyVolcanoGate, review.PolicyVolcanoResourceGroups} {
		made = append(made, all["MutatingAdmissionPolicy /"+name].(*admissionregv1.MutatingAdmissionPolicy), all["MutatingAdmissionPolicyBinding /"+name].(*admissionregv1.MutatingAdmissionPolicyBinding))
	}
	for _, o := range made {
		if err := p.client.Create(t.Context(), o); err != nil {
			t.Fatalf("%T %s: %v", o, o.GetName(), err)
		}
	}
	config := rest.CopyConfig(p.lab.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + home + ":" + review.AccountAdmission}
	admission, err := client.New(config, client.Options{Scheme: p.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	template := func(namespace string) *corev1.PodTemplate {
		return &corev1.PodTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "g"},
			Template:   corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "of", Image: "none"}}}},
		}
	}
	policy := all["MutatingAdmissionPolicy /"+review.PolicyVolcanoGate].(*admissionregv1.MutatingAdmissionPolicy).DeepCopy()
	policy.ObjectMeta = metav1.ObjectMeta{Name: "anything"}
	p.step("the rights of admission hold", nil, func() string { // they do some time after they are given
		if err := admission.Create(t.Context(), template(groups), client.DryRunAll); err != nil {
			return err.Error()
		}
		return ""
	})
	for what, o := range map[string]client.Object{"a template elsewhere": template("default"), "a policy": policy} { // order: nothing is kept
		if err := admission.Create(t.Context(), o, client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("admission makes %s: %v", what, err)
		}
	}
}

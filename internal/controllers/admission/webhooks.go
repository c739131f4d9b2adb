package admission

import (
	"fmt"
	"strings"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kaiv1alpha1 "github.com/muster-scheduler/muster/api/kai/v1alpha1"
)

// Webhooks returns the two configurations by which the API server asks the role, complete with every default that the API
// server would fill in. They have it ask only about pods that are ours: of our schedulers, and neither of this role's own
// namespace nor of kube-system. bundle is what it must trust (PEM).
//
// A pod of ours is refused while the role is dead: unjudged and without its devices it would do harm. A Topology is not, its
// schema has the same rules.
func (o *Options) Webhooks(bundle []byte) (*admissionregv1.MutatingWebhookConfiguration, *admissionregv1.ValidatingWebhookConfiguration) {
	const (
		create = admissionregv1.Create
		update = admissionregv1.Update
	)
	name := service + "." + o.Namespace + ".svc"
	matches := []admissionregv1.MatchCondition{{Name: "scheduler-name-match", Expression: o.schedulerNameMatch()}}
	namespaces := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", o.Namespace},
	}}}
	m := &admissionregv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: o.Mutating},
		Webhooks: []admissionregv1.MutatingWebhook{{
			Name: name, ClientConfig: o.clientConfig(MutatePodPath, bundle), Rules: rules("", "v1", []string{"pods"}, create),
			FailurePolicy: ptr.To(admissionregv1.Fail), MatchPolicy: ptr.To(admissionregv1.Equivalent), SideEffects: ptr.To(admissionregv1.SideEffectClassNone),
			TimeoutSeconds: ptr.To[int32](10), AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: ptr.To(admissionregv1.IfNeededReinvocationPolicy),
			NamespaceSelector: namespaces, ObjectSelector: &metav1.LabelSelector{}, MatchConditions: matches,
		}},
	}
	v := &admissionregv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: o.Validating},
		Webhooks: []admissionregv1.ValidatingWebhook{
			{
				Name: name, ClientConfig: o.clientConfig(ValidatePodPath, bundle),
				Rules:         append(rules("", "v1", []string{"pods"}, create, update), rules("", "v1", []string{"pods/ephemeralcontainers"}, update)...),
				FailurePolicy: ptr.To(admissionregv1.Fail), MatchPolicy: ptr.To(admissionregv1.Equivalent), SideEffects: ptr.To(admissionregv1.SideEffectClassNone),
				TimeoutSeconds: ptr.To[int32](10), AdmissionReviewVersions: []string{"v1"},
				NamespaceSelector: namespaces.DeepCopy(), ObjectSelector: &metav1.LabelSelector{}, MatchConditions: matches,
			},
			{
				Name: "topology." + name, ClientConfig: o.clientConfig(ValidateTopologyPath, bundle),
				Rules:         rules(kaiv1alpha1.GroupVersion.Group, kaiv1alpha1.GroupVersion.Version, []string{"topologies"}, create, update),
				FailurePolicy: ptr.To(admissionregv1.Ignore), MatchPolicy: ptr.To(admissionregv1.Equivalent), SideEffects: ptr.To(admissionregv1.SideEffectClassNone),
				TimeoutSeconds: ptr.To[int32](10), AdmissionReviewVersions: []string{"v1"},
				NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
			},
		},
	}
	return m, v
}

func rules(group, version string, resources []string, operations ...admissionregv1.OperationType) []admissionregv1.RuleWithOperations {
	return []admissionregv1.RuleWithOperations{{Operations: operations, Rule: admissionregv1.Rule{
		APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources, Scope: ptr.To(admissionregv1.AllScopes),
	}}}
}

func (o *Options) clientConfig(path string, bundle []byte) admissionregv1.WebhookClientConfig {
	c := admissionregv1.WebhookClientConfig{CABundle: bundle}
	if o.URL != "" {
		c.URL = ptr.To(o.URL + path)
		return c
	}
	c.Service = &admissionregv1.ServiceReference{Namespace: o.Namespace, Name: service, Path: ptr.To(path), Port: ptr.To[int32](443)}
	return c
}

// schedulerNameMatch is the condition, in CEL, that a pod is for one of our schedulers.
func (o *Options) schedulerNameMatch() string {
	quoted := make([]string, len(o.SchedulerNames))
	for i, name := range o.SchedulerNames {
		quoted[i] = "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(name) + "'"
	}
	if len(quoted) == 1 {
		return "object.spec.schedulerName == " + quoted[0]
	}
	return fmt.Sprintf("object.spec.schedulerName in [%s]", strings.Join(quoted, ", "))
}

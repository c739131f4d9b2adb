package admission

import (
	"fmt"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	topology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
)

// VolcanoWebhook is the name of both webhook configurations about Volcano's kinds, the one that fills in and the one that judges.
const VolcanoWebhook = "muster-volcano-admission"

// Names of the policies about what is Volcano's.
const (
	// PolicyVolcanoPods judges the annotations of pods that name Volcano's scheduler.
	PolicyVolcanoPods = "muster-volcano-pods"
	// PolicyVolcanoGroups judges the network topology of Volcano's PodGroups.
	PolicyVolcanoGroups = "muster-volcano-podgroups"
)

// volcanoWebhooks are the configurations by which the API server asks about Volcano's kinds, complete with its defaults; nil where the face is off. They are asked about nothing
// else: while the role is dead, no object of these kinds can be made, and all others can. A question that has no new answer is not asked: where the spec stays, a Job or Queue may be
// changed as anybody likes.
func (o *Options) volcanoWebhooks(bundle []byte) (*admissionregv1.MutatingWebhookConfiguration, *admissionregv1.ValidatingWebhookConfiguration) {
	if len(o.Volcano) == 0 {
		return nil, nil
	}
	const (
		create  = admissionregv1.Create
		update  = admissionregv1.Update
		removal = admissionregv1.Delete
		suffix  = ".volcano.muster.dev"
	)
	when := func(name, expression string) []admissionregv1.MatchCondition {
		if expression == "" {
			return nil
		}
		return []admissionregv1.MatchCondition{{Name: name, Expression: expression}}
	}
	everything := &metav1.LabelSelector{}
	m := &admissionregv1.MutatingWebhookConfiguration{TypeMeta: typeOf("MutatingWebhookConfiguration"), ObjectMeta: metav1.ObjectMeta{Name: VolcanoWebhook}}
	for _, w := range []struct{ name, path, group, version, resource, condition string }{
		{"fill-jobs", MutateJobPath, batch.GroupVersion.Group, batch.GroupVersion.Version, "jobs", ""},
		{"fill-queues", MutateVCQueuePath, v1beta1.GroupVersion.Group, v1beta1.GroupVersion.Version, "queues", ""},
		{"fill-podgroups", MutateVCGroupPath, v1beta1.GroupVersion.Group, v1beta1.GroupVersion.Version, "podgroups", "object.?spec.?queue.orValue('') == " + quote(vckeys.DefaultQueue)},
	} {
		m.Webhooks = append(m.Webhooks, admissionregv1.MutatingWebhook{
			Name: w.name + suffix, ClientConfig: o.clientConfig(w.path, bundle), Rules: webhookRules(w.group, w.version, []string{w.resource}, create),
			FailurePolicy: ptr.To(admissionregv1.Fail), MatchPolicy: ptr.To(admissionregv1.Equivalent), SideEffects: ptr.To(admissionregv1.SideEffectClassNone),
			TimeoutSeconds: ptr.To[int32](timeout), AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: ptr.To(admissionregv1.IfNeededReinvocationPolicy),
			NamespaceSelector: everything, ObjectSelector: everything, MatchConditions: when("in-the-queue-default", w.condition),
		})
	}
	v := &admissionregv1.ValidatingWebhookConfiguration{TypeMeta: typeOf("ValidatingWebhookConfiguration"), ObjectMeta: metav1.ObjectMeta{Name: VolcanoWebhook}}
	const otherSpec = "oldObject == null || object.?spec != oldObject.?spec"
	for _, w := range []struct {
		name, path, group, version, resource, condition string
		operations                                      []admissionregv1.OperationType
	}{
		{"jobs", ValidateJobPath, batch.GroupVersion.Group, batch.GroupVersion.Version, "jobs", otherSpec, []admissionregv1.OperationType{create, update}},
		{"queues", ValidateVCQueuePath, v1beta1.GroupVersion.Group, v1beta1.GroupVersion.Version, "queues", saysOfQueue(), []admissionregv1.OperationType{create, update}},
		{"queue-deletion", ValidateVCQueuePath, v1beta1.GroupVersion.Group, v1beta1.GroupVersion.Version, "queues", "", []admissionregv1.OperationType{removal}},
		{"podgroups", ValidateVCGroupPath, v1beta1.GroupVersion.Group, v1beta1.GroupVersion.Version, "podgroups", "object.?spec.?queue.orValue('') != ''", []admissionregv1.OperationType{create}},
		{"hypernodes", ValidateHyperNodePath, topology.GroupVersion.Group, topology.GroupVersion.Version, "hypernodes", otherSpec, []admissionregv1.OperationType{create, update}},
		{"jobflows", ValidateJobFlowPath, flow.GroupVersion.Group, flow.GroupVersion.Version, "jobflows", otherSpec, []admissionregv1.OperationType{create, update}},
		{"cronjobs", ValidateCronJobPath, batch.GroupVersion.Group, batch.GroupVersion.Version, "cronjobs", otherSpec, []admissionregv1.OperationType{create, update}},
	} {
		v.Webhooks = append(v.Webhooks, admissionregv1.ValidatingWebhook{
			Name: w.name + suffix, ClientConfig: o.clientConfig(w.path, bundle), Rules: webhookRules(w.group, w.version, []string{w.resource}, w.operations...),
			FailurePolicy: ptr.To(admissionregv1.Fail), MatchPolicy: ptr.To(admissionregv1.Equivalent), SideEffects: ptr.To(admissionregv1.SideEffectClassNone),
			TimeoutSeconds: ptr.To[int32](timeout), AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: everything, ObjectSelector: everything, MatchConditions: when("says-something-new", w.condition),
		})
	}
	return m, v
}

// saysOfQueue is the condition, in CEL, that a Queue says something that is judged and that it did not say before.
func saysOfQueue() string {
	of := func(key string) string {
		return fmt.Sprintf("object.?metadata.?annotations[?%s] != oldObject.?metadata.?annotations[?%s]", quote(key), quote(key))
	}
	return "oldObject == null || object.?spec != oldObject.?spec || object.?status.?state != oldObject.?status.?state || " + of(vckeys.Hierarchy) + " || " + of(vckeys.HierarchyWeights)
}

// VolcanoPolicies are the policies about what is Volcano's, each followed by its binding; none where its face is off. The chart installs them, and not the operator, whose rights name the
// policies that it keeps, with the face or without.
func (o *Options) VolcanoPolicies() (out []client.Object) {
	if len(o.Volcano) == 0 {
		return nil
	}
	for _, p := range []policy{o.volcanoPods(), volcanoGroups()} {
		out = append(out, p.objects()...)
	}
	return out
}

// volcanoPods is what Volcano's webhook says of pods: how many may be missing is a number or a part, and it is said one way. No pod waits for an answer of ours.
func (o *Options) volcanoPods() policy {
	p := policy{
		name: PolicyVolcanoPods, actions: deny, skip: "!(object.?spec.?schedulerName.orValue('') in " + quoted(o.Volcano) + ")",
		rules:     []admissionregv1.NamedRuleWithOperations{on("", "v1", []string{"pods"}, admissionregv1.Create)},
		variables: []admissionregv1.Variable{variable("annotations", "object.?metadata.?annotations.orValue({})")},
	}
	least, most := quote(vckeys.JDBMinAvailable), quote(vckeys.JDBMaxUnavailable)
	for _, key := range []string{vckeys.JDBMinAvailable, vckeys.JDBMaxUnavailable} {
		at := quote(key)
		p.checks = append(p.checks, refuses(
			fmt.Sprintf("!(%s in variables.annotations) || variables.annotations[%s].matches('^(0*[1-9][0-9]{0,8}|[1-9][0-9]?%%)$')", at, at),
			fmt.Sprintf(`'metadata.annotations[%s]: is "' + variables.annotations[%s] + '", must be a whole number above 0, or from 1%% to 99%%'`, key, at), metav1.StatusReasonInvalid))
	}
	p.checks = append(p.checks, refuses(
		fmt.Sprintf("!(%s in variables.annotations && %s in variables.annotations)", least, most),
		fmt.Sprintf(`'metadata.annotations[%s]: must not be set together with %s'`, vckeys.JDBMaxUnavailable, vckeys.JDBMinAvailable), metav1.StatusReasonInvalid))
	return p
}

// volcanoGroups: the highest tier of a network topology is named one way.
func volcanoGroups() policy {
	both := func(root string) string {
		return root + ".?networkTopology.?highestTierAllowed.hasValue() && " + root + ".?networkTopology.?highestTierName.orValue('') != ''"
	}
	const message = `'PodGroup ' + object.metadata.?name.orValue('') + ': %s: must not be set together with highestTierAllowed'`
	return policy{
		name: PolicyVolcanoGroups, actions: deny,
		rules: []admissionregv1.NamedRuleWithOperations{on(v1beta1.GroupVersion.Group, v1beta1.GroupVersion.Version, []string{"podgroups"}, admissionregv1.Create)},
		checks: []admissionregv1.Validation{
			refuses("!("+both("object.?spec")+")", fmt.Sprintf(message, "spec.networkTopology.highestTierName"), metav1.StatusReasonInvalid),
			refuses("object.?spec.?subGroupPolicy.orValue([]).all(p, !("+both("p")+"))", fmt.Sprintf(message, "spec.subGroupPolicy[].networkTopology.highestTierName"), metav1.StatusReasonInvalid),
		},
	}
}

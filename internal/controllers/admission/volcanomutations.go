package admission

import (
	"fmt"
	"strings"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
)

// Names of the policies by which the API server changes pods where Volcano's webhook does, and of their bindings.
const (
	// PolicyVolcanoGate puts the scheduling gate of queues on pods that ask for it.
	PolicyVolcanoGate = "muster-volcano-queue-gate"
	// PolicyVolcanoResourceGroups gives pods of resource groups what the administrator says of the groups.
	PolicyVolcanoResourceGroups = "muster-volcano-resource-groups"
)

// VolcanoMutations are the MutatingAdmissionPolicies about Volcano's pods, each followed by its binding; none where the face is off. An API server has the kind from Kubernetes 1.36 on. No
// pod waits for an answer of the role, and one that a policy cannot be evaluated for stays as it is.
//
// What is in a policy is written here, and never a user's text: what a resource group says is in a PodTemplate (volcano.ParseGroups), which the policy reads as its parameter. So nothing that is
// written there can become an expression, and whoever may write these templates changes no more of a pod than the policy does.
func (o *Options) VolcanoMutations() (out []client.Object) {
	if len(o.Volcano) == 0 {
		return nil
	}
	if o.VolcanoGates {
		out = append(out, o.volcanoGate()...)
	}
	if o.VolcanoGroupsIn != "" {
		out = append(out, o.volcanoResourceGroups()...)
	}
	return out
}

// mutation makes a policy about pods that are made and its binding.
func mutation(name string, again admissionregv1.ReinvocationPolicyType, conditions []admissionregv1.MatchCondition, changes ...admissionregv1.Mutation) (*admissionregv1.MutatingAdmissionPolicy, *admissionregv1.MutatingAdmissionPolicyBinding) {
	everything := &metav1.LabelSelector{}
	p := &admissionregv1.MutatingAdmissionPolicy{
		TypeMeta: typeOf("MutatingAdmissionPolicy"), ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregv1.MutatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregv1.Ignore), ReinvocationPolicy: again, Mutations: changes,
			MatchConstraints: &admissionregv1.MatchResources{
				NamespaceSelector: everything, ObjectSelector: everything, MatchPolicy: ptr.To(admissionregv1.Equivalent),
				ResourceRules: []admissionregv1.NamedRuleWithOperations{on("", "v1", []string{"pods"}, admissionregv1.Create)},
			},
			// A pod that has its node already is past all of this: the API server would refuse the gate, and a kubelet the node selector.
			MatchConditions: append([]admissionregv1.MatchCondition{{Name: "has-no-node", Expression: "object.?spec.?nodeName.orValue('') == ''"}}, conditions...),
		},
	}
	return p, &admissionregv1.MutatingAdmissionPolicyBinding{
		TypeMeta: typeOf("MutatingAdmissionPolicyBinding"), ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}
}

// volcanoGate: a pod of Volcano's that asks for it waits until its queue lets it in. Gates are a list by name, so that one that has the gate keeps one. Whose pod it is the change asks, and no condition: a
// resource group may make it Volcano's after this was asked, and only what a policy was once applied to it is applied to again.
func (o *Options) volcanoGate() []client.Object {
	gate := quote(vckeys.QueueAllocationGate)
	p, b := mutation(PolicyVolcanoGate, admissionregv1.IfNeededReinvocationPolicy,
		[]admissionregv1.MatchCondition{{Name: "asks-for-it", Expression: fmt.Sprintf("object.?metadata.?annotations[?%s].orValue('') == 'true'", gate)}},
		admissionregv1.Mutation{PatchType: admissionregv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregv1.ApplyConfiguration{Expression: fmt.Sprintf(
			"object.?spec.?schedulerName.orValue('') in %s ? Object{spec: Object.spec{schedulingGates: [Object.spec.schedulingGates{name: %s}]}} : Object{}", quoted(o.Volcano), gate)}})
	return []client.Object{p, b}
}

// volcanoResourceGroups: a pod of a resource group gets the group's labels in its node selector, its tolerations besides its own, its affinity if it has none, and its scheduler. A pod is in one
// group at most. Parts of the parameter are put into an Object: an API server of 1.37 makes no JSON of lists and structures that are not. It is asked once, so that tolerations are not added twice. What it costs does not depend on the pod: nobody keeps himself out by writing much.
func (o *Options) volcanoResourceGroups() []client.Object {
	in := func(container string) string {
		return fmt.Sprintf("params.template.spec.containers.exists(c, c.name == %s && (request.namespace in c.?args.orValue([])"+
			" || c.?env.orValue([]).exists(e, object.?metadata.?annotations[?e.name] == optional.of(e.?value.orValue('')))))", quote(container))
	}
	patch := func(lines ...string) admissionregv1.Mutation {
		return admissionregv1.Mutation{PatchType: admissionregv1.PatchTypeJSONPatch, JSONPatch: &admissionregv1.JSONPatch{Expression: strings.Join(lines, "\n")}}
	}
	scheduler := fmt.Sprintf("params.metadata.?annotations[?%s]", quote(volcano.GroupSchedulerAnnotation))
	p, b := mutation(PolicyVolcanoResourceGroups, admissionregv1.NeverReinvocationPolicy,
		[]admissionregv1.MatchCondition{{Name: "is-of-the-group", Expression: in(volcano.GroupOf)}, {Name: "is-of-none-before-it", Expression: "!" + in(volcano.GroupNot)}},
		patch(
			"params.template.spec.?nodeSelector.orValue({}).size() == 0 ? [] :",
			"  (has(object.spec.nodeSelector) ? [] : [JSONPatch{op: 'add', path: '/spec/nodeSelector', value: {}}])",
			"  + params.template.spec.nodeSelector.map(k, JSONPatch{op: 'add', path: '/spec/nodeSelector/' + jsonpatch.escapeKey(k), value: params.template.spec.nodeSelector[k]})"),
		patch(
			"params.template.spec.?tolerations.orValue([]).size() == 0 ? [] :",
			"  (has(object.spec.tolerations) ? [] : [JSONPatch{op: 'add', path: '/spec/tolerations', value: []}])",
			"  + params.template.spec.tolerations.map(t, JSONPatch{op: 'add', path: '/spec/tolerations/-', value: Object.spec.tolerations{",
			"    ?key: t.?key, ?operator: t.?operator, ?value: t.?value, ?effect: t.?effect, ?tolerationSeconds: t.?tolerationSeconds}})"),
		patch(
			"has(object.spec.affinity) || !has(params.template.spec.affinity) ? [] :",
			"  [JSONPatch{op: 'add', path: '/spec/affinity', value: Object.spec.affinity{?nodeAffinity: params.template.spec.affinity.?nodeAffinity,",
			"    ?podAffinity: params.template.spec.affinity.?podAffinity, ?podAntiAffinity: params.template.spec.affinity.?podAntiAffinity}}]"),
		patch(
			"!"+scheduler+".hasValue() ? [] :",
			"  [JSONPatch{op: 'add', path: '/spec/schedulerName', value: "+scheduler+".value()}]"))
	p.Spec.ParamKind = &admissionregv1.ParamKind{APIVersion: "v1", Kind: "PodTemplate"}
	b.Spec.ParamRef = &admissionregv1.ParamRef{
		Namespace: o.VolcanoGroupsIn, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{volcano.GroupLabel: "true"}}, ParameterNotFoundAction: ptr.To(admissionregv1.AllowAction),
	}
	return []client.Object{p, b}
}

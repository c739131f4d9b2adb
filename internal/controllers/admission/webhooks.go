package admission

import (
	"fmt"
	"slices"
	"strings"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	kaiv1alpha1 "github.com/muster-scheduler/muster/api/kai/v1alpha1"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// Names of the webhooks that KAI's other programs have; those of pods and Topologies end in admission.NAMESPACE.svc.
const (
	queueWebhook    = "queue-validation.kai.scheduler"
	podGroupWebhook = "podgroup-validation.kai.scheduler"
)

// queueDeletionWebhook only warns, so it is one of its own, which KAI lacks: while it is dead, queues go without a word.
const queueDeletionWebhook = "queue-deletion.kai.scheduler"

// timeout is how long the API server waits for an answer, in seconds.
const timeout = 10

// Objects returns everything that the API server has to be told about admission: the webhook configurations, and the policies
// with their bindings. bundle is what it must trust (PEM); an installer that leaves it nil must not take it away again once the
// role has written it.
func (o *Options) Objects(bundle []byte) []client.Object {
	mutating, validating := o.Webhooks(bundle)
	out := []client.Object{mutating}
	for _, v := range validating {
		out = append(out, v)
	}
	if m, v := o.volcanoWebhooks(bundle); m != nil {
		out = append(out, m, v)
	}
	return append(out, o.Policies()...)
}

// Webhooks returns the configurations by which the API server asks the role, complete with every default that the API server
// would fill in. They have it ask only about pods that are ours: of our schedulers, of the namespaces and with the labels that
// the options select, and neither of this role's own namespace nor of kube-system. bundle is what it must trust (PEM).
//
// And they have it ask only where there may be something to say, which for a plain pod that asks for whole devices there is not, nor for a
// PodGroup without subgroups: a question costs the API server and the role about a millisecond of processor time each, four to five times
// for every pod. Conditions are what the API server finds out by itself; that they hold wherever the role would say something, whatever
// it is that an object says, is tested (TestAskedWhereThereIsSomethingToSay). A mutating webhook that was not asked is not asked again when another
// has changed the pod; see incomplete.
//
// While the role is dead, such a pod of ours is refused: unjudged and without its devices it would do harm. So is a Queue that is
// written: nothing else warns of what is wrong with it. A Topology, a PodGroup and a SchedulingShard are let through, because
// whoever reads them judges them again, and so is the deletion of a Queue, which is only warned of.
func (o *Options) Webhooks(bundle []byte) (*admissionregv1.MutatingWebhookConfiguration, []*admissionregv1.ValidatingWebhookConfiguration) {
	const (
		create  = admissionregv1.Create
		update  = admissionregv1.Update
		removal = admissionregv1.Delete
	)
	name := service + "." + o.Namespace + ".svc"
	matches := []admissionregv1.MatchCondition{{Name: "scheduler-name-match", Expression: o.schedulerNameMatch()}}
	completed, judged := slices.Clone(matches), slices.Clone(matches)
	if !o.GuardDevices && !o.AuthorizeQueues { // or any pod may lack something
		completed = append(completed, admissionregv1.MatchCondition{Name: "lacks-something", Expression: o.lacksSomething()})
	}
	if !o.GuardDevices { // or any container may name devices
		judged = append(judged, admissionregv1.MatchCondition{Name: "says-something", Expression: saysSomething()})
	}
	pods := &metav1.LabelSelector{MatchLabels: o.PodSelector}
	m := &admissionregv1.MutatingWebhookConfiguration{
		TypeMeta:   typeOf("MutatingWebhookConfiguration"),
		ObjectMeta: metav1.ObjectMeta{Name: o.Mutating},
		Webhooks: []admissionregv1.MutatingWebhook{{
			Name: name, ClientConfig: o.clientConfig(MutatePodPath, bundle), Rules: webhookRules("", "v1", []string{"pods"}, create),
			FailurePolicy: ptr.To(admissionregv1.Fail), MatchPolicy: ptr.To(admissionregv1.Equivalent), SideEffects: ptr.To(admissionregv1.SideEffectClassNone),
			TimeoutSeconds: ptr.To[int32](timeout), AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: ptr.To(admissionregv1.IfNeededReinvocationPolicy),
			NamespaceSelector: o.namespaces(), ObjectSelector: pods, MatchConditions: completed,
		}},
	}
	validating := func(name, path string, dead admissionregv1.FailurePolicyType, rules []admissionregv1.RuleWithOperations) admissionregv1.ValidatingWebhook {
		return admissionregv1.ValidatingWebhook{
			Name: name, ClientConfig: o.clientConfig(path, bundle), Rules: rules,
			FailurePolicy: ptr.To(dead), MatchPolicy: ptr.To(admissionregv1.Equivalent), SideEffects: ptr.To(admissionregv1.SideEffectClassNone),
			TimeoutSeconds: ptr.To[int32](timeout), AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
		}
	}
	configuration := func(name string, webhooks ...admissionregv1.ValidatingWebhook) *admissionregv1.ValidatingWebhookConfiguration {
		return &admissionregv1.ValidatingWebhookConfiguration{
			TypeMeta: typeOf("ValidatingWebhookConfiguration"), ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: webhooks,
		}
	}
	forPods := validating(name, ValidatePodPath, admissionregv1.Fail,
		append(webhookRules("", "v1", []string{"pods"}, create, update), webhookRules("", "v1", []string{"pods/ephemeralcontainers"}, update)...))
	forPods.NamespaceSelector, forPods.ObjectSelector, forPods.MatchConditions = o.namespaces(), pods.DeepCopy(), judged
	kai := kaiv1alpha1.GroupVersion.Group
	forMembers := validating("podgroup-use."+name, ValidateMemberPath, admissionregv1.Fail,
		append(webhookRules("", "v1", []string{"pods"}, create, update), webhookRules("", "v1", []string{"pods/*"}, update)...))
	forMembers.MatchConditions = append(slices.Clone(matches),
		admissionregv1.MatchCondition{Name: "names-a-podgroup", Expression: o.namesGroup()}, admissionregv1.MatchCondition{Name: "not-trusted", Expression: "!(" + o.trusted() + ")"})
	v := []*admissionregv1.ValidatingWebhookConfiguration{configuration(
		o.Validating, forPods,
		validating("topology."+name, ValidateTopologyPath, admissionregv1.Ignore, webhookRules(kai, kaiv1alpha1.GroupVersion.Version, []string{"topologies"}, create, update)),
		validating("schedulingshard."+name, ValidateShardPath, admissionregv1.Ignore, webhookRules(kai, kaiv1.GroupVersion.Version, []string{"schedulingshards"}, create, update)),
	)}
	if o.AuthorizeQueues { // wherever the scheduler serves, which is in all namespaces
		v[0].Webhooks = append(v[0].Webhooks, forMembers)
	}
	if o.QueueWebhook != "" {
		queues := func(operations ...admissionregv1.OperationType) []admissionregv1.RuleWithOperations {
			return webhookRules(v2.GroupVersion.Group, v2.GroupVersion.Version, []string{"queues"}, operations...)
		}
		v = append(v, configuration(
			o.QueueWebhook,
			validating(queueWebhook, ValidateQueuePath, admissionregv1.Fail, queues(create, update)),
			validating(queueDeletionWebhook, ValidateQueuePath, admissionregv1.Ignore, queues(removal)),
		))
	}
	if o.PodGroupWebhook != "" {
		groups := validating(podGroupWebhook, ValidatePodGroupPath, admissionregv1.Ignore,
			webhookRules(v2alpha2.GroupVersion.Group, v2alpha2.GroupVersion.Version, []string{"podgroups"}, create, update))
		groups.MatchConditions = []admissionregv1.MatchCondition{{Name: "has-a-tree", Expression: hasTree()}}
		v = append(v, configuration(o.PodGroupWebhook, groups))
	}
	return m, v
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregv1.SchemeGroupVersion.String(), Kind: kind}
}

// namespaceName is the label that the API server gives every namespace.
const namespaceName = "kubernetes.io/metadata.name"

// namespaces selects those whose pods are looked at.
func (o *Options) namespaces() *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: o.NamespaceSelector, MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: namespaceName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{metav1.NamespaceSystem, o.Namespace},
	}}}
	if o.QueueLabelSelector {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: o.QueueLabel, Operator: metav1.LabelSelectorOpExists})
	}
	return s
}

func webhookRules(group, version string, resources []string, operations ...admissionregv1.OperationType) []admissionregv1.RuleWithOperations {
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
	if len(o.SchedulerNames) == 1 {
		return "object.spec.schedulerName == " + quote(o.SchedulerNames[0])
	}
	return fmt.Sprintf("object.spec.schedulerName in %s", quoted(o.SchedulerNames))
}

// speaking are the annotations of a pod that the role reads.
func speaking() []string {
	return []string{
		keys.GPUFractionAnnotation, keys.GPUMemoryAnnotation, keys.GPUFractionDevicesAnnotation, keys.GPUFractionContainerAnnotation,
		keys.SharedGPUConfigMapAnnotation, keys.MPSAnnotation,
	}
}

// hasAny is the condition, in CEL, that an object has one of some annotations.
func hasAny(root string, annotations []string) string {
	return fmt.Sprintf("%s.exists(k, k in %s.?metadata.?annotations.orValue({}))", quoted(annotations), root)
}

// lacksSomething is the condition, in CEL, that Mutate may change a pod, or refuse it; see Mutate. It is without those of StampQueue and
// GuardDevices.
func (o *Options) lacksSomething() string {
	return strings.Join([]string{
		hasAny("object", append(speaking(), marks()...)),
		fmt.Sprintf("object.?metadata.?labels.orValue({}).exists(k, k == %s || k.startsWith(%s))", quote(keys.GPUGroupLabel), quote(keys.GPUGroupLabelPrefix)),
		fmt.Sprintf("(object.?spec.?nodeName.orValue('') != '' && %s)", hasAny("object", []string{keys.PodGroupAnnotation})),
		claimsTooMany,
	}, " || ")
}

// saysSomething is the condition, in CEL, that there may be something to say of a pod that is made or changed; see Validate, ValidateUpdate and
// validatePod. It is without that of GuardDevices.
func saysSomething() string {
	return strings.Join([]string{
		hasAny("object", speaking()), "(oldObject != null && " + hasAny("oldObject", speaking()) + ")",
		fmt.Sprintf("(oldObject == null && object.?spec.?terminationGracePeriodSeconds.orValue(0) > %d)", longGrace), claimsTooMany,
	}, " || ")
}

// claimsTooMany is the condition, in CEL, that a pod has more claims than it may.
var claimsTooMany = fmt.Sprintf("object.?spec.?resourceClaims.orValue([]).size() > %d", maxClaims)

// hasTree is the condition, in CEL, that a PodGroup has subgroups, or counts them, and did not say the same before; see ValidatePodGroup.
func hasTree() string {
	return "(object.?spec.?subGroups.orValue([]).size() > 0 || object.?spec.?minSubGroup.hasValue()) && (oldObject == null || object.?spec != oldObject.?spec)"
}

// namesGroup is the condition, in CEL, that a pod is made to name a PodGroup that it did not name before.
func (o *Options) namesGroup() string {
	of := func(root string) string {
		return fmt.Sprintf("%s.?metadata.?annotations[?%s].orValue('')", root, quote(keys.PodGroupAnnotation))
	}
	return of("object") + " != '' && (oldObject == null || " + of("object") + " != " + of("oldObject") + ")"
}

// quote writes a text as a literal of CEL.
func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`).Replace(s) + "'"
}

// quoted writes texts as a list of CEL.
func quoted(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quote(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

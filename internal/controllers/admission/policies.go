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
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// Names of the policies that the API server enforces by itself, and of their bindings.
const (
	// PolicyQueues refuses Queues that make no sense by themselves.
	PolicyQueues = "muster-queues"
	// PolicyConfigs refuses Configs whose annotations say of a guard what nobody understands.
	PolicyConfigs = "muster-configs"
	// PolicyAdvice warns of what is allowed and hardly meant.
	PolicyAdvice = "muster-advice"
	// PolicyPodIdentity, PolicyGroupIdentity and PolicyRequestIdentity keep tenants from saying what only Muster may say.
	PolicyPodIdentity     = "muster-identity-pods"
	PolicyGroupIdentity   = "muster-identity-podgroups"
	PolicyRequestIdentity = "muster-identity-bindrequests"
	// PolicyQueueLabels and PolicyQueueTemplates keep those from a queue that may not use it.
	PolicyQueueLabels    = "muster-queue-use"
	PolicyQueueTemplates = "muster-queue-use-templates"
)

// UseVerb is the verb that a user needs on a queue to submit work to it, where queues are authorized.
const UseVerb = "use"

// policy is what our policies differ in. Everything else is the API server's default, written out.
type policy struct {
	name     string
	joined   bool // is installed as a part of the policies about what its rules name, see join
	rules    []admissionregv1.NamedRuleWithOperations
	labelled string   // only objects with this label, before or after
	skip     string   // CEL: requests that the policy does not look at; "" for none
	said     []saying // of a joined policy: what its parts say
	broken   string   // CEL, of a joined policy: requests that it refuses; see join
	// surely are, by checks of a part, conditions that cost less, and hold only where the check does. The condition of a joined policy has them
	// in the place of checks that cost too much without variables, whose values are kept while a request is judged.
	surely    map[string]string
	variables []admissionregv1.Variable
	checks    []admissionregv1.Validation
	actions   []admissionregv1.ValidationAction
}

// Policies returns the ValidatingAdmissionPolicies, each followed by its binding, in an order that does not change. The API
// server enforces them without asking anybody, so that they hold while the role is dead. They hold in every namespace, also where
// the selectors keep the role from being asked: the scheduler serves the pods of all namespaces.
func (o *Options) Policies() []client.Object {
	var out []client.Object
	for _, p := range join(o.parts()) {
		out = append(out, p.objects()...)
	}
	return out
}

// parts are the policies by what they guard, before those about the same objects are joined.
func (o *Options) parts() []policy {
	all := []policy{queuePolicy(), configPolicy(), advicePolicy()}
	all = append(all, o.rights()...)
	all = append(all, o.charge())
	if o.Identity != Off {
		all = append(all, o.podIdentity(), o.groupIdentity(), o.requestIdentity(), o.bindingIdentity(), o.roomIdentity())
	}
	if o.AuthorizeQueues {
		all = append(all, o.queueLabels(), o.queueTemplates())
	}
	if o.ForbidForeignGPUs {
		all = append(all, o.foreignGPUs())
	}
	return all
}

// PolicyNames returns the names of all policies that there may be, whatever the options, and of those that versions before this one
// installed, each part by itself; sorted. Their bindings have the same.
func PolicyNames() []string {
	var out []string
	for _, mode := range []Mode{Warn, Enforce} {
		o := DefaultOptions()
		o.Identity, o.AuthorizeQueues, o.ForbidForeignGPUs = mode, true, true
		for _, p := range o.parts() {
			out = append(out, p.name)
		}
		for _, object := range o.Policies() {
			out = append(out, object.GetName())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (p *policy) objects() []client.Object {
	everything := &metav1.LabelSelector{}
	objects := everything
	if p.labelled != "" {
		objects = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: p.labelled, Operator: metav1.LabelSelectorOpExists}}}
	}
	spec := admissionregv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: ptr.To(admissionregv1.Fail),
		MatchConstraints: &admissionregv1.MatchResources{
			NamespaceSelector: everything, ObjectSelector: objects, ResourceRules: p.rules, MatchPolicy: ptr.To(admissionregv1.Equivalent),
		},
		Variables: p.variables, Validations: p.checks,
	}
	if p.skip != "" {
		spec.MatchConditions = []admissionregv1.MatchCondition{{Name: "not-trusted", Expression: "!(" + p.skip + ")"}}
	}
	if p.broken != "" {
		spec.MatchConditions = []admissionregv1.MatchCondition{{Name: "breaks-a-rule", Expression: p.broken}}
	}
	binding := admissionregv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: p.name, ValidationActions: p.actions}
	return []client.Object{
		&admissionregv1.ValidatingAdmissionPolicy{TypeMeta: typeOf("ValidatingAdmissionPolicy"), ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: spec},
		&admissionregv1.ValidatingAdmissionPolicyBinding{TypeMeta: typeOf("ValidatingAdmissionPolicyBinding"), ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: binding},
	}
}

// on matches operations on resources of a group.
func on(group, version string, resources []string, operations ...admissionregv1.OperationType) admissionregv1.NamedRuleWithOperations {
	return admissionregv1.NamedRuleWithOperations{RuleWithOperations: webhookRules(group, version, resources, operations...)[0]}
}

func variable(name, expression string) admissionregv1.Variable {
	return admissionregv1.Variable{Name: name, Expression: expression}
}

// refuses is a rule, and what is said when it is broken: CEL, too.
func refuses(unless, message string, reason metav1.StatusReason) admissionregv1.Validation {
	return admissionregv1.Validation{Expression: unless, MessageExpression: message, Reason: ptr.To(reason)}
}

var (
	deny   = []admissionregv1.ValidationAction{admissionregv1.Deny}
	advise = []admissionregv1.ValidationAction{admissionregv1.Warn, admissionregv1.Audit}
)

// actions is what a mode does to a request that breaks a rule.
func (m Mode) actions() []admissionregv1.ValidationAction {
	if m == Enforce {
		return deny
	}
	return advise
}

// queuePolicy is what can be said of a Queue without looking at others.
func queuePolicy() policy {
	return policy{
		name: PolicyQueues, joined: true,
		rules:   []admissionregv1.NamedRuleWithOperations{on(v2.GroupVersion.Group, v2.GroupVersion.Version, []string{"queues"}, admissionregv1.Create, admissionregv1.Update)},
		actions: deny,
		checks: []admissionregv1.Validation{
			refuses("has(object.spec) && has(object.spec.resources)",
				`'Queue ' + object.metadata.name + ': spec.resources: resources must be specified'`, metav1.StatusReasonInvalid),
			refuses("object.?spec.?parentQueue.orValue('') != object.metadata.name",
				`'Queue ' + object.metadata.name + ': spec.parentQueue: a queue cannot be its own parent'`, metav1.StatusReasonInvalid),
		},
	}
}

// configPolicy refuses values of a guard that nobody understands: whoever wrote them believes that it guards.
func configPolicy() policy {
	p := policy{
		name:      PolicyConfigs,
		rules:     []admissionregv1.NamedRuleWithOperations{on(kaiv1.GroupVersion.Group, kaiv1.GroupVersion.Version, []string{"configs"}, admissionregv1.Create, admissionregv1.Update)},
		actions:   deny,
		variables: metadata(),
	}
	for _, a := range []struct {
		key    string
		values []string
	}{
		{AnnotationIdentity, []string{string(Off), string(Warn), string(Enforce)}},
		{AnnotationAuthorizeQueues, []string{"true", "false"}},
	} {
		key := quote(a.key)
		p.checks = append(p.checks, refuses(
			fmt.Sprintf("variables.annotations[?%s] == variables.oldAnnotations[?%s] || variables.annotations[?%s].orValue('') in %s", key, key, key, quoted(append(a.values, ""))),
			fmt.Sprintf(`'Config ' + object.metadata.name + ': metadata.annotations[%s]: is "' + variables.annotations[%s] + '", must be %s'`, a.key, key, strings.Join(a.values, " or ")),
			metav1.StatusReasonInvalid))
	}
	return p
}

// advicePolicy is what the API server only warns of.
func advicePolicy() policy {
	queue, config := on(v2.GroupVersion.Group, v2.GroupVersion.Version, []string{"queues"}, admissionregv1.Create, admissionregv1.Update),
		on(kaiv1.GroupVersion.Group, kaiv1.GroupVersion.Version, []string{"configs"}, admissionregv1.Create, admissionregv1.Update)
	p := policy{
		name: PolicyAdvice, rules: []admissionregv1.NamedRuleWithOperations{queue, config}, actions: advise,
		variables: []admissionregv1.Variable{
			variable("resources", "request.resource.resource == 'queues' ? object.?spec.?resources.orValue({}) : {}"),
		},
		checks: []admissionregv1.Validation{refuses(
			"request.resource.resource != 'configs' || object.metadata.name == "+quote(kaiv1.ConfigName),
			`'Config ' + object.metadata.name + ': metadata.name: only the Config called `+kaiv1.ConfigName+` has an effect'`, metav1.StatusReasonInvalid)},
	}
	for _, r := range []string{"gpu", "cpu", "memory"} {
		quota, limit := "double(variables.resources.?"+r+".?quota.orValue(0))", "double(variables.resources.?"+r+".?limit.orValue(-1))"
		p.checks = append(p.checks, refuses(
			fmt.Sprintf("%s < 0.0 || (%s >= 0.0 && %s <= %s)", limit, quota, quota, limit),
			fmt.Sprintf(`'Queue ' + object.metadata.name + ': spec.resources.%s: the quota is above the limit; no more than the limit will ever be given'`, r), metav1.StatusReasonInvalid))
	}
	return p
}

// trusted is the condition, in CEL, that a request comes from Muster itself, or from a node.
func (o *Options) trusted() string {
	groups := []string{"system:nodes", serviceAccounts(o.Namespace)}
	for _, ns := range o.TrustedNamespaces {
		groups = append(groups, serviceAccounts(ns))
	}
	out := "request.userInfo.?groups.orValue([]).exists(g, g in " + quoted(groups) + ")"
	if len(o.Trusted) > 0 {
		out += " || request.userInfo.?username.orValue('') in " + quoted(o.Trusted)
	}
	return out
}

// serviceAccounts is the group of a namespace's service accounts.
func serviceAccounts(namespace string) string { return "system:serviceaccounts:" + namespace }

// marks are the annotations of a pod that only Muster writes. Labels follow by prefix.
func marks() []string {
	return []string{
		keys.ReceivedResourceTypeAnnotation, keys.ReservedGPUAnnotation, keys.RegainedAnnotation, keys.BundleLabel,
		keys.NUMAPredictedAnnotation, keys.NUMAObservedAnnotation, keys.ChargedAnnotation, keys.ChargedAsAnnotation, keys.DecidedAnnotation, keys.OwnGangAnnotation,
	}
}

// notes are the annotations of a PodGroup that only the scheduler writes.
func notes() []string {
	return []string{keys.StaleSinceAnnotation, keys.LastStartAnnotation, keys.LastEvictionAnnotation, keys.WhyAnnotation, keys.StartsAnnotation}
}

// metadata are the variables labels, oldLabels, annotations and oldAnnotations.
func metadata() []admissionregv1.Variable {
	return []admissionregv1.Variable{
		variable("labels", "object.?metadata.?labels.orValue({})"),
		variable("oldLabels", "oldObject == null ? {} : oldObject.?metadata.?labels.orValue({})"),
		variable("annotations", "object.?metadata.?annotations.orValue({})"),
		variable("oldAnnotations", "oldObject == null ? {} : oldObject.?metadata.?annotations.orValue({})"),
	}
}

// podIdentity: what is written by whoever binds a pod says what devices it has. A tenant who writes it shares devices that it
// was never given, or holds some in the name of the cluster.
func (o *Options) podIdentity() policy {
	const (
		create = admissionregv1.Create
		update = admissionregv1.Update
	)
	group := fmt.Sprintf("(k == %s || k.startsWith(%s))", quote(keys.GPUGroupLabel), quote(keys.GPUGroupLabelPrefix))
	return policy{
		name: PolicyPodIdentity, joined: true, actions: o.Identity.actions(), skip: o.trusted(),
		surely: map[string]string{nothingMoved: o.unmoved()},
		rules:  []admissionregv1.NamedRuleWithOperations{on("", "v1", []string{"pods"}, create, update), on("", "v1", []string{"pods/status"}, update)},
		variables: append(metadata(),
			variable("app", fmt.Sprintf("variables.labels[?%s].orValue('')", quote(keys.AppLabel))),
			variable("written", "variables.labels.map(k, k).filter(k, "+group+" && variables.labels[?k] != variables.oldLabels[?k])"+
				" + variables.oldLabels.map(k, k).filter(k, "+group+" && !(k in variables.labels))"+
				" + "+quoted(marks())+".filter(k, variables.annotations[?k] != variables.oldAnnotations[?k])"),
			o.frozenVariable(),
		),
		checks: []admissionregv1.Validation{
			frozenCheck(),
			refuses("variables.written.size() == 0",
				`'metadata: only Muster itself may write ' + variables.written.join(', ')`, metav1.StatusReasonForbidden),
			refuses(fmt.Sprintf("!(variables.app in %s) || variables.oldLabels[?%s].orValue('') == variables.app", quoted([]string{o.ReservationApp, keys.ScalingPodApp}), quote(keys.AppLabel)),
				`'metadata.labels[app]: only Muster itself makes pods of ' + variables.app`, metav1.StatusReasonForbidden),
			refuses("request.operation != 'CREATE' || object.?spec.?nodeName.orValue('') == '' || !(object.?spec.?schedulerName.orValue('') in "+quoted(o.SchedulerNames)+")",
				`'spec.nodeName: the scheduler decides where a pod of ' + object.spec.schedulerName + ' goes'`, metav1.StatusReasonForbidden),
		},
	}
}

// groupIdentity: since when a gang runs says how long it is safe.
func (o *Options) groupIdentity() policy {
	return policy{
		name: PolicyGroupIdentity, joined: true, actions: o.Identity.actions(), skip: o.trusted(),
		rules: []admissionregv1.NamedRuleWithOperations{on(v2alpha2.GroupVersion.Group, v2alpha2.GroupVersion.Version, []string{"podgroups"}, admissionregv1.Create, admissionregv1.Update)},
		variables: append(metadata(),
			variable("written", quoted(notes())+".filter(k, variables.annotations[?k] != variables.oldAnnotations[?k])")),
		checks: []admissionregv1.Validation{refuses("variables.written.size() == 0",
			`'metadata.annotations: only Muster itself may write ' + variables.written.join(', ')`, metav1.StatusReasonForbidden)},
	}
}

// requestIdentity: a BindRequest is the scheduler's word, and says for as long as its pod lives what the pod was given. Who may delete those of
// every namespace are administrators and the controllers that clear up, no owner of a namespace.
func (o *Options) requestIdentity() policy {
	return policy{
		name: PolicyRequestIdentity, joined: true, actions: o.Identity.actions(), skip: o.trusted(),
		rules: []admissionregv1.NamedRuleWithOperations{
			on("scheduling.run.ai", "*", []string{"bindrequests", "bindrequests/status"}, admissionregv1.Create, admissionregv1.Update),
			on("scheduling.run.ai", "*", []string{"bindrequests"}, admissionregv1.Delete),
		},
		checks: []admissionregv1.Validation{
			refuses("request.operation == 'DELETE'",
				`'BindRequest ' + request.name + ': only Muster itself may write BindRequests'`, metav1.StatusReasonForbidden),
			refuses("request.operation != 'DELETE' || request.userInfo.?groups.orValue([]).exists(g, g == "+quote(serviceAccounts(metav1.NamespaceSystem))+")"+
				" || authorizer.group('scheduling.run.ai').resource('bindrequests').check('delete').allowed()",
				`'BindRequest ' + request.name + ': only Muster itself may delete BindRequests, which say what a pod was given; delete the pod'`, metav1.StatusReasonForbidden),
		},
	}
}

// spokenFor is the condition that a request comes from one who acts for others: a controller of Kubernetes itself, whose
// objects and templates are judged when their author writes them, or Muster.
func (o *Options) spokenFor() string {
	c := *o
	c.TrustedNamespaces = append([]string{metav1.NamespaceSystem}, o.TrustedNamespaces...)
	return c.trusted()
}

// mayUse is the check of the variable asked: the queues that an object names and did not name before.
func mayUse() []admissionregv1.Validation {
	const who = "request.userInfo.?username.orValue('')"
	return []admissionregv1.Validation{
		refuses("variables.asked.all(q, q == variables.asked[0])",
			`'one object may name one queue, this one names ' + variables.asked.join(', ')`, metav1.StatusReasonForbidden),
		refuses(fmt.Sprintf("variables.asked.size() == 0 || authorizer.group(%s).resource('queues').name(variables.asked[0]).check('%s').allowed()", quote(v2.GroupVersion.Group), UseVerb),
			fmt.Sprintf(`%s + ' may not use queue ' + variables.asked[0] + ' (it takes the verb %s on that queue, resource queues.%s)'`, who, UseVerb, v2.GroupVersion.Group), metav1.StatusReasonForbidden),
	}
}

// queueLabels judges the queue label of everything: workloads of any kind, pods, PodGroups, claims.
func (o *Options) queueLabels() policy {
	label := quote(o.QueueLabel)
	everything := on("*", "*", []string{"*/*"}, admissionregv1.Create, admissionregv1.Update)
	everything.Scope = ptr.To(admissionregv1.NamespacedScope)
	return policy{
		name: PolicyQueueLabels, actions: deny, skip: o.spokenFor(), labelled: o.QueueLabel,
		rules: []admissionregv1.NamedRuleWithOperations{everything},
		variables: append(metadata(),
			variable("asked", fmt.Sprintf("variables.labels[?%s].orValue('') == '' || variables.labels[?%s] == variables.oldLabels[?%s] || variables.labels[%s] == %s ? [] : [variables.labels[%s]]", label, label, label, label, quote(keys.DefaultQueue), label))),
		checks: mayUse(),
	}
}

// queueTemplates judges what pods will say that others make: the queue labels of templates, and the older label project where
// nothing else names a queue. A PodGroup names its queue in its spec.
func (o *Options) queueTemplates() policy {
	label, project := quote(o.QueueLabel), quote(keys.ProjectLabel)
	var rules []admissionregv1.NamedRuleWithOperations
	for _, k := range templated() {
		rules = append(rules, on(k.group, "*", k.resources, admissionregv1.Create, admissionregv1.Update))
	}
	rules = append(rules, on("", "*", []string{"pods/*"}, admissionregv1.Update)) // labels can be changed by way of the status
	rules = append(rules, on(v2alpha2.GroupVersion.Group, "*", []string{"podgroups"}, admissionregv1.Create, admissionregv1.Update))
	named := func(of string) string {
		return fmt.Sprintf("%s.map(l, l[?%s].orValue('')).filter(q, q != '')", of, label)
	}
	group := "request.resource.resource == 'podgroups' ? [%s.?spec.?queue.orValue('')].filter(q, q != '') : []"
	vars := []admissionregv1.Variable{
		variable("templates", templates("object")),
		variable("oldTemplates", "oldObject == null ? [] : "+templates("oldObject")),
		variable("labels", "variables.templates.map(t, t.?metadata.?labels.orValue({})) + "+labelMaps("object")),
		variable("oldLabels", "oldObject == null ? [] : variables.oldTemplates.map(t, t.?metadata.?labels.orValue({})) + "+labelMaps("oldObject")),
		variable("names", named("variables.labels")+" + ("+fmt.Sprintf(group, "object")+")"),
		variable("oldNames", "oldObject == null ? [] : "+named("variables.oldLabels")+" + ("+fmt.Sprintf(group, "oldObject")+")"),
		variable("asked", "variables.names.filter(q, q != "+quote(keys.DefaultQueue)+" && !(q in variables.oldNames))"),
		variable("owners", "object.?metadata.?ownerReferences.orValue([]).map(o, o.uid)"),
		variable("oldOwners", "oldObject == null ? [] : oldObject.?metadata.?ownerReferences.orValue([]).map(o, o.uid)"),
		variable("top", "object.?metadata.?labels.orValue({})"),
		variable("oldTop", "oldObject == null ? {} : oldObject.?metadata.?labels.orValue({})"),
	}
	ours := func(templates string) string {
		return "variables." + templates + ".exists(t, t.?spec.?schedulerName.orValue('') in " + quoted(o.SchedulerNames) + ")"
	}
	// Whoever names an owner gets its queue, for which somebody else was judged, or nobody: so the pods must name theirs.
	led := fmt.Sprintf("variables.owners.size() > 0 && %s && !variables.templates.all(t, t.?metadata.?labels[?%s].orValue('') != '')", ours("templates"), label) +
		" && !(variables.owners.all(o, o in variables.oldOwners) && variables.names == variables.oldNames && " + ours("oldTemplates") + ")"
	checks := append(mayUse(), refuses(
		fmt.Sprintf("!(%s) || authorizer.group(%s).resource('queues').check('%s').allowed()", led, quote(v2.GroupVersion.Group), UseVerb),
		fmt.Sprintf(`'metadata.ownerReferences: pods that have an owner must name their queue themselves, in the label %s, unless who makes them may use all queues'`, o.QueueLabel), metav1.StatusReasonForbidden), refuses(
		"!"+ours("templates")+
			fmt.Sprintf(" || !(%s in variables.top || variables.labels.exists(l, %s in l))", project, project)+
			fmt.Sprintf(" || (request.resource.resource != 'cronjobs' && variables.top[?%s].orValue('') != '')", label)+
			fmt.Sprintf(" || variables.templates.all(t, t.?metadata.?labels[?%s].orValue('') != '')", label)+
			" || (request.operation == 'UPDATE' && variables.labels == variables.oldLabels && variables.top == variables.oldTop)",
		fmt.Sprintf(`'label %s: the right to use a queue cannot be judged by it; name the queue in the label %s'`, keys.ProjectLabel, o.QueueLabel), metav1.StatusReasonForbidden))
	// The label of a PodGroup is believed to say with which queue it was made: pods of that queue are taken in by the gang.
	made := fmt.Sprintf("variables.top[?%s].orValue('')", label)
	checks = append(checks, refuses(
		fmt.Sprintf("request.resource.resource != 'podgroups' || %s in [dyn(''), object.?spec.?queue.orValue('')] || variables.top[?%s] == variables.oldTop[?%s]", made, label, label),
		fmt.Sprintf(`'PodGroup ' + object.metadata.name + ': label %s: names ' + %s + '; a PodGroup is of the queue of its spec, ' + object.?spec.?queue.orValue('')`, o.QueueLabel, made), metav1.StatusReasonForbidden))
	return policy{
		name: PolicyQueueTemplates, actions: deny, skip: o.spokenFor(), rules: rules, variables: vars, checks: checks,
	}
}

// kind is a kind of workload whose pods carry labels from it. Paths to pod templates, and to maps of labels, may have one step
// that stands for all values of a map, {}, or all elements of a list, [].
type kind struct {
	group     string
	resources []string
	templates []string
	labels    []string
}

// templated lists the kinds. Paths of different kinds may be looked for in all of them.
func templated() []kind {
	return []kind{
		{group: "", resources: []string{"pods"}, templates: []string{""}},
		{group: "", resources: []string{"replicationcontrollers"}, templates: []string{"spec.template"}},
		{group: "apps", resources: []string{"deployments", "statefulsets", "replicasets", "daemonsets"}, templates: []string{"spec.template"}},
		{group: "batch", resources: []string{"jobs"}, templates: []string{"spec.template"}},
		{group: "batch", resources: []string{"cronjobs"}, templates: []string{"spec.jobTemplate.spec.template"}, labels: []string{"spec.jobTemplate.metadata.labels"}},
		{
			group: "kubeflow.org", resources: []string{"pytorchjobs", "tfjobs", "xgboostjobs", "jaxjobs", "mpijobs", "paddlejobs", "notebooks"},
			templates: []string{
				"spec.pytorchReplicaSpecs{}.template", "spec.tfReplicaSpecs{}.template", "spec.xgbReplicaSpecs{}.template",
				"spec.jaxReplicaSpecs{}.template", "spec.mpiReplicaSpecs{}.template", "spec.paddleReplicaSpecs{}.template", "spec.template",
			},
		},
		{group: "trainer.kubeflow.org", resources: []string{"trainjobs"}, labels: []string{"spec.labels"}},
		{
			group: "ray.io", resources: []string{"rayclusters", "rayjobs", "rayservices"},
			templates: []string{
				"spec.headGroupSpec.template", "spec.workerGroupSpecs[].template", "spec.submitterPodTemplate",
				"spec.rayClusterSpec.headGroupSpec.template", "spec.rayClusterSpec.workerGroupSpecs[].template",
				"spec.rayClusterConfig.headGroupSpec.template", "spec.rayClusterConfig.workerGroupSpecs[].template",
			},
		},
		{group: "jobset.x-k8s.io", resources: []string{"jobsets"}, templates: []string{"spec.replicatedJobs[].template.spec.template"}, labels: []string{"spec.replicatedJobs[].template.metadata.labels"}},
		{group: "leaderworkerset.x-k8s.io", resources: []string{"leaderworkersets"}, templates: []string{"spec.leaderWorkerTemplate.leaderTemplate", "spec.leaderWorkerTemplate.workerTemplate"}},
		{group: "argoproj.io", resources: []string{"workflows"}, labels: []string{"spec.podMetadata.labels", "spec.templates[].metadata.labels"}},
		{group: "serving.knative.dev", resources: []string{"services"}, templates: []string{"spec.template"}},
		{group: "kubevirt.io", resources: []string{"virtualmachines"}, templates: []string{"spec.template"}},
		{group: "sparkoperator.k8s.io", resources: []string{"sparkapplications"}, labels: []string{"spec.driver.labels", "spec.executor.labels"}},
		{group: "resource.k8s.io", resources: []string{"resourceclaimtemplates"}, labels: []string{"spec.metadata.labels"}}, // a claim's queue is charged
		{group: "grove.io", resources: []string{"podcliquesets", "podgangsets"}, labels: []string{"spec.template.cliques[].labels"}},
	}
}

// templates is the list, in CEL, of the pod templates in an object.
func templates(root string) string {
	return collect(root, func(k kind) []string { return k.templates })
}

// labelMaps is the list, in CEL, of the maps of labels in an object that are no template's.
func labelMaps(root string) string {
	return collect(root, func(k kind) []string { return k.labels })
}

// collect is the list of everything at the paths of the object's kind.
func collect(root string, paths func(kind) []string) string {
	out := "[]"
	for _, k := range templated() {
		list := paths(k)
		if len(list) == 0 {
			continue
		}
		terms := make([]string, len(list))
		for i, p := range list {
			terms[i] = values(root, p)
		}
		out = fmt.Sprintf("request.resource.group == %s && request.resource.resource in %s ? %s : (%s)", quote(k.group), quoted(k.resources), strings.Join(terms, " + "), out)
	}
	return "(" + out + ")"
}

// values is the list of what is at a path.
func values(root, path string) string {
	for _, mark := range []string{"{}", "[]"} {
		before, after, ok := strings.Cut(path, mark)
		if !ok {
			continue
		}
		element := "e"
		if mark == "{}" { // a map yields its keys
			element = root + "." + before + "[e]"
		}
		return chain(root, before) + ".orValue(" + mark + ").map(e, " + chain(element, after) + ".orValue({}))"
	}
	if path == "" {
		return "[" + root + "]"
	}
	return "[" + chain(root, path) + ".orValue({})]"
}

// chain walks a path whose steps may all be absent.
func chain(root, path string) string {
	for step := range strings.SplitSeq(strings.Trim(path, "."), ".") {
		root += ".?" + step
	}
	return root
}

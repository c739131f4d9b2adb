package admission

import (
	"fmt"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

const (
	// PolicyBindingIdentity keeps tenants who may bind pods from writing, with the Binding, what only Muster may say.
	PolicyBindingIdentity = "muster-identity-bindings"
	// PolicyCharge keeps everybody from writing who is charged for a pod, what gang it is by itself, and when it was decided on, in every mode:
	// no tool has ever had to.
	PolicyCharge = "muster-charge"
	// PolicyRoomIdentity keeps tenants from saying what a bound pod has of its node, and from taking more.
	PolicyRoomIdentity = "muster-identity-room"
	// PolicyForeignGPUs refuses pods of other schedulers that ask for GPUs: nobody is charged for them.
	PolicyForeignGPUs = "muster-foreign-gpus"
)

// frozen are the annotations and labels by which a pod asks for its place in a gang and for its part of a device. Once it is
// bound they have been answered.
func (o *Options) frozen() (annotations, labels []string) {
	return []string{
		keys.PodGroupAnnotation, keys.SkipPodGrouperAnnotation,
		keys.GPUFractionAnnotation, keys.GPUMemoryAnnotation, keys.GPUFractionDevicesAnnotation, keys.GPUFractionContainerAnnotation,
	}, []string{
		keys.SubGroupLabel, o.QueueLabel, keys.PreemptibilityLabel, keys.PriorityClassLabel,
	}
}

// wasBound is the condition, in CEL, that a pod of ours is bound.
func (o *Options) wasBound() string {
	return "oldObject != null && oldObject.?spec.?nodeName.orValue('') != '' && oldObject.?spec.?schedulerName.orValue('') in " + quoted(o.SchedulerNames)
}

// frozenVariable is what is asked for anew of a pod of ours that is bound; see frozen.
func (o *Options) frozenVariable() admissionregv1.Variable {
	annotations, labels := o.frozen()
	bound := o.wasBound()
	slice := "k.startsWith(" + quote(keys.MIGResourcePrefix) + ")" // an old way to have slices of GPUs
	return variable("moved", fmt.Sprintf("!(%s) ? [] : %s.filter(k, variables.annotations[?k] != variables.oldAnnotations[?k]) + %s.filter(k, variables.labels[?k] != variables.oldLabels[?k])",
		bound, quoted(annotations), quoted(labels))+
		" + variables.annotations.map(k, k).filter(k, "+slice+" && variables.annotations[?k] != variables.oldAnnotations[?k])"+
		" + variables.oldAnnotations.map(k, k).filter(k, "+slice+" && !(k in variables.annotations))")
}

const nothingMoved = "variables.moved.size() == 0"

// unmoved is a condition that costs less than nothingMoved, and holds only where it does; see policy.surely.
func (o *Options) unmoved() string {
	return "!(" + o.wasBound() + ") || (variables.annotations == variables.oldAnnotations && variables.labels == variables.oldLabels)"
}

func frozenCheck() admissionregv1.Validation {
	return refuses(nothingMoved,
		`'metadata: a pod that is bound keeps what it was bound as; only Muster itself may write ' + variables.moved.join(', ')`, metav1.StatusReasonForbidden)
}

// bindingIdentity: who binds a pod decides past all queues where it goes, and the API server copies the annotations and labels of
// the Binding to the pod. Whose pod it is cannot be seen here, and other schedulers bind theirs. What tells a scheduler from a
// tenant is where it may bind: in every namespace, which takes a right that no namespace's owner can give.
func (o *Options) bindingIdentity() policy {
	annotations, labels := o.frozen()
	group := fmt.Sprintf("(k == %s || k.startsWith(%s))", quote(keys.GPUGroupLabel), quote(keys.GPUGroupLabelPrefix))
	return policy{
		name: PolicyBindingIdentity, joined: true, actions: o.Identity.actions(), skip: o.trusted(),
		rules: []admissionregv1.NamedRuleWithOperations{on("", "v1", []string{"pods/binding", "bindings"}, admissionregv1.Create)},
		variables: append(metadata(),
			variable("written", "variables.labels.map(k, k).filter(k, "+group+" || k in "+quoted(append(labels, keys.AppLabel))+")"+
				" + "+quoted(append(marks(), annotations...))+".filter(k, k in variables.annotations)")),
		checks: []admissionregv1.Validation{
			refuses("variables.written.size() == 0",
				`'metadata: only Muster itself may write ' + variables.written.join(', ')`, metav1.StatusReasonForbidden),
			refuses("authorizer.group('').resource('pods').subresource('binding').check('create').allowed()",
				`'pods/binding: only a scheduler binds pods, which may create pods/binding in every namespace (a ClusterRoleBinding); leave the pod to the scheduler that it names'`, metav1.StatusReasonForbidden),
		},
	}
}

// charge: the record by which a queue is charged is written with the Binding, from what the scheduler put on the BindRequest. The
// other words were KAI's before they were ours, and there may be tools that write them; this one is ours alone.
func (o *Options) charge() policy {
	const create, update = admissionregv1.Create, admissionregv1.Update
	return policy{
		name: PolicyCharge, joined: true, actions: deny, skip: o.trusted(),
		rules: []admissionregv1.NamedRuleWithOperations{
			on("", "v1", []string{"pods"}, create, update), on("", "v1", []string{"pods/status"}, update), on("", "v1", []string{"pods/binding", "bindings"}, create),
			on("scheduling.run.ai", "*", []string{"bindrequests", "bindrequests/status"}, create, update),
		},
		variables: append(metadata(), variable("written", quoted([]string{keys.ChargedAnnotation, keys.ChargedAsAnnotation, keys.DecidedAnnotation, keys.OwnGangAnnotation})+".filter(k, variables.annotations[?k] != variables.oldAnnotations[?k])")),
		checks: []admissionregv1.Validation{refuses("variables.written.size() == 0",
			`'metadata.annotations: only Muster itself may write ' + variables.written.join(', ')`, metav1.StatusReasonForbidden)},
	}
}

// room are the fields of a pod's status by which it is known what it holds of its node, and for how long.
func room() []string {
	return []string{
		"phase", "containerStatuses", "initContainerStatuses", "resize", "resources", "allocatedResources", "resourceClaimStatuses", "extendedResourceClaimStatus",
	}
}

// roomIdentity: a pod of ours that is bound has ended when its node says so, and has what its node says; or it could run uncharged. Who
// speaks for nodes is known by the right to write their statuses, which no namespace's owner can give; Kubernetes' own controllers
// say of a node that is gone what became of its pods. And what a pod takes was found to be its queue's when it was bound: a
// resize may give of it, and not take more, for which nobody asks the queue. What devices it has is known by its claims: they stay as long as
// they have some, and who gives and takes devices is known by the right to bind pods everywhere.
func (o *Options) roomIdentity() policy {
	bound := o.wasBound()
	resizing := func(of string) string {
		return of + ".?status.?conditions.orValue([]).filter(c, c.type.startsWith('PodResize'))"
	}
	protection := quote(resourcev1.Finalizer)
	parts := func(of string) string {
		return of + ".spec.containers + " + of + ".spec.?initContainers.orValue([]) + (has(" + of + ".spec.resources) ? [dyn({'name': dyn('the pod'), 'resources': dyn(" + of + ".spec.resources)})] : [])"
	}
	return policy{
		name: PolicyRoomIdentity, joined: true, actions: o.Identity.actions(), skip: o.trusted(),
		surely: map[string]string{"variables.grown.size() == 0": "request.?subResource.orValue('') != 'resize' || !variables.bound"},
		rules: []admissionregv1.NamedRuleWithOperations{
			on("", "v1", []string{"pods/status", "pods/resize"}, admissionregv1.Update),
			on("resource.k8s.io", "*", []string{"resourceclaims", "resourceclaims/status"}, admissionregv1.Update),
		},
		variables: []admissionregv1.Variable{
			variable("claim", "request.resource.resource == 'resourceclaims'"),
			variable("bound", "!variables.claim && "+bound),
			variable("status", "request.?subResource.orValue('') != 'resize' && variables.bound"),
			variable("said", "!variables.status ? [] : "+quoted(room())+".filter(k, object.?status[?k] != oldObject.?status[?k]) + ("+
				resizing("object")+" != "+resizing("oldObject")+" ? ['conditions'] : [])"),
			variable("before", "request.?subResource.orValue('') == 'resize' && variables.bound ? "+parts("oldObject")+" : []"),
			variable("grown", "variables.before.size() == 0 ? [] : ("+parts("object")+").filter(c, c.?resources.?requests.orValue({}).exists(k,"+
				" quantity(c.resources.requests[k]).isGreaterThan(quantity((variables.before.filter(o, o.name == c.name).map(o, o.?resources.?requests[?k].orValue('0')) + ['0'])[0])))).map(c, c.name)"),
			variable("given", "!variables.claim || request.?subResource.orValue('') != 'status' ? [] : ['allocation', 'reservedFor'].filter(k, object.?status[?k] != oldObject.?status[?k])"),
			variable("freed", "variables.claim && request.?subResource.orValue('') != 'status' && (has(oldObject.status) && has(oldObject.status.allocation)) && "+
				protection+" in oldObject.?metadata.?finalizers.orValue([]) && !("+protection+" in object.?metadata.?finalizers.orValue([]))"),
			variable("gives", "request.userInfo.?groups.orValue([]).exists(g, g == "+quote(serviceAccounts(metav1.NamespaceSystem))+")"+
				" || request.userInfo.?username.orValue('') == 'system:kube-controller-manager'"+
				" || authorizer.group('').resource('pods').subresource('binding').check('create').allowed()"),
		},
		checks: []admissionregv1.Validation{
			refuses("variables.said.size() == 0 || request.userInfo.?groups.orValue([]).exists(g, g == "+quote(serviceAccounts(metav1.NamespaceSystem))+")"+
				" || authorizer.group('').resource('nodes').subresource('status').check('patch').allowed()",
				`'status: what a bound pod has of its node, and when it has ended, is for its node to say; only who reports for nodes may write ' + variables.said.join(', ')`, metav1.StatusReasonForbidden),
			refuses("variables.grown.size() == 0",
				`'resources.requests: a pod that is bound takes no more than its queue was found to have room for, and more is asked for ' + variables.grown.join(', ') + '; make a new pod'`, metav1.StatusReasonForbidden),
			refuses("variables.given.size() == 0 || variables.gives",
				`'status: who gives devices to a claim, and takes them, is a scheduler, which may create pods/binding in every namespace; nobody else may write ' + variables.given.join(', ')`, metav1.StatusReasonForbidden),
			refuses("!variables.freed || variables.gives",
				`'metadata.finalizers: a claim that has devices keeps resource.kubernetes.io/delete-protection, until nobody uses it and Kubernetes takes them back'`, metav1.StatusReasonForbidden),
		},
	}
}

// foreignGPUs: pods of other schedulers take GPUs that no queue is charged for. Where all GPUs are to be shared by queues, such
// pods are refused.
func (o *Options) foreignGPUs() policy {
	gpu := fmt.Sprintf("(k == %s || k == 'amd.com/gpu' || k.startsWith(%s))", quote(keys.GPUResource), quote(keys.MIGResourcePrefix))
	asks := "(has(c.resources) && (c.resources.?limits.orValue({}).exists(k, " + gpu + ") || c.resources.?requests.orValue({}).exists(k, " + gpu + ")))"
	return policy{
		name: PolicyForeignGPUs, actions: deny, skip: o.trusted(),
		rules: []admissionregv1.NamedRuleWithOperations{on("", "v1", []string{"pods"}, admissionregv1.Create)},
		checks: []admissionregv1.Validation{refuses(
			"object.spec.?schedulerName.orValue('') in "+quoted(o.SchedulerNames)+
				" || !(object.spec.containers.exists(c, "+asks+") || object.spec.?initContainers.orValue([]).exists(c, "+asks+"))",
			`'spec.schedulerName: GPUs of this cluster are shared by queues: a pod that asks for them names the scheduler `+o.SchedulerNames[0]+`'`, metav1.StatusReasonForbidden)},
	}
}

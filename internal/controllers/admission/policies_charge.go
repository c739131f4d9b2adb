package admission

import (
	"fmt"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

const (
	// PolicyBindingIdentity keeps tenants who may bind pods from writing, with the Binding, what only Muster may say.
	PolicyBindingIdentity = "muster-identity-bindings"
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

// frozenVariable is what is asked for anew of a pod of ours that is bound; see frozen.
func (o *Options) frozenVariable() admissionregv1.Variable {
	annotations, labels := o.frozen()
	bound := "oldObject != null && oldObject.?spec.?nodeName.orValue('') != '' && oldObject.?spec.?schedulerName.orValue('') in " + quoted(o.SchedulerNames)
	return variable("moved", fmt.Sprintf("!(%s) ? [] : %s.filter(k, variables.annotations[?k] != variables.oldAnnotations[?k]) + %s.filter(k, variables.labels[?k] != variables.oldLabels[?k])",
		bound, quoted(annotations), quoted(labels)))
}

func frozenCheck() admissionregv1.Validation {
	return refuses("variables.moved.size() == 0",
		`'metadata: a pod that is bound keeps what it was bound as; only Muster itself may write ' + variables.moved.join(', ')`, metav1.StatusReasonForbidden)
}

// bindingIdentity: who binds a pod decides past all queues where it goes, and the API server copies the annotations and labels of
// the Binding to the pod. Whose pod it is cannot be seen here, and other schedulers bind theirs. What tells a scheduler from a
// tenant is where it may bind: in every namespace, which takes a right that no namespace's owner can give.
func (o *Options) bindingIdentity() policy {
	annotations, labels := o.frozen()
	group := fmt.Sprintf("(k == %s || k.startsWith(%s))", quote(keys.GPUGroupLabel), quote(keys.GPUGroupLabelPrefix))
	return policy{
		name: PolicyBindingIdentity, actions: o.Identity.actions(), skip: o.trusted(),
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

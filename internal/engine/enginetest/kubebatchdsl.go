package enginetest

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kubebatch/keys"
	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/kubebatch"
)

// Gangs of kube-batch's are stated as those of KAI's, with the word kubebatch; with sigs besides they are of its second API group. With shadow they have no PodGroup: their pods have a controller of the gang's name and UID, and
// say the minimum, if it is stated; the model calls such a gang shadow_NAME. Queues of kube-batch's are stated as manifests.

// KubeBatchFace is what is read as kube-batch's; nothing without the option.
func (o *Options) KubeBatchFace() dialect.KubeBatch {
	if o.KubeBatch {
		return dialect.KubeBatch{Schedulers: []string{keys.SchedulerName}}
	}
	return dialect.KubeBatch{}
}

// inKubeBatchs returns the objects of a gang statement as a user of kube-batch's would have made them.
func inKubeBatchs(s *statement, objects []Object) (out []Object) {
	sigs, shadow, least := s.flag("sigs"), s.flag("shadow"), int32(0)
	for _, o := range objects {
		switch o := o.(type) {
		case *v2alpha2.PodGroup:
			if len(o.Spec.SubGroups) > 0 {
				s.bad("a gang of kube-batch's has no sets")
			}
			spec := v1alpha1.PodGroupSpec{Queue: o.Spec.Queue, PriorityClassName: o.Spec.PriorityClassName}
			if o.Spec.MinMember != nil {
				spec.MinMember = *o.Spec.MinMember
			}
			switch least = spec.MinMember; {
			case shadow:
			case sigs:
				out = append(out, &v1alpha2.PodGroup{ObjectMeta: o.ObjectMeta, Spec: spec})
			default:
				out = append(out, &v1alpha1.PodGroup{ObjectMeta: o.ObjectMeta, Spec: spec})
			}
		case *v1.Pod:
			o.Spec.SchedulerName = keys.SchedulerName
			group := o.Annotations[kai.PodGroupAnnotation]
			if delete(o.Annotations, kai.PodGroupAnnotation); !shadow {
				o.Annotations[keys.GroupName] = group
			} else {
				owner := Owner()
				owner.UID = types.UID(group)
				o.OwnerReferences = append(o.OwnerReferences[:0:0], owner)
				if s.has("min") {
					o.Annotations[keys.GroupMinMember] = strconv.Itoa(int(least))
				}
			}
			out = append(out, o)
		default:
			out = append(out, o)
		}
	}
	return out
}

// kubeBatchFields are the fields of kube-batch's objects that decide something.
func kubeBatchFields() []field {
	var out []field
	for _, group := range []string{v1alpha1.GroupVersion.Group, v1alpha2.GroupVersion.Group} {
		group := group
		spec := func(name string, off func(*v1alpha1.PodGroupSpec)) field {
			return field{"PodGroup." + group + ".spec." + name, func(o Object) {
				switch pg := o.(type) {
				case *v1alpha1.PodGroup:
					if group == v1alpha1.GroupVersion.Group {
						off(&pg.Spec)
					}
				case *v1alpha2.PodGroup:
					if group == v1alpha2.GroupVersion.Group {
						off(&pg.Spec)
					}
				}
			}}
		}
		out = append(out,
			spec("minMember", func(s *v1alpha1.PodGroupSpec) { s.MinMember = 0 }),
			spec("queue", func(s *v1alpha1.PodGroupSpec) { s.Queue = "" }),
			spec("priorityClassName", func(s *v1alpha1.PodGroupSpec) { s.PriorityClassName = "" }),
		)
	}
	ofPods := func(key string) field {
		return on("Pod.metadata.annotations["+key+"], of kube-batch's", func(p *v1.Pod) {
			if p.Spec.SchedulerName == keys.SchedulerName {
				delete(p.Annotations, key)
			}
		})
	}
	return append(out,
		on("Queue."+v1alpha1.GroupVersion.Group+".spec.weight", func(q *v1alpha1.Queue) { q.Spec.Weight = 0 }),
		on("Queue."+v1alpha2.GroupVersion.Group+".spec.weight", func(q *v1alpha2.Queue) { q.Spec.Weight = 0 }),
		on("PodDisruptionBudget.spec.minAvailable", func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = nil }),
		ofPods(keys.GroupName), ofPods(keys.GroupMinMember),
	)
}

// kubeBatchGroup is the name of the gang of kube-batch's that a pod is in, with or without a PodGroup.
func kubeBatchGroup(p *v1.Pod) string {
	gang, _ := kubebatch.Membership(p)
	return gang.Name
}

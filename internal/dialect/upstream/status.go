package upstream

import (
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Scheduled is the reason of the condition PodGroupInitiallyScheduled of a group that has started.
const Scheduled = "Scheduled"

// Status is what a PodGroup's status is to say; the zero value is nothing.
type Status struct {
	// Started says that the minimum has places. Message says why it waits, "" if it does not, or not for long enough.
	Started bool
	Message string
}

// Over returns the conditions of an object that has the conditions have once they say s, and whether that changes any: the scheduler's own condition
// changes, and what others wrote stays. One that was true stays true. generation is the object's.
func (s Status) Over(have []metav1.Condition, generation int64, now metav1.Time) (conditions []metav1.Condition, changed bool) {
	is := metav1.Condition{Type: schedulingv1beta1.PodGroupInitiallyScheduled, ObservedGeneration: generation, LastTransitionTime: now}
	switch {
	case s.Started:
		is.Status, is.Reason = metav1.ConditionTrue, Scheduled
	case s.Message != "" && !meta.IsStatusConditionTrue(have, is.Type):
		is.Status, is.Reason, is.Message = metav1.ConditionFalse, schedulingv1beta1.PodGroupReasonUnschedulable, s.Message
	default:
		return nil, false
	}
	for i := range have {
		conditions = append(conditions, *have[i].DeepCopy())
	}
	return conditions, meta.SetStatusCondition(&conditions, is)
}

// PodGroup names the object that a gang of that key and UID is, and says nothing else of it: for patches and events.
func PodGroup(key cluster.Key, uid string) *schedulingv1beta1.PodGroup {
	return &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: types.UID(uid)}}
}

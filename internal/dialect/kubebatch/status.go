package kubebatch

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
)

// Over returns the fields of a status that change, for a merge patch of an object that has the status have, and whether any does, once it says s. kube-batch has three of Volcano's phases, and one of its conditions: what is
// admitted and has not started is Pending, what has ended Running.
func Over(s volcano.Status, have *v1alpha1.PodGroupStatus, now metav1.Time) (patch map[string]any, changed bool) {
	switch s.Phase {
	case v1beta1.PodGroupInqueue:
		s.Phase = v1beta1.PodGroupPending
	case v1beta1.PodGroupCompleted:
		s.Phase = v1beta1.PodGroupRunning
	}
	s.Alone = true
	is := v1beta1.PodGroupStatus{Phase: v1beta1.PodGroupPhase(have.Phase), Running: have.Running, Succeeded: have.Succeeded, Failed: have.Failed}
	for _, c := range have.Conditions {
		is.Conditions = append(is.Conditions, v1beta1.PodGroupCondition{
			Type: v1beta1.PodGroupConditionType(c.Type), Status: c.Status, TransitionID: c.TransitionID, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return s.Over(&is, now)
}

package volcano

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// Scheduled is what the condition Scheduled gives as its reason.
const Scheduled = "tasks in gang are ready to be scheduled"

// Status is what a PodGroup's status is to say.
type Status struct {
	Phase                      v1beta1.PodGroupPhase
	Running, Succeeded, Failed int32
	// Placed says that the minimum has places. Reason and Message say why it waits, "" if it does not, or not for long enough.
	Placed          bool
	Reason, Message string
	// Settled says that what it waits for has been so for a while.
	Settled bool
	// Alone says that of conditions only Unschedulable is said.
	Alone bool
}

// Over returns the fields of a status that change, for a merge patch of an object that has the status have, and whether any does. The time of a condition that says the same
// stays.
func (s *Status) Over(have *v1beta1.PodGroupStatus, now metav1.Time) (patch map[string]any, changed bool) {
	patch = map[string]any{}
	if have.Phase != s.Phase {
		patch["phase"] = s.Phase
	}
	for _, n := range []struct {
		name     string
		have, is int32
	}{{"running", have.Running, s.Running}, {"succeeded", have.Succeeded, s.Succeeded}, {"failed", have.Failed, s.Failed}} {
		if n.have != n.is {
			patch[n.name] = n.is
		}
	}
	want := map[v1beta1.PodGroupConditionType]v1beta1.PodGroupCondition{}
	if s.Placed {
		want[v1beta1.PodGroupScheduled] = v1beta1.PodGroupCondition{Status: corev1.ConditionTrue, Reason: Scheduled}
		want[v1beta1.PodGroupUnschedulableType] = v1beta1.PodGroupCondition{Status: corev1.ConditionFalse, Reason: Scheduled}
	} else if s.Reason != "" {
		want[v1beta1.PodGroupUnschedulableType] = v1beta1.PodGroupCondition{Status: corev1.ConditionTrue, Reason: s.Reason, Message: s.Message}
		want[v1beta1.PodGroupScheduled] = v1beta1.PodGroupCondition{Status: corev1.ConditionFalse, Reason: s.Reason}
	}
	if s.Alone {
		delete(want, v1beta1.PodGroupScheduled)
	}
	conditions, differ, seen := []v1beta1.PodGroupCondition{}, false, map[v1beta1.PodGroupConditionType]bool{}
	for i := range have.Conditions {
		c := have.Conditions[i]
		if seen[c.Type] { // one of a type
			differ = true
			continue
		}
		seen[c.Type] = true
		if w, ok := want[c.Type]; ok && (c.Status != w.Status || c.Reason != w.Reason || c.Message != w.Message) {
			differ = true
			if w.Type, w.LastTransitionTime = c.Type, now; c.Status == w.Status && c.Reason == w.Reason {
				w.LastTransitionTime = c.LastTransitionTime
			}
			c = w
		}
		conditions = append(conditions, c)
	}
	for _, kind := range []v1beta1.PodGroupConditionType{v1beta1.PodGroupScheduled, v1beta1.PodGroupUnschedulableType} {
		if w, ok := want[kind]; ok && !seen[kind] && w.Status == corev1.ConditionTrue {
			w.Type, w.LastTransitionTime = kind, now
			conditions, differ = append(conditions, w), true
		}
	}
	if differ {
		patch["conditions"] = conditions
	}
	return patch, len(patch) > 0
}

// Fresh is the status of an object that had none.
func (s *Status) Fresh(now metav1.Time) (out v1beta1.PodGroupStatus) {
	patch, _ := s.Over(&out, now)
	out.Phase, out.Running, out.Succeeded, out.Failed = s.Phase, s.Running, s.Succeeded, s.Failed
	out.Conditions, _ = patch["conditions"].([]v1beta1.PodGroupCondition)
	return out
}

// PodGroup names the object that a gang of that key and UID is, and says nothing else of it: for patches and events.
func PodGroup(key cluster.Key, uid string) *v1beta1.PodGroup {
	return &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: types.UID(uid)}}
}

package operator

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// The condition of a shard that says whether its scheduler decides by what is asked for now, and its reasons. KAI has none like it and
// needs none: it ends the old scheduler before it starts the new one, and nobody decides in between. Here the old one decides until the
// new one is ready, and a change that has been made and has no effect yet must not look like one that has.
//
// The running scheduler does not read its file again: a change may be one of flags, environment or image, which a process cannot take
// in, the kubelet shows it a new file up to a minute later, when it has mostly been replaced, and one that went on with half of a change
// would decide by a setting that nobody wrote.
const (
	conditionInForce = "SettingsInForce"
	reasonInForce    = "in_force"
	reasonRollingOut = "rolling_out" // pods of before the change are there: they decide
	reasonStarting   = "starting"    // no pod decides
	reasonRefused    = "refused"     // nothing is rolled out
)

// Event reasons of that condition's changes.
const (
	eventRollingOut = "SettingsRollingOut"
	eventInForce    = "SettingsInForce"
)

// force is by what a shard's scheduler decides.
type force struct {
	Reason string // one of that condition's
	Text   string // why it is not in force
}

// inForce reads from a scheduler's Deployment by what is decided. A pod that is on its way out is no pod any more for a Deployment: for the
// moment that it takes to end, it may decide although this says that the change is in force.
func inForce(o object) *force {
	number := func(path ...string) int64 {
		n, _, _ := unstructured.NestedInt64(o.Object, path...)
		return n
	}
	wanted, there, updated := number("spec", "replicas"), number("status", "replicas"), number("status", "updatedReplicas")
	fresh := number("status", "observedGeneration") < o.GetGeneration()
	switch old := there - updated; {
	case fresh && there == 0, !fresh && old <= 0 && number("status", "readyReplicas") == 0:
		return &force{reasonStarting, fmt.Sprintf("%s has no pod that is ready: nobody decides", name(o)) + stuck(o)}
	case fresh:
		return &force{reasonRollingOut, fmt.Sprintf("%s has just been changed: %s by what was asked for before", name(o), deciders(there))}
	case old > 0:
		return &force{reasonRollingOut, fmt.Sprintf("%s has %d of %d new pods; until they are ready, %s by what was asked for before", name(o), updated, wanted, deciders(old)) + stuck(o)}
	}
	return &force{Reason: reasonInForce}
}

// deciders says of n pods that they decide.
func deciders(n int64) string {
	if n == 1 {
		return "the pod that was there decides"
	}
	return fmt.Sprintf("one of the %d pods that were there decides", n)
}

// stuck is what the Deployment's controller says of a rollout that does not get on, "" of one that does.
func stuck(o object) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Progressing" && m["status"] == string(metav1.ConditionFalse) {
			return fmt.Sprintf("; it does not get on: %v", m["message"])
		}
	}
	return ""
}

// decides is the condition; without a status there is to be none.
func (s *seen) decides() metav1.Condition {
	switch {
	case s.Force == nil:
		return metav1.Condition{Type: conditionInForce}
	case s.Force.Reason == reasonInForce:
		return metav1.Condition{Type: conditionInForce, Status: metav1.ConditionTrue, Reason: reasonInForce, Message: "the scheduler decides by what is asked for"}
	}
	return metav1.Condition{Type: conditionInForce, Status: metav1.ConditionFalse, Reason: s.Force.Reason, Message: few([]string{s.Force.Text})}
}

// announce tells, in an event and in the log, that a change of a shard begins to be rolled out, and that it has come into force: once
// each, also across a restart, because the condition remembers what was told.
func (r *reconciler) announce(s *kaiv1.SchedulingShard, now metav1.Condition) {
	var was metav1.Condition
	for _, c := range s.Status.Conditions {
		if c.Type == conditionInForce {
			was = c
		}
	}
	switch {
	case now.Reason == reasonRollingOut && (was.Reason != reasonRollingOut || was.ObservedGeneration != s.Generation):
		text := fmt.Sprintf("generation %d is rolled out: %s", s.Generation, now.Message)
		r.tell(s, corev1.EventTypeNormal, eventRollingOut, text)
		r.log.Info("the scheduler of a shard is being replaced", "object", "SchedulingShard "+s.Name, "generation", s.Generation, "reason", now.Message)
	case now.Reason == reasonInForce && was.Reason == reasonRollingOut:
		r.tell(s, corev1.EventTypeNormal, eventInForce, fmt.Sprintf("the scheduler decides by generation %d", s.Generation))
		r.log.Info("the scheduler of a shard has been replaced", "object", "SchedulingShard "+s.Name, "generation", s.Generation)
	}
}

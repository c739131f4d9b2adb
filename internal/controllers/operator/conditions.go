package operator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/install"
)

// seen is what one look found out about a Config or a shard.
type seen struct {
	// Failed is what could not be rendered, applied or removed.
	Failed []string
	// Down says of each object that is not up, why.
	Down []string
	// Lacking says what foreign parts are missing.
	Lacking []string
	// Past is what becomes of the history of usage when its pod goes: nil if there is none, "" if nothing.
	Past *string
	// Unknown says which names in a shard nothing has, nil of a Config, and of a shard that is not rendered.
	Unknown *[]string
	// Force is by what a shard's scheduler decides, nil of the Config, and of a shard that is to have no scheduler.
	Force *force
	// Connection is what became of the external Prometheus: nil if there is none, or nothing is known yet.
	Connection *connection
}

// connection is the outcome of a probe; Err is nil if it succeeded.
type connection struct{ Err error }

// few joins a list for a message, which a condition bounds: the first ten, and how many there are besides.
func few(list []string) string {
	const most, length = 10, 500
	var out []string
	for i, s := range list {
		if i == most {
			out = append(out, fmt.Sprintf("and %d more", len(list)-most))
			break
		}
		if len(s) > length {
			s = strings.ToValidUTF8(s[:length], "") + "…"
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

// The condition of a shard whose shares follow what queues used, and its reasons. KAI has none like it.
const (
	conditionPast = "UsageHistoryKept"
	reasonKept    = "kept"
	reasonLost    = "lost_with_pod"
)

// remembers is that condition; without a status there is to be none.
func (s *seen) remembers() metav1.Condition {
	switch {
	case s.Past == nil:
		return metav1.Condition{Type: conditionPast}
	case *s.Past != "":
		return metav1.Condition{Type: conditionPast, Status: metav1.ConditionFalse, Reason: reasonLost, Message: few([]string{*s.Past})}
	}
	return metav1.Condition{Type: conditionPast, Status: metav1.ConditionTrue, Reason: reasonKept, Message: "what queues used outlives the scheduler's pod"}
}

// The condition of a shard that says whether all names in it are known, and its reasons. KAI has none like it: it logs a plugin that it does
// not know and goes on, so that a policy whose name is spelt wrongly is not kept and nobody sees it.
const (
	conditionUnderstood = "SettingsUnderstood"
	reasonUnderstood    = "understood"
	reasonUnknown       = "unknown_names"
)

// understands is that condition; without a status there is to be none.
func (s *seen) understands() metav1.Condition {
	switch {
	case s.Unknown == nil:
		return metav1.Condition{Type: conditionUnderstood}
	case len(*s.Unknown) > 0:
		return metav1.Condition{Type: conditionUnderstood, Status: metav1.ConditionFalse, Reason: reasonUnknown, Message: "without effect: " + few(*s.Unknown)}
	}
	return metav1.Condition{Type: conditionUnderstood, Status: metav1.ConditionTrue, Reason: reasonUnderstood, Message: "all plugins, actions, arguments and flags are known"}
}

// conditions are the five that KAI's tools know, in KAI's words.
func (s *seen) conditions() []metav1.Condition {
	say := func(kind string, ok bool, yes, no, well string, problems []string) metav1.Condition {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: yes, Message: well}
		if !ok {
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, no, few(problems)
		}
		return c
	}
	down := slices.Concat(s.Failed, s.Down)
	out := []metav1.Condition{
		{Type: kaiv1.ConditionReconciling, Status: metav1.ConditionFalse, Reason: kaiv1.ReasonReconciled, Message: "nothing is left to do"},
		say(kaiv1.ConditionDeployed, len(s.Failed) == 0, kaiv1.ReasonDeployed, kaiv1.ReasonNotReady, "all objects exist", s.Failed),
		say(kaiv1.ConditionAvailable, len(down) == 0, kaiv1.ReasonAvailable, kaiv1.ReasonNotReady, "all is up", down),
		say(kaiv1.ConditionDependenciesFulfilled, len(s.Lacking) == 0, kaiv1.ReasonDependenciesFulfilled, kaiv1.ReasonDependenciesMissing, "nothing foreign is missing", s.Lacking),
		say(kaiv1.ConditionReady, len(down) == 0, kaiv1.ReasonReady, kaiv1.ReasonNotReady, "all is up", down),
	}
	if len(s.Failed) > 0 {
		out[0].Message = "it is tried again"
	}
	if c := s.Connection; c != nil && len(s.Lacking) == 0 {
		d := &out[3]
		if c.Err == nil {
			d.Reason, d.Message = kaiv1.ReasonPrometheusConnected, "the external Prometheus answers"
		} else {
			d.Status, d.Reason, d.Message = metav1.ConditionFalse, kaiv1.ReasonPrometheusConnectionFailed, few([]string{c.Err.Error()})
		}
	}
	return out
}

// reconciling is the condition while a new generation is worked on; nil if it has been said of this generation: saying it
// again and again would never let those who wait for the end of it see one.
func reconciling(have []metav1.Condition, generation int64) []metav1.Condition {
	for _, c := range have {
		if c.Type == kaiv1.ConditionReconciling && c.ObservedGeneration == generation {
			return nil
		}
	}
	return []metav1.Condition{{Type: kaiv1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: kaiv1.ReasonReconciling, Message: "being brought towards the spec"}}
}

// merge puts conditions into a list, takes those out that have no status, and says whether anything but times has changed. The time of transition changes with
// the status alone.
func merge(have, set []metav1.Condition, generation int64, now time.Time) (out []metav1.Condition, changed bool) {
	out = slices.Clone(have)
	for _, c := range set {
		c.ObservedGeneration, c.LastTransitionTime = generation, metav1.NewTime(now.Truncate(time.Second))
		i := slices.IndexFunc(out, func(o metav1.Condition) bool { return o.Type == c.Type })
		if c.Status == "" {
			if i >= 0 {
				out, changed = slices.Delete(out, i, i+1), true
			}
			continue
		}
		if i < 0 {
			out, changed = append(out, c), true
			continue
		}
		was := out[i]
		if was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		if was != c {
			out[i], changed = c, true
		}
	}
	return out, changed
}

// down says why a Deployment, a DaemonSet or a claim is not up; "" if it is, and for other kinds.
func down(o object) string {
	number := func(path ...string) int64 {
		n, _, _ := unstructured.NestedInt64(o.Object, path...)
		return n
	}
	if kind := o.GetKind(); (kind == "Deployment" || kind == "DaemonSet") && number("status", "observedGeneration") < o.GetGeneration() {
		return name(o) + " has just been changed"
	}
	switch o.GetKind() {
	case "PersistentVolumeClaim":
		if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase != string(corev1.ClaimBound) {
			return name(o) + " has no volume yet"
		}
	case "Deployment":
		wanted, updated := number("spec", "replicas"), number("status", "updatedReplicas")
		if updated != wanted {
			return fmt.Sprintf("%s has %d of %d new pods", name(o), updated, wanted)
		}
		// KAI's are gone by then: it ends them first. Here they may be all that answers.
		if old := number("status", "replicas") - updated; old > 0 {
			return fmt.Sprintf("%s still has %d pods of the version before", name(o), old)
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			if m, ok := c.(map[string]any); ok && m["type"] == "Available" && m["status"] == "True" {
				return ""
			}
		}
		return fmt.Sprintf("%s has %d of %d pods ready", name(o), number("status", "readyReplicas"), wanted)
	case "DaemonSet":
		wanted, updated, up := number("status", "desiredNumberScheduled"), number("status", "updatedNumberScheduled"), number("status", "numberAvailable")
		if updated != wanted || up != wanted {
			return fmt.Sprintf("%s has %d of %d pods ready, %d of them new", name(o), up, wanted, updated)
		}
	}
	return ""
}

// divide gives each shard what was seen of it, and the Config the rest: live are the objects as they are by now, failed says
// by an object's key what went wrong with it.
func divide(shards []string, desired []object, live map[string]object, failed map[string]string) (whole *seen, each map[string]*seen) {
	whole, each = &seen{}, map[string]*seen{}
	byLabel := map[string]*seen{}
	for _, s := range shards {
		each[s] = &seen{}
		byLabel[install.ShardLabel(s)] = each[s]
	}
	for _, o := range desired {
		s := byLabel[o.GetLabels()[install.LabelShard]]
		if s == nil {
			s = whole
		}
		if problem := failed[install.Key(o)]; problem != "" {
			s.Failed = append(s.Failed, problem)
		} else if was := live[install.Key(o)]; was != nil {
			if why := down(was); why != "" {
				s.Down = append(s.Down, why)
			}
			if s != whole && o.GetKind() == "Deployment" {
				s.Force = inForce(was)
			}
		}
	}
	return whole, each
}

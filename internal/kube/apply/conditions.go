package apply

import (
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Conditions returns a gang's scheduling conditions with ours brought up to date: those of other pools first, then ours,
// with the next transition id; or without ours when why is nil. More stands in the way besides why. It reports whether anything changed: the numbers in
// Details alone are no change.
func Conditions(have []v2alpha2.SchedulingCondition, pool string, why *v2alpha2.UnschedulableExplanation, now metav1.Time, more ...v2alpha2.UnschedulableExplanation) ([]v2alpha2.SchedulingCondition, bool) {
	last, count := 0, 0
	out := make([]v2alpha2.SchedulingCondition, 0, len(have)+1)
	var mine *v2alpha2.SchedulingCondition
	for i := range have {
		c := &have[i]
		if n, err := strconv.Atoi(c.TransitionID); err == nil {
			last = max(last, n)
		}
		if ours(c, pool) {
			mine = c
			count++
			continue
		}
		out = append(out, *c)
	}
	if why == nil {
		return out, count > 0
	}
	reasons := append(v2alpha2.UnschedulableExplanations{*why}, more...)
	same := func(a, b v2alpha2.UnschedulableExplanation) bool {
		return a.Reason == b.Reason && a.Message == b.Message
	}
	if count == 1 && mine.Status == v1.ConditionTrue && mine.Message == why.Message && slices.EqualFunc(mine.Reasons, reasons, same) {
		return have, false
	}
	since := now
	if count > 0 && mine.Status == v1.ConditionTrue && !mine.LastTransitionTime.IsZero() {
		since = mine.LastTransitionTime
	}
	return append(out, v2alpha2.SchedulingCondition{
		Type: v2alpha2.UnschedulableOnNodePool, NodePool: pool, Reason: v2alpha2.ReasonUnschedulable,
		Message: why.Message, Reasons: reasons,
		TransitionID: strconv.Itoa(last + 1), LastTransitionTime: since, Status: v1.ConditionTrue,
	}), true
}

// ours says whether a condition is the one that the scheduler of pool writes. The pool of the objects without a label has
// two spellings.
func ours(c *v2alpha2.SchedulingCondition, pool string) bool {
	return c.Type == v2alpha2.UnschedulableOnNodePool && (c.NodePool == pool || c.NodePool == "" && pool == kai.DefaultPool)
}

// attempted says whether a verdict came of trying to place the gang. The others are about the gang itself: nothing was
// tried, so nothing has failed.
func attempted(r *engine.Reason) bool {
	return r == policy.ReasonBinding || r != policy.ReasonReleasing && !r.Untried
}

// explain is a verdict about a gang in the words of KAI's API. The reasons KAI has go by its names; ours are further
// ones, which that API lets be. Numbers of the queue come with the two reasons that are about them.
func explain(snap *cluster.Snapshot, g *cluster.Gang, v engine.Verdict, text string, queues []engine.QueueTrace) *v2alpha2.UnschedulableExplanation {
	e := &v2alpha2.UnschedulableExplanation{Reason: v2alpha2.UnschedulableReason(v.Reason.Key), Message: text}
	if v.Reason.Unblock != policy.UnblockLimit && v.Reason.Unblock != policy.UnblockQuota {
		return e
	}
	for i := range queues {
		q := &queues[i]
		if q.Name != v.Object {
			continue
		}
		var request cluster.Resources
		for _, id := range g.Pods {
			if p := snap.Pod(id); p.Phase == cluster.Pending {
				request.Add(p.Class.Requests)
			}
		}
		list := func(r cluster.Resources) v1.ResourceList {
			r = r.Clone()
			if len(r) > cluster.Slots {
				r[cluster.Slots] = 0 // a count of pods is no resource that a queue has
			}
			return core.List(snap.Dims, r)
		}
		d := &v2alpha2.QuotaDetails{
			Name: q.Name, QueueRequestedResources: list(q.Requested), QueueDeservedResources: list(q.Quota),
			QueueAllocatedResources: list(q.Allocated), QueueAllocatedNonPreemptibleResources: list(q.NonPreemptible),
			QueueResourceLimits: list(q.Limit), PodGroupRequestedResources: list(request),
		}
		if !g.Preemptible {
			d.PodGroupRequestedNonPreemptibleResources = list(request)
		}
		e.Details = &v2alpha2.UnschedulableExplanationDetails{QueueDetails: d}
		break
	}
	return e
}

// delayed says, in KAI's word, that others are not evicted for the gang yet; nil when that is not so.
func delayed(g *engine.GangTrace) []v2alpha2.UnschedulableExplanation {
	for i := range g.Tried {
		if v := g.Tried[i].Verdict; v.Code == engine.Wait && v.Reason == policy.ReasonPreemptionDelay {
			return []v2alpha2.UnschedulableExplanation{{
				Reason:  v2alpha2.ReasonPreemptionDelayNotElapsed,
				Message: "others are not evicted for it before " + v.WakeAt.Time().UTC().Format(time.RFC3339) + ": spec.preemptionDelay",
			}}
		}
	}
	return nil
}

// maxText bounds what is written to an object, in bytes.
const maxText = 4096

// cut shortens s to at most n bytes without breaking a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

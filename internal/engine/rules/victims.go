package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// CheckReclaim says whether the gang's queue may take from others. Without anybody to say so, it may not. Where the gang's face has a law of its own, that says so of queues of the
// face, and the others do of those of other faces, if there are any.
func (ru *Rules) CheckReclaim(g *ledger.GangState, request cluster.Resources) policy.Verdict {
	if !ru.OwnLaw(g) {
		return ru.checkReclaim(g, request)
	}
	v := ru.faceReclaim(g, request)
	if !v.Yes() && slices.ContainsFunc(ru.ledger.Tops(), func(q *ledger.QueueLedger) bool { return !ofFace(q, g) }) && ru.checkReclaim(g, request).Yes() {
		return policy.Verdict{}
	}
	return v
}

func (ru *Rules) checkReclaim(g *ledger.GangState, request cluster.Resources) policy.Verdict {
	if len(ru.points.Reclaim) == 0 {
		return policy.Verdict{Code: policy.NoForever, Reason: policy.ReasonSwitchedOff, Object: "reclaim-gate"}
	}
	return policy.FirstNo(ru.points.Reclaim, func(gate policy.ReclaimGate) policy.Verdict { return gate.CheckReclaim(g, request) })
}

// CheckVictimQueue says whether anything may be taken from the gangs of a leaf queue.
func (ru *Rules) CheckVictimQueue(r policy.EvictionCause, g *ledger.GangState, request cluster.Resources, leaf *ledger.QueueLedger) policy.Verdict {
	if r == policy.Preempt && leaf != g.Leaf || r == policy.Reclaim && leaf == g.Leaf {
		return policy.Verdict{Code: policy.No, Reason: policy.ReasonOtherQueue, Object: leaf.Name}
	}
	if r == policy.Reclaim && ru.OwnLaw(g) {
		if ofFace(leaf, g) {
			if leaf.NotReclaimable {
				return policy.Verdict{Code: policy.No, Reason: policy.ReasonNotReclaimable, Object: leaf.Name}
			}
			return ru.faceReclaim(g, request)
		}
		if v := ru.checkReclaim(g, request); !v.Yes() {
			return v
		}
	}
	return policy.FirstNo(ru.points.VictimQueues, func(f policy.VictimQueueFilter) policy.Verdict { return f.CheckVictimQueue(r, g, request, leaf) })
}

// BySiblings says whether CheckVictimQueue has one answer for g for all leaves below a queue that is not on its way; see
// [SiblingFilter].
func (ru *Rules) BySiblings(g *ledger.GangState) bool {
	if ru.OwnLaw(g) {
		return false
	}
	for _, f := range ru.points.VictimQueues {
		if _, ok := f.It.(policy.SiblingFilter); !ok {
			return false
		}
	}
	return true
}

// Standing appends to key what CheckVictimQueue looks at of a queue that is not on the beneficiary's way, where BySiblings.
func (ru *Rules) Standing(key []byte, q *ledger.QueueLedger) []byte {
	for _, f := range ru.points.VictimQueues {
		if x, ok := f.It.(policy.SiblingFilter); ok {
			key = x.Standing(append(key, '/'), q.ID)
		}
	}
	return key
}

// CompareVictimQueues orders two sibling queues to take from: negative when l gives before r.
func (ru *Rules) CompareVictimQueues(l, r *ledger.QueueLedger, lUnit, rUnit cluster.Resources) int {
	for _, o := range ru.points.VictimOrders {
		if c := o.CompareVictimQueues(l.ID, r.ID, lUnit, rUnit); c != 0 {
			return c
		}
	}
	return cmp.Or(r.Created.Compare(l.Created), cmp.Compare(r.Name, l.Name))
}

// CheckVictim says whether anything of v may be taken for g for this cause: the published table, plugins included, but for
// what CheckVictimQueue says of its queue.
func (ru *Rules) CheckVictim(r policy.EvictionCause, g *ledger.GangState, request cluster.Resources, v *ledger.GangState) policy.Verdict {
	no := func(reason *policy.Reason) policy.Verdict {
		return policy.Verdict{Code: policy.No, Reason: reason, Object: v.Key.String()}
	}
	switch {
	case v.Leaf == nil, r == policy.Consolidation && !v.HasQueue(): // which could not start anew
		return noQueue(v)
	case !v.Preemptible && (r == policy.Consolidation || !ru.Yields(v.Gang)):
		return no(policy.ReasonNotPreemptible)
	case r == policy.Preempt && v.Priority >= g.Priority, r == policy.Consolidation && v.Priority > g.Priority:
		return no(policy.ReasonHigherPriority)
	case r == policy.Consolidation && !ru.recreated(v):
		return no(policy.ReasonNotRecreated)
	case v.Binding() > 0:
		// Its bundle is bound whole or not at all: without one of them the others would wait for the binder to give up.
		return no(policy.ReasonBeingBound)
	}
	if ru.snap.Frozen(g.Key, v.Key) {
		return no(policy.ReasonFrozen)
	}
	if ru.returned(r, g, v) {
		return no(policy.ReasonReturned)
	}
	if n, until := ru.recent(v); r == policy.Reclaim && n >= maxEvictionsPerHour {
		return policy.Verdict{Code: policy.Wait, Reason: policy.ReasonEvictionRate, Object: v.Key.String(), Have: int64(n), WakeAt: until}
	}
	return policy.FirstNo(ru.points.Victims, func(f policy.VictimFilter) policy.Verdict { return f.CheckVictim(r, g, request, v) })
}

// AnyBeneficiary says that CheckVictim has nothing against anybody's reclaiming from a gang, until its queue is charged. It may say
// false although it has nothing.
func (ru *Rules) AnyBeneficiary(v *ledger.GangState) bool {
	if v.Leaf == nil || !v.Preemptible || v.Binding() > 0 || !v.Displaced.IsZero() || len(v.Displacements) > 0 || ru.snap.AnyFrozen() {
		return false
	}
	for _, f := range ru.points.Victims {
		if a, ok := f.It.(policy.AnyBeneficiary); !ok || !a.AnyBeneficiary(policy.Reclaim, v) {
			return false
		}
	}
	return true
}

func (ru *Rules) recreated(v *ledger.GangState) bool {
	for p := range ru.ledger.EachLive(v) {
		if !v.Succeeds(p) {
			return false
		}
	}
	return true
}

// CheckUnit says whether one more unit may be taken, and by which rule; see [UnitCheck].
func (ru *Rules) CheckUnit(r policy.EvictionCause, g *ledger.GangState, request cluster.Resources, u *ledger.VictimUnit) (string, policy.Verdict) {
	rule := ""
	if u.BelowMinimum && u.Gang.Changed() { // it must not be torn apart by the run that found room for a pod of it, a new one or one that moves
		return "", policy.Verdict{Code: policy.No, Reason: policy.ReasonJustPlaced, Object: u.Gang.Key.String()}
	}
	if u.Gang.Key.Face == g.Key.Face && slices.ContainsFunc(u.Pods, func(p *cluster.Pod) bool { return p.Kept }) { // what other faces have a claim on no pod keeps by saying so
		return "", policy.Verdict{Code: policy.No, Reason: policy.ReasonPodKept, Object: u.Gang.Key.String()}
	}
	if v := ru.checkExcess(u); !v.Yes() {
		return "", v
	}
	own := ru.governs(r, g, u.Gang)
	if own {
		why, v := ru.checkLaw(u)
		if !v.Yes() {
			return "", v
		}
		rule = why
	}
	for _, c := range ru.points.Units {
		if own && any(c.It) == any(ru.points.Shares) { // who divides for all faces has no say within one that has a law of its own
			continue
		}
		why, v := c.It.CheckUnit(r, g, request, u)
		if !v.Yes() {
			v.Plugin = c.Name
			return "", v
		}
		rule = cmp.Or(rule, why)
	}
	switch {
	case u.Moved:
		rule = cmp.Or(rule, "it has room elsewhere")
	case r == policy.Preempt:
		rule = cmp.Or(rule, "its priority is lower")
	}
	return rule, policy.Verdict{}
}

// Tier says how reluctantly a unit is taken, and what it breaks.
func (ru *Rules) Tier(u *ledger.VictimUnit) (int, string) {
	tier, broken := 0, ""
	for _, p := range ru.points.Tiers {
		if t, b := p.Tier(u); t > tier {
			tier, broken = t, b
		}
	}
	if ru.law.bundles.Ordered && u.BelowMinimum && u.Gang.SetSatisfied(0) && ru.OwnLaw(u.Gang) { // whole gangs come after all that others can do without
		tier += 2
	}
	return tier, broken
}

// GentleUnit is NextUnit, or with certain pods where of is not nil, for who would rather break no promise: of what the gang could
// give instead, the first that breaks none. False when it has nothing of the kind.
func (ru *Rules) GentleUnit(g *ledger.GangState, of func(*cluster.Pod) bool) (ledger.VictimUnit, bool) {
	gentle := func(u *ledger.VictimUnit) bool {
		tier, _ := ru.Tier(u)
		return tier == 0 && !u.BelowMinimum
	}
	want := func(p *cluster.Pod) bool {
		return (of == nil || of(p)) && gentle(&ledger.VictimUnit{Gang: g, Pods: []*cluster.Pod{p}})
	}
	u, ok := ru.ledger.NextUnitOf(g, want)
	if !ok || u.BelowMinimum || gentle(&u) {
		return u, ok && !u.BelowMinimum
	}
	for _, u := range ru.Units(g, false) { // of the sets that it can do without, another
		if gentle(&u) && slices.ContainsFunc(u.Pods, want) {
			return u, true
		}
	}
	return ledger.VictimUnit{}, false
}

// Units returns everything the gang could give next: NextUnit's first, and where that is one of several pods, or sets, any
// other instead. Pods of one set, node and class stand for each other, unless it matters which of them goes: for the devices
// that they have, for who makes them anew, for promises about them and, if labels says so, for their labels.
func (ru *Rules) Units(g *ledger.GangState, labels bool) []ledger.VictimUnit {
	first, ok := ru.ledger.NextUnit(g)
	if !ok {
		return nil
	}
	out := []ledger.VictimUnit{first}
	if first.BelowMinimum || first.Promised() > 0 {
		return out
	}
	if _, own := ru.points.Faces[g.Key.Face]; own && len(ru.snap.Objects(cluster.PodDisruptionBudgets)) > 0 { // whom a budget means its law may go by
		labels = true
	}
	type kind struct {
		set   int32
		node  cluster.NodeID
		of    *cluster.Class
		anew  bool
		apart string
	}
	kindOf := func(p *cluster.Pod) kind {
		_, broken := ru.Tier(&ledger.VictimUnit{Gang: g, Pods: []*cluster.Pod{p}})
		apart := broken + "/" + strings.Join(p.Groups, ",")
		if p.Kept {
			apart += "/kept"
		}
		if p.Cooldown > 0 {
			apart += fmt.Sprint("/", p.Cooldown, p.Scheduled.UnixNano())
		}
		if len(p.DeviceClaims) > 0 {
			apart += "/" + p.UID
		}
		if labels && len(p.Labels) > 0 {
			apart += fmt.Sprint(p.Labels) // in the order of keys
		}
		return kind{p.Set, p.Node, p.Class, p.Recreated, apart}
	}
	seen := map[kind]bool{}
	note := func(u *ledger.VictimUnit) {
		for _, p := range u.Pods {
			seen[kindOf(p)] = true
		}
	}
	note(&first)
	for _, p := range ru.ledger.LivePods(g) {
		if seen[kindOf(p)] {
			continue
		}
		u, ok := ru.ledger.NextUnitOf(g, func(o *cluster.Pod) bool { return o == p })
		if note(&ledger.VictimUnit{Pods: []*cluster.Pod{p}}); ok && !u.BelowMinimum {
			out = append(out, u)
			note(&u)
		}
	}
	return out
}

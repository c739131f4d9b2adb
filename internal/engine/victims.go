package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// CheckReclaim says whether the gang's queue may take from others. Without anybody to say so, it may not.
func (ru *Rules) CheckReclaim(g *GangState, request cluster.Resources) Verdict {
	if len(ru.points.reclaim) == 0 {
		return Verdict{Code: NoForever, Reason: ReasonSwitchedOff, Object: string(PointReclaimGate)}
	}
	for _, gate := range ru.points.reclaim {
		if v := gate.it.CheckReclaim(g, request); !v.Yes() {
			v.Plugin = gate.name
			return v
		}
	}
	return Verdict{}
}

// CheckVictimQueue says whether anything may be taken from the gangs of a leaf queue.
func (ru *Rules) CheckVictimQueue(r EvictionCause, g *GangState, request cluster.Resources, leaf *QueueLedger) Verdict {
	if r == Preempt && leaf != g.Leaf || r == Reclaim && leaf == g.Leaf {
		return Verdict{Code: No, Reason: ReasonOtherQueue, Object: leaf.Name}
	}
	for _, f := range ru.points.victimQueues {
		if v := f.it.CheckVictimQueue(r, g, request, leaf); !v.Yes() {
			v.Plugin = f.name
			return v
		}
	}
	return Verdict{}
}

// BySiblings says whether CheckVictimQueue has one answer for all leaves below a queue that is not on the beneficiary's way; see
// [SiblingFilter].
func (ru *Rules) BySiblings() bool {
	for _, f := range ru.points.victimQueues {
		if _, ok := f.it.(SiblingFilter); !ok {
			return false
		}
	}
	return true
}

// Standing appends to key what CheckVictimQueue looks at of a queue that is not on the beneficiary's way, where BySiblings.
func (ru *Rules) Standing(key []byte, q *QueueLedger) []byte {
	for _, f := range ru.points.victimQueues {
		if x, ok := f.it.(SiblingFilter); ok {
			key = x.Standing(append(key, '/'), q.ID)
		}
	}
	return key
}

// CompareVictimQueues orders two sibling queues to take from: negative when l gives before r.
func (ru *Rules) CompareVictimQueues(l, r *QueueLedger, lUnit, rUnit cluster.Resources) int {
	for _, o := range ru.points.victimOrders {
		if c := o.CompareVictimQueues(l.ID, r.ID, lUnit, rUnit); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(r.Created, l.Created), cmp.Compare(r.Name, l.Name))
}

// CheckVictim says whether anything of v may be taken for g for this cause: the published table, plugins included, but for
// what CheckVictimQueue says of its queue.
func (ru *Rules) CheckVictim(r EvictionCause, g *GangState, request cluster.Resources, v *GangState) Verdict {
	no := func(reason *Reason) Verdict { return Verdict{Code: No, Reason: reason, Object: v.Key.String()} }
	switch {
	case v.Leaf == nil, r == Consolidation && !v.HasQueue(): // which could not start anew
		return noQueue(v)
	case !v.Preemptible && (r == Consolidation || !ru.Yields(v.Gang)):
		return no(ReasonNotPreemptible)
	case r == Preempt && v.Priority >= g.Priority, r == Consolidation && v.Priority > g.Priority:
		return no(ReasonHigherPriority)
	case r == Consolidation && !ru.recreated(v):
		return no(ReasonNotRecreated)
	case v.Binding() > 0:
		// Its bundle is bound whole or not at all: without one of them the others would wait for the binder to give up.
		return no(ReasonBeingBound)
	}
	if ru.snap.Frozen(g.Key, v.Key) {
		return no(ReasonFrozen)
	}
	if ru.returned(r, g, v) {
		return no(ReasonReturned)
	}
	if n, until := ru.recent(v); r == Reclaim && n >= maxEvictionsPerHour {
		return Verdict{Code: Wait, Reason: ReasonEvictionRate, Object: v.Key.String(), Have: int64(n), WakeAt: until}
	}
	for _, f := range ru.points.victims {
		if verdict := f.it.CheckVictim(r, g, request, v); !verdict.Yes() {
			verdict.Plugin = f.name
			return verdict
		}
	}
	return Verdict{}
}

// AnyBeneficiary says that CheckVictim has nothing against anybody's reclaiming from a gang, until its queue is charged. It may say
// false although it has nothing.
func (ru *Rules) AnyBeneficiary(v *GangState) bool {
	if v.Leaf == nil || !v.Preemptible || v.Binding() > 0 || v.Displaced > 0 || len(v.Displacements) > 0 || ru.snap.AnyFrozen() {
		return false
	}
	for _, f := range ru.points.victims {
		if a, ok := f.it.(AnyBeneficiary); !ok || !a.AnyBeneficiary(Reclaim, v) {
			return false
		}
	}
	return true
}

func (ru *Rules) recreated(v *GangState) bool {
	for p := range ru.ledger.EachLive(v) {
		if !succeeded(v, p) {
			return false
		}
	}
	return true
}

// CheckUnit says whether one more unit may be taken, and by which rule; see [UnitCheck].
func (ru *Rules) CheckUnit(r EvictionCause, g *GangState, request cluster.Resources, u *VictimUnit) (string, Verdict) {
	rule := ""
	if u.BelowMinimum && u.Gang.Changed() { // it must not be torn apart by the run that found room for a pod of it, a new one or one that moves
		return "", Verdict{Code: No, Reason: ReasonJustPlaced, Object: u.Gang.Key.String()}
	}
	if v := ru.checkExcess(u); !v.Yes() {
		return "", v
	}
	for _, c := range ru.points.units {
		why, v := c.it.CheckUnit(r, g, request, u)
		if !v.Yes() {
			v.Plugin = c.name
			return "", v
		}
		rule = cmp.Or(rule, why)
	}
	switch {
	case u.Moved:
		rule = cmp.Or(rule, "it has room elsewhere")
	case r == Preempt:
		rule = cmp.Or(rule, "its priority is lower")
	}
	return rule, Verdict{}
}

// Tier says how reluctantly a unit is taken, and what it breaks.
func (ru *Rules) Tier(u *VictimUnit) (int, string) {
	tier, broken := 0, ""
	for _, p := range ru.points.tiers {
		if t, b := p.Tier(u); t > tier {
			tier, broken = t, b
		}
	}
	return tier, broken
}

// GentleUnit is NextUnit, or with certain pods where of is not nil, for who would rather break no promise: of what the gang could
// give instead, the first that breaks none. False when it has nothing of the kind.
func (ru *Rules) GentleUnit(g *GangState, of func(*cluster.Pod) bool) (VictimUnit, bool) {
	gentle := func(u *VictimUnit) bool {
		tier, _ := ru.Tier(u)
		return tier == 0 && !u.BelowMinimum
	}
	want := func(p *cluster.Pod) bool {
		return (of == nil || of(p)) && gentle(&VictimUnit{Gang: g, Pods: []*cluster.Pod{p}})
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
	return VictimUnit{}, false
}

// Units returns everything the gang could give next: NextUnit's first, and where that is one of several pods, or sets, any
// other instead. Pods of one set, node and class stand for each other, unless it matters which of them goes: for the devices
// that they have, for who makes them anew, for promises about them and, if labels says so, for their labels.
func (ru *Rules) Units(g *GangState, labels bool) []VictimUnit {
	first, ok := ru.ledger.NextUnit(g)
	if !ok {
		return nil
	}
	out := []VictimUnit{first}
	if first.BelowMinimum || first.Promised() > 0 {
		return out
	}
	type kind struct {
		set   int32
		node  cluster.NodeID
		of    *cluster.Class
		anew  bool
		apart string
	}
	kindOf := func(p *cluster.Pod) kind {
		_, broken := ru.Tier(&VictimUnit{Gang: g, Pods: []*cluster.Pod{p}})
		apart := broken + "/" + strings.Join(p.Groups, ",")
		if len(p.DeviceClaims) > 0 {
			apart += "/" + p.UID
		}
		if labels && len(p.Labels) > 0 {
			apart += fmt.Sprint(p.Labels) // in the order of keys
		}
		return kind{p.Set, p.Node, p.Class, p.Recreated, apart}
	}
	seen := map[kind]bool{}
	note := func(u *VictimUnit) {
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
		if note(&VictimUnit{Pods: []*cluster.Pod{p}}); ok && !u.BelowMinimum {
			out = append(out, u)
			note(&u)
		}
	}
	return out
}

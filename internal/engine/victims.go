package engine

import (
	"cmp"

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

// CheckGiver says whether anything may be taken from the gangs of a leaf queue.
func (ru *Rules) CheckGiver(r Right, g *GangState, request cluster.Resources, leaf *QueueLedger) Verdict {
	if r == Preempt && leaf != g.Leaf || r == Reclaim && leaf == g.Leaf {
		return Verdict{Code: No, Reason: ReasonOtherQueue, Object: leaf.Name}
	}
	for _, f := range ru.points.leaves {
		if v := f.it.CheckGiver(r, g, request, leaf); !v.Yes() {
			v.Plugin = f.name
			return v
		}
	}
	return Verdict{}
}

// BySiblings says whether CheckGiver has one answer for all leaves below a queue that is not on the taker's way; see
// [SiblingFilter].
func (ru *Rules) BySiblings() bool {
	for _, f := range ru.points.leaves {
		if _, ok := f.it.(SiblingFilter); !ok {
			return false
		}
	}
	return true
}

// Standing appends to key what CheckGiver looks at of a queue that is not on the taker's way, where BySiblings.
func (ru *Rules) Standing(key []byte, q *QueueLedger) []byte {
	for _, f := range ru.points.leaves {
		if x, ok := f.it.(SiblingFilter); ok {
			key = x.Standing(append(key, '/'), q.ID)
		}
	}
	return key
}

// CompareGivers orders two sibling queues to take from: negative when l gives before r.
func (ru *Rules) CompareGivers(l, r *QueueLedger, lUnit, rUnit cluster.Resources) int {
	for _, o := range ru.points.givers {
		if c := o.CompareGivers(l.ID, r.ID, lUnit, rUnit); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(r.Created, l.Created), cmp.Compare(r.Name, l.Name))
}

// CheckVictim says whether anything of v may be taken for g by this right: the published table, plugins included, but for
// what CheckGiver says of its queue.
func (ru *Rules) CheckVictim(r Right, g *GangState, request cluster.Resources, v *GangState) Verdict {
	no := func(reason Reason) Verdict { return Verdict{Code: No, Reason: reason, Object: v.Key.String()} }
	switch {
	case v.Leaf == nil, r == Consolidation && !v.QueueVerdict.Yes(): // which could not start anew
		return v.QueueVerdict
	case !v.Preemptible && (r == Consolidation || !ru.Yields(v.Gang)):
		return no(ReasonNotPreemptible)
	case r == Preempt && v.Priority >= g.Priority, r == Consolidation && v.Priority > g.Priority:
		return no(ReasonHigherPriority)
	case r == Consolidation && !ru.recreated(v):
		return no(ReasonNotRecreated)
	case v.binding > 0:
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

// AnyTaker says that CheckVictim has nothing against anybody's reclaiming from a gang, until its queue is charged. It may say
// false although it has nothing.
func (ru *Rules) AnyTaker(v *GangState) bool {
	if v.Leaf == nil || !v.Preemptible || v.binding > 0 || v.Displaced > 0 || len(v.Displacements) > 0 || ru.snap.AnyFrozen() {
		return false
	}
	for _, f := range ru.points.victims {
		if a, ok := f.it.(AnyTaker); !ok || !a.AnyTaker(Reclaim, v) {
			return false
		}
	}
	return true
}

func (ru *Rules) recreated(v *GangState) bool {
	ru.ledger.buildHeld(v)
	for i := range v.sets {
		for _, id := range v.sets[i].held[:v.sets[i].live] {
			if !v.succeeded(ru.snap.Pod(id)) {
				return false
			}
		}
	}
	return true
}

// CheckUnit says whether one more unit may be taken, and by which rule; see [UnitCheck].
func (ru *Rules) CheckUnit(r Right, g *GangState, request cluster.Resources, u *Unit) (string, Verdict) {
	rule := ""
	if u.Core && u.Gang.changed() { // it must not be torn apart by the run that found room for a pod of it, a new one or one that moves
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
func (ru *Rules) Tier(u *Unit) (int, string) {
	tier, broken := 0, ""
	for _, p := range ru.points.tiers {
		if t, b := p.Tier(u); t > tier {
			tier, broken = t, b
		}
	}
	return tier, broken
}

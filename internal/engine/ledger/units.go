package ledger

import (
	"iter"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// VictimUnit is what a gang gives in one piece: one pod above a minimum, the pods of a set that the gang can do without, or all
// that it has left.
type VictimUnit struct {
	Gang *GangState
	Pods []*cluster.Pod
	// BelowMinimum says that the gang is below its minimum without the unit.
	BelowMinimum bool
	// Set is the set of which the unit is all that is left, and that the gang can do without; 0 for a unit of another kind.
	Set int32
	// Moved says that all its pods have room elsewhere: its queue loses nothing by it, but they start again.
	Moved bool
	// Charge is what their queue is charged for them together.
	Charge cluster.Resources

	// holds are what the gang gives when it gives room that is promised to it, and no pod.
	holds []int
}

// buildHeld lists, once, the gang's active pods on known nodes.
func (l *Ledger) buildHeld(g *GangState) {
	if g.victim {
		return
	}
	g.victim = true
	for _, id := range g.Pods {
		p := l.snap.Pod(id)
		if p.Ours && p.Phase.Active() && p.Node != cluster.None {
			set := &g.sets[g.leaf(p)]
			set.held = append(set.held, id)
		}
	}
	for i := range g.sets {
		set := &g.sets[i]
		if len(set.held) > 1 {
			l.sortPods(set.held)
		}
		set.live = len(set.held)
	}
}

// Live returns how many pods the gang could give.
func (l *Ledger) Live(g *GangState) int {
	l.buildHeld(g)
	n := 0
	for i := range g.sets {
		n += g.sets[i].live
	}
	for _, k := range l.holders[g.ID] {
		if !l.holds[k].open {
			n++
		}
	}
	return n
}

// Given returns how many of the promises that the unit gives are given.
func (l *Ledger) Given(u *VictimUnit) int {
	n := 0
	for _, k := range u.holds {
		if l.holds[k].open {
			n++
		}
	}
	return n
}

// Promised returns how many pods the unit leaves without the room that was promised to them; it has no others then.
func (u *VictimUnit) Promised() int { return len(u.holds) }

// NextUnit returns what the gang gives next, as the session stands: it gives up room that is promised to it, then the pods that
// are of none of its sets, one by one, then shrinks to its minimum pod by pod, last pods of the last sets first, then gives sets it can do without, those that are
// below their minimum first, then the rest in one piece. One that is Whole gives its pods in that piece only; of a set that is, they go together. False when it has nothing left.
func (l *Ledger) NextUnit(g *GangState) (VictimUnit, bool) { return l.nextUnit(g, nil, nil) }

// NextUnitOn is NextUnit for who needs room on certain nodes, of certain pods, only: which of its pods above the minimum a gang
// gives is open, and it gives those there. Where only all that is left has something there, what goes before that goes first. False
// when it has nothing there.
func (l *Ledger) NextUnitOn(g *GangState, on func(cluster.NodeID) bool, of func(*cluster.Pod) bool) (VictimUnit, bool) {
	u, ok := l.nextUnit(g, on, of)
	if ok && u.BelowMinimum && len(g.Sets) > 2 && g.SetSatisfied(0) {
		return l.nextUnit(g, on, nil)
	}
	return u, ok
}

// nextUnit is NextUnit for promises on certain nodes and units with a pod that is wanted; nil is for all.
func (l *Ledger) nextUnit(g *GangState, on func(cluster.NodeID) bool, want func(*cluster.Pod) bool) (VictimUnit, bool) {
	l.buildHeld(g)
	u := VictimUnit{Gang: g}
	for _, k := range l.holders[g.ID] { // a promise costs least
		if h := &l.holds[k]; !h.open && (on == nil || on(h.node)) {
			u.holds = append(u.holds, k)
			u.Charge.AddCapped(h.Charge)
		}
	}
	if len(u.holds) > 0 {
		return u, true
	}
	if !g.Whole {
		u.Pods = l.last(&g.sets[len(g.Sets)], want) // of no set: it does as well without
	}
	if len(u.Pods) == 0 && g.SetSatisfied(0) && !g.Whole {
		u.Pods, u.Set = l.surplus(g, 0, want)
	}
	if len(u.Pods) == 0 {
		u.BelowMinimum = true
		for i := range g.sets {
			u.Pods = append(u.Pods, l.livePods(g, int32(i))...)
		}
		if want != nil && !slices.ContainsFunc(u.Pods, want) {
			return VictimUnit{}, false
		}
	}
	for _, p := range u.Pods {
		u.Charge.AddCapped(p.Charge)
	}
	return u, len(u.Pods) > 0
}

// last returns the last pod that a set could give, of those that are wanted.
func (l *Ledger) last(st *setState, want func(*cluster.Pod) bool) []*cluster.Pod {
	for k := st.live - 1; k >= 0; k-- {
		if p := l.snap.Pod(st.held[k]); want == nil || want(p) {
			return []*cluster.Pod{p}
		}
	}
	return nil
}

// surplus returns pods that set i can give and stay satisfied, the last of them, or of them with one that is wanted; it is
// satisfied now. Where they are all that a set has, that is named, otherwise 0.
func (l *Ledger) surplus(g *GangState, i int32, want func(*cluster.Pod) bool) ([]*cluster.Pod, int32) {
	st := &g.sets[i]
	if g.Sets[i].Whole {
		return nil, 0
	}
	if g.Sets[i].Leaf {
		if g.Spares(i) {
			return l.last(st, want), 0
		}
		return nil, 0
	}
	order := l.SetOrder(g, i)
	for _, c := range slices.Backward(order) {
		if !g.SetSatisfied(c) {
			continue
		}
		if pods, set := l.surplus(g, c, want); len(pods) > 0 {
			return pods, set
		}
	}
	for _, whole := range []bool{false, true} { // what there is of a set that is not satisfied helps nobody
		if whole && st.satisfied <= st.need {
			break
		}
		for _, c := range slices.Backward(order) {
			if g.SetSatisfied(c) != whole {
				continue
			}
			pods := l.allLive(g, c)
			if g.needsAll(c, len(pods)) {
				continue
			}
			if len(pods) > 0 && (want == nil || slices.ContainsFunc(pods, want)) {
				return pods, c
			}
		}
	}
	return nil, 0
}

// Includes says whether the unit is all that is left of a gang, or of a set, that the other is of: of what the other gives, only so
// much can stay as can run without it.
func (u *VictimUnit) Includes(o *VictimUnit) bool {
	return u.Gang == o.Gang && (u.BelowMinimum || u.Set != 0 && len(o.Pods) > 0 &&
		!slices.ContainsFunc(o.Pods, func(p *cluster.Pod) bool { return p.Set == cluster.None || !u.Gang.below(p.Set, u.Set) }))
}

func (l *Ledger) allLive(g *GangState, i int32) []*cluster.Pod {
	if g.Sets[i].Leaf {
		return l.livePods(g, i)
	}
	var out []*cluster.Pod
	for _, c := range g.Sets[i].Children {
		out = append(out, l.allLive(g, c)...)
	}
	return out
}

// livePods returns the pods of a leaf that can be evicted, last ones first.
func (l *Ledger) livePods(g *GangState, i int32) []*cluster.Pod {
	st := &g.sets[i]
	out := make([]*cluster.Pod, 0, st.live)
	for k := st.live - 1; k >= 0; k-- {
		out = append(out, l.snap.Pod(st.held[k]))
	}
	return out
}

// LivePods returns all pods the gang could give, set by set, last ones of each first.
func (l *Ledger) LivePods(g *GangState) []*cluster.Pod {
	l.buildHeld(g)
	var out []*cluster.Pod
	for i := range g.sets {
		out = append(out, l.livePods(g, int32(i))...)
	}
	return out
}

// NextUnitOf is NextUnit with a pod that is wanted.
func (l *Ledger) NextUnitOf(g *GangState, want func(*cluster.Pod) bool) (VictimUnit, bool) {
	return l.nextUnit(g, nil, want)
}

// EachLive yields the pods that the gang could give, set by set.
func (l *Ledger) EachLive(g *GangState) iter.Seq[*cluster.Pod] {
	l.buildHeld(g)
	return func(yield func(*cluster.Pod) bool) {
		for i := range g.sets {
			for _, id := range g.sets[i].held[:g.sets[i].live] {
				if !yield(l.snap.Pod(id)) {
					return
				}
			}
		}
	}
}

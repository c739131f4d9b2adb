package solver

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// Prefix is the part of Solve that takes units in policy order until the gang fits: it returns those units, and changes
// nothing.
func Prefix(sv *Solver, g *ledger.GangState) ([]ledger.VictimUnit, bool) {
	pods, request := sv.s.Ledger.Next(g)
	q := &search{Solver: sv, g: g, pods: slices.Clone(pods), request: request.Clone(), st: sv.s.Ledger.Begin()}
	if v := q.s.Placer.CheckPods(q.pods); !v.Yes() {
		return nil, false
	}
	if q.cause == policy.Reclaim {
		if v := q.s.Rules.CheckReclaim(q.g, q.request); !v.Yes() {
			return nil, false
		}
	}
	q.w = q.everyone().walk(q.cause, q.g, q.request)
	ok := q.grow()
	var units []ledger.VictimUnit
	for _, t := range q.units {
		units = append(units, t.VictimUnit)
	}
	q.st.Discard()
	return units, ok
}

// Ask answers a gang's question afresh, and changes nothing; "" for a gang that asks for nothing.
func Ask(sv *Solver, g *ledger.GangState) (question string, v policy.Verdict, ok bool) {
	pods, request := sv.s.Ledger.Next(g)
	if len(pods) == 0 {
		return "", policy.Verdict{}, false
	}
	question = sv.question(g, sv.asks(g, pods))
	q := &search{Solver: sv, g: g, pods: slices.Clone(pods), request: request.Clone(), st: sv.s.Ledger.Begin()}
	a, ok := q.run()
	q.st.Discard()
	return question, a.Verdict, ok
}

// Picks hands out all units for a gang, and takes some of them back on the way, as which says of each moment: how many. At every
// moment it is said who gives next by the tournament, and by a look at everybody; it returns how often, and false where the two
// differ.
func Picks(s *engine.Session, cause policy.EvictionCause, g *ledger.GangState, which func(taken int) int) (int, bool) {
	sv := New(s, cause, nil)
	_, request := s.Ledger.Next(g)
	q := &search{Solver: sv, g: g, request: request.Clone(), st: s.Ledger.Begin()}
	defer q.st.Discard()
	w := q.everyone().walk(cause, g, q.request)
	for n := 0; ; n++ {
		l, v := w.pick()
		if slowLeaf, slowGang, _ := w.slowly(w.queues.top); slowLeaf != l || slowGang != v {
			return n, false
		}
		t, ok := w.next()
		if !ok {
			return n, true
		}
		q.evict(t)
		w.gave(&t)
		if back := min(which(len(q.units)), len(q.units)); back > 0 { // shares move otherwise than unit by unit
			again := slices.Clone(q.units[len(q.units)-back:])
			q.back(len(q.units) - back)
			for _, t := range again {
				q.evict(t)
			}
		}
	}
}

// slowly finds the leaf that gives next, below the given queues, with its victim, by a look at every one of them.
func (w *walk) slowly(bs []*branch) (*leaf, *ledger.GangState, *branch) {
	var bestLeaf *leaf
	var bestGang *ledger.GangState
	var best *branch
	for _, b := range bs {
		l, v := b.leaf, (*ledger.GangState)(nil)
		if l != nil {
			v = w.top(l)
		} else {
			l, v, _ = w.slowly(b.kids)
		}
		if v == nil {
			continue
		}
		if best != nil {
			mine, _ := w.unit(v)
			other, _ := w.unit(bestGang)
			if w.queues.s.Rules.CompareVictimQueues(b.queue, best.queue, mine.Charge, other.Charge) >= 0 {
				continue
			}
		}
		bestLeaf, bestGang, best = l, v, b
	}
	return bestLeaf, bestGang, best
}

// Hopeless says whether a look at the nodes suffices to tell that there is no room for the gang, and whether a search finds room.
// It changes nothing.
func Hopeless(sv *Solver, g *ledger.GangState) (known, found bool) {
	pods, request := sv.s.Ledger.Next(g)
	if len(pods) == 0 || !sv.may(g, pods, request).Yes() {
		return false, false
	}
	sv.most.wanted = true
	q := &search{Solver: sv, g: g, pods: slices.Clone(pods), request: request.Clone(), st: sv.s.Ledger.Begin()}
	if _, known = q.hopeless(); !known {
		_, found = q.run()
		q.st.Discard()
		return false, found
	}
	q.st.Discard()
	q = &search{Solver: sv, g: g, pods: slices.Clone(pods), request: request.Clone(), st: sv.s.Ledger.Begin()}
	_, found = q.run()
	q.st.Discard()
	return known, found
}

// Told answers a gang's question by a search of its own, without looking at what is known of others, and changes nothing: what it
// would be told, and whether there is room. like is whose answers it may share, "" for nobody's. known says whether its answer, short,
// can be told without a search.
func Told(sv *Solver, g *ledger.GangState) (like string, told recorder.Attempt, found bool, short recorder.Attempt, known bool) {
	pods, request := sv.s.Ledger.Next(g)
	if len(pods) == 0 || !sv.may(g, pods, request).Yes() {
		return "", recorder.Attempt{}, false, recorder.Attempt{}, false
	}
	like = sv.likeness(g, request, sv.asks(g, pods))
	if short, known = sv.nobody(g, pods, request); !known {
		var w *walk
		if w, short = sv.canvassed(g, pods, request); w != nil && w.nobodyOpen() {
			short.Action, short.Barred, known = "", w.givesNone(), true
		}
	}
	q := &search{Solver: sv, g: g, pods: slices.Clone(pods), request: request.Clone(), st: sv.s.Ledger.Begin()}
	told, found = q.run()
	q.st.Discard()
	return like, told, found, short, known
}

// Immovable says whether it is known, once taking in policy order has led nowhere, that nothing can be done with who may not be
// killed where they are, or elsewhere; and whether a search for who moves, or a choice of who goes, finds room. It changes nothing.
func Immovable(sv *Solver, g *ledger.GangState) (known, found bool) {
	pods, request := sv.s.Ledger.Next(g)
	if len(pods) == 0 || !sv.may(g, pods, request).Yes() {
		return false, false
	}
	q := &search{Solver: sv, g: g, pods: slices.Clone(pods), request: request.Clone(), st: sv.s.Ledger.Begin()}
	defer func() { q.st.Discard() }()
	q.w = q.everyone().walk(q.cause, q.g, q.request)
	q.asked = q.w.asked
	if q.grow() {
		return false, true
	}
	q.w.finish()
	refused, hinges := q.w.refused, q.w.hinges
	gate := q.s.Rules.CheckGates(q.g, q.request)
	if !refused {
		return false, false
	}
	q.back(0)
	kill := q.mortals()
	moves, choices := q.couldAllFit(kill), len(kill.gangs) > 0
	if found = q.withMoves(); found {
		return !moves, true
	}
	_, found = q.choose(hinges)
	if found = found || gate.Yes() && q.fromPlaces(false); found {
		return !choices, true
	}
	if gate.Yes() && q.fromPlaces(true) {
		return !moves, true
	}
	return !moves || !choices, false
}

// Sorted says whether every leaf that was looked at has its gangs in the order in which they give, those that gave all aside.
func Sorted(sv *Solver) bool {
	for _, l := range sv.everyone().byID { // order: each on its own
		live := slices.DeleteFunc(slices.Clone(l.gangs), func(g *ledger.GangState) bool { return sv.s.Ledger.Live(g) == 0 })
		if !slices.IsSortedFunc(live, func(a, b *ledger.GangState) int { return sv.s.Rules.CompareGangs(b, a) }) {
			return false
		}
	}
	return true
}

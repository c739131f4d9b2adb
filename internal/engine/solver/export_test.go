package solver

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/engine"
)

// Prefix is the part of Solve that takes units in policy order until the gang fits: it returns those units, and changes
// nothing.
func Prefix(sv *Solver, g *engine.GangState) ([]engine.Unit, bool) {
	pods, request := sv.s.Next(g)
	q := &search{Solver: sv, g: g, pods: slices.Clone(pods), request: request.Clone(), st: sv.s.Begin()}
	if v := q.s.CheckPods(q.pods); !v.Yes() {
		return nil, false
	}
	if q.right == engine.Reclaim {
		if v := q.s.CheckReclaim(q.g, q.request); !v.Yes() {
			return nil, false
		}
	}
	q.w = q.everyone().walk(q.right, q.g, q.request)
	ok := q.grow()
	var units []engine.Unit
	for _, t := range q.units {
		units = append(units, t.Unit)
	}
	q.st.Abandon()
	return units, ok
}

// Ask answers a gang's question afresh, and changes nothing; "" for a gang that asks for nothing.
func Ask(sv *Solver, g *engine.GangState) (question string, v engine.Verdict, ok bool) {
	pods, request := sv.s.Next(g)
	if len(pods) == 0 {
		return "", engine.Verdict{}, false
	}
	question = sv.question(g, pods)
	q := &search{Solver: sv, g: g, pods: slices.Clone(pods), request: request.Clone(), st: sv.s.Begin()}
	a, ok := q.run()
	q.st.Abandon()
	return question, a.Verdict, ok
}

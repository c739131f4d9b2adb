package enginetest

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/profile"
)

// TestBudgetKeepsTheOrder: searches that may cost nothing, so that every cycle answers one question, come to the decision that
// searches without a bound make first, for the gang that is first in order, or to none as those do; and each cycle gets further.
func TestBudgetKeepsTheOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, all := newLife(t), everything(t)
		for range rapid.IntRange(0, 3).Draw(t, "rounds") {
			_, plans := l.decide(t, all)
			l.happen(t, plans)
		}
		for _, action := range []string{"consolidation", "reclaim", "preempt"} {
			within := func(steps int) *engine.Engine {
				p := profile.BuiltIn()
				p.Actions, p.Settings.SearchSteps = []string{action}, steps
				e, err := engine.New(p, builtin.Registry())
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
			want, _, _ := firstDecision(t, within(0), l.store)
			bounded := within(1)
			for known := map[string]bool{}; ; {
				got, open, rests := firstDecision(t, bounded, l.store)
				if got != "" || open == 0 {
					if got != want {
						t.Fatalf("%s: within bounds\n%s\nwithout\n%s", action, got, want)
					}
					break
				}
				before := len(known)
				for question, rest := range rests { // order: each on its own
					known[question] = true
					l.store.RememberAnswer(question, rest)
				}
				if len(known) == before {
					t.Fatalf("%s: %d gangs are left, and nothing was found out that was not known", action, open)
				}
			}
		}
	})
}

// TestManyWhoMightGive: however many gangs run, a cycle answers about as many questions. What is done once in a cycle, such as to list
// who might give, uses up no question's steps.
func TestManyWhoMightGive(t *testing.T) {
	t.Parallel()
	p := profile.BuiltIn()
	p.Actions, p.Settings.SearchSteps = []string{"allocate", "reclaim"}, 12_000
	e, err := engine.New(p, builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	s := selecting(200).store() // 8,000 gangs run
	r := e.Run(context.Background(), s.Snapshot(cluster.UnixNano(benchNow*1e9)), func(engine.Plan) {})
	open := 0
	for i := range r.Trace.Gangs {
		if slices.ContainsFunc(r.Trace.Gangs[i].Tried, func(a recorder.Attempt) bool { return a.Verdict.Reason == policy.ReasonNextCycle }) {
			open++
		}
	}
	if answered := 200 - open; answered < 20 {
		t.Errorf("a cycle answers %d of 200 questions", answered)
	}
}

// firstDecision runs an engine and returns its first decision, how many gangs it left for the next run, and which answers rest.
func firstDecision(t *rapid.T, e *engine.Engine, s *cluster.Store) (decision string, open int, rests map[string]cluster.RememberedAnswer) {
	snap := s.Snapshot(noon)
	r := e.Run(context.Background(), snap, func(p engine.Plan) {
		if decision == "" {
			text, err := json.Marshal(&p.Bundles[0])
			if err != nil {
				t.Fatal(err)
			}
			decision = string(text)
		}
	})
	for i := range r.Trace.Gangs {
		if slices.ContainsFunc(r.Trace.Gangs[i].Tried, func(a recorder.Attempt) bool { return a.Verdict.Reason == policy.ReasonNextCycle }) {
			open++
		}
	}
	if open > 0 && r.Trace.WakeAt.After(snap.Now) {
		t.Fatalf("%d gangs are left, and no run is wanted now", open)
	}
	return decision, open, r.Answers
}

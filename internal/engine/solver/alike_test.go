package solver_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/engine/solver"
)

// sisters asks every waiting gang's question of a solver of its own.
type sisters struct {
	cause policy.EvictionCause
	see   func(g *ledger.GangState, like string, told recorder.Attempt, found bool, short recorder.Attempt, known bool)
}

// Run implements engine.Action.
func (w *sisters) Run(s *engine.Session) {
	for _, g := range s.Waiting() {
		like, told, found, short, known := solver.Told(solver.New(s, w.cause, nil), g)
		w.see(g, like, told, found, short, known)
	}
}

// sister lets queues that hold nothing have others beside them that are alike, or nearly, with gangs that ask for the same.
func sister(r *rand.Rand, w *exampleCluster) {
	for _, q := range slices.Clone(w.queues) {
		var waiting []crew
		holds := false
		for _, g := range w.gangs {
			if g.queue == q.name {
				holds = holds || slices.ContainsFunc(g.pods, func(p hand) bool { return p.on >= 0 })
				waiting = append(waiting, g)
			}
		}
		if holds || len(waiting) == 0 {
			continue
		}
		for _, suffix := range []string{"-b", "-c"}[:1+r.IntN(2)] {
			other := q
			if other.name += suffix; r.IntN(4) == 0 {
				other.quota = int64(r.IntN(4))
			}
			w.queues = append(w.queues, other)
			for _, g := range waiting {
				g.pods, g.queue = slices.Clone(g.pods), other.name
				w.gangs = append(w.gangs, g)
			}
		}
	}
}

// TestAlike: gangs of queues that are alike are told the same by searches of their own, so one search will do; and what is known
// without a search is what a search finds.
func TestAlike(t *testing.T) {
	t.Parallel()
	for _, cause := range []policy.EvictionCause{policy.Reclaim, policy.Preempt, policy.Consolidation} {
		t.Run(string(cause), func(t *testing.T) {
			t.Parallel()
			pairs, yes, shorts := 0, 0, 0
			for i := range cases(t, 2500) {
				r := rand.New(rand.NewPCG(*seed+78, uint64(i)))
				w := draw(r)
				sister(r, &w)
				type reply struct {
					by    string
					told  recorder.Attempt
					found bool
				}
				heard := map[string]reply{}
				act := &sisters{cause: cause, see: func(g *ledger.GangState, like string, told recorder.Attempt, found bool, short recorder.Attempt, known bool) {
					if known {
						if shorts++; found || cmp.Diff(told, short) != "" {
							t.Fatalf("town %d: %s is told without a search (found: %v, -searched +short)\n%s\n%s", i, g.Key, found, cmp.Diff(told, short), w.String())
						}
					}
					first, asked := heard[like]
					switch {
					case like == "":
					case !asked:
						heard[like] = reply{g.Key.Name, told, found}
					default:
						pairs++
						if found {
							yes++
						}
						if first.found != found || !found && cmp.Diff(first.told, told) != "" {
							t.Fatalf("town %d: %s (%v) and %s (%v) are alike\n%s\n%s", i, first.by, first.found, g.Key.Name, found, cmp.Diff(first.told, told), w.String())
						}
					}
				}}
				stage(t, act, "allocate").Run(context.Background(), w.store(past(r, &w)).Snapshot(noon), func(engine.Plan) {})
			}
			t.Logf("%s: %d pairs are alike, %d of them get room; %d are told without a search", cause, pairs, yes, shorts)
		})
	}
}

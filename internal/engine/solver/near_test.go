package solver_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/solver"
)

// TestHopeless: who is told after a look at the nodes that nothing can be done would not have been helped by a search.
func TestHopeless(t *testing.T) {
	t.Parallel()
	for _, cause := range []policy.EvictionCause{policy.Consolidation, policy.Reclaim, policy.Preempt} {
		t.Run(string(cause), func(t *testing.T) {
			t.Parallel()
			act := &doubters{ask: solver.Hopeless, cause: cause}
			e := stage(t, act, "allocate")
			for i := range cases(t, 1500) {
				s := cluster.NewStore(cluster.Options{})
				draw := drawRacks
				if cause == policy.Consolidation && i%2 == 1 { // on full nodes hardly ever is it a question of who moves
					draw = drawLoose
				}
				draw(rand.New(rand.NewPCG(*seed+99, uint64(i))), s)
				e.Run(context.Background(), s.Snapshot(noon), func(engine.Plan) {})
				if len(act.wrong) > 0 {
					t.Fatalf("draw %d: %v: hopeless, and there is a way", i, act.wrong)
				}
			}
			if act.known < 100 || act.found < 100 {
				t.Errorf("too little is compared: %d hopeless, %d found", act.known, act.found)
			}
			t.Logf("%s: %d hopeless, %d that get room, %d others", cause, act.known, act.found, act.other)
		})
	}
}

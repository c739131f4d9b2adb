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

// TestImmovable: where it is known that who may not be killed has no room beside the gang, or that nobody may be killed, no search
// for who moves, and no choice of who goes, finds a way.
func TestImmovable(t *testing.T) {
	t.Parallel()
	act := &doubters{ask: solver.Immovable, cause: policy.Reclaim}
	e := stage(t, act, "allocate")
	for i := range cases(t, 3000) {
		var s *cluster.Store
		if i%3 == 2 {
			s = cluster.NewStore(cluster.Options{})
			drawRacks(rand.New(rand.NewPCG(*seed+99, uint64(i))), s)
		} else {
			w := townOf(i)
			s = w.store(past(rand.New(rand.NewPCG(*seed+98, uint64(i))), &w))
		}
		e.Run(context.Background(), s.Snapshot(noon), func(engine.Plan) {})
		if len(act.wrong) > 0 {
			t.Fatalf("draw %d: %v: ruled out, and there is a way", i, act.wrong)
		}
	}
	if act.known == 0 || act.found == 0 {
		t.Errorf("nothing is compared: %d known, %d found", act.known, act.found)
	}
	t.Logf("%d ruled out, %d that get room, %d others", act.known, act.found, act.other)
}

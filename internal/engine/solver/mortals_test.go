package solver_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/solver"
	"github.com/muster-scheduler/muster/internal/profile"
)

// movers asks, for every waiting gang, whether moving others is ruled out, and tries it all the same.
type movers struct {
	known, found, other int
	wrong               []string
}

// Run implements engine.Action.
func (m *movers) Run(s *engine.Session) {
	for _, g := range s.Waiting() {
		switch known, found := solver.Immovable(solver.New(s, engine.Reclaim, nil), g); {
		case known && found:
			m.wrong = append(m.wrong, g.Key.Name)
		case known:
			m.known++
		case found:
			m.found++
		default:
			m.other++
		}
	}
}

// TestImmovable: where it is known that who may not be killed has no room beside the gang, or that nobody may be killed, no search
// for who moves, and no choice of who goes, finds a way.
func TestImmovable(t *testing.T) {
	t.Parallel()
	act := &movers{}
	p := profile.BuiltIn()
	p.Actions = []string{"allocate", "moving"}
	reg := builtin.Registry()
	reg.Actions["moving"] = func() engine.Action { return act }
	e, err := engine.New(p, reg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range cases(t, 3000) {
		s := cluster.NewStore(cluster.Options{})
		if i%3 == 2 {
			drawRacks(rand.New(rand.NewPCG(*seed+99, uint64(i))), s)
		} else {
			w := townOf(i)
			s.Apply(w.events()...)
			s.Snapshot(noon)
			past(rand.New(rand.NewPCG(*seed+98, uint64(i))), &w)(s)
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

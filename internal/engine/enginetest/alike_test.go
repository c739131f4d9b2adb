package enginetest

import (
	"context"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
)

// TestEqualQueues: what a thousand queues that are alike ask is searched for a few times, and all have their answer in one run.
func TestEqualQueues(t *testing.T) {
	t.Parallel()
	const n = 1000
	for name, c := range map[string]struct {
		make  *situation
		with  func(*engine.Profile)
		steps int
	}{
		"nobody has a right":             {manyQueues(n, 10, true), nil, 200},
		"two gangs of each":              {manyQueues(n, 10, true).again(n, 1), nil, 400},
		"each has one that runs":         {manyQueues(n, n/8, true), nil, 100},
		"who holds all is fixed":         {rightful(n, 10, false), nil, 100},
		"who holds all is young":         {rightful(n, 10, true), minimum("60s"), 400},
		"all within their quota":         {within(n, 10, 1000), nil, 2000},
		"each has one, may have two":     {within(n, n/8, 2000), nil, n + 10},
		"each has one, of its own shape": {within(n, n/8, 2000).mixed(n), nil, 3 * n}, // one more for each shape
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := profile.BuiltIn()
			if c.with != nil {
				c.with(&p)
			}
			e, err := engine.New(p, builtin.Registry())
			if err != nil {
				t.Fatal(err)
			}
			r := e.Run(context.Background(), c.make.store().Snapshot(cluster.UnixNano(benchNow*1e9)), func(pl engine.Plan) {
				t.Errorf("decided: %+v", pl)
			})
			if unanswered(&r.Trace) {
				t.Error("gangs are left for the next run")
			}
			for i := range r.Trace.Gangs {
				if g := &r.Trace.Gangs[i]; len(g.Tried) != 3 {
					t.Fatalf("%s is told %v", g.Gang, g.Tried)
				}
				for _, a := range r.Trace.Gangs[i].Tried {
					if len(a.Barred) > 2 {
						t.Fatalf("%s is told of %d barriers by %s", r.Trace.Gangs[i].Gang, len(a.Barred), a.Action)
					}
				}
			}
			for _, a := range r.Stats.Actions {
				if a.Searches > 2 {
					t.Errorf("%s: %d searches", a.Action, a.Searches)
				}
			}
			if r.Stats.Steps > c.steps {
				t.Errorf("%d steps, want at most %d", r.Stats.Steps, c.steps)
			}
		})
	}
}

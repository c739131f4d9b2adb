package scheduler

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
)

// others are engines whose news come from the test.
type others struct {
	mu      sync.Mutex
	settled bool
	next    *engine.Engine
	changed chan struct{}
}

func (o *others) Settled() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.settled
}

func (o *others) Changed() <-chan struct{} { return o.changed }

func (o *others) Take() *engine.Engine {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.next
	o.next = nil
	return e
}

// come has another engine decide about Volcano's gangs.
func (o *others) come(t *testing.T, actions []string, plugins ...engine.PluginUse) {
	t.Helper()
	p := profile.BuiltIn()
	p.Faces = []engine.Face{{Name: builtin.VolcanosFace, Actions: actions, Tiers: [][]engine.PluginUse{plugins}}}
	e, err := engine.New(p, builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	o.mu.Lock()
	o.settled, o.next = true, e
	o.mu.Unlock()
	o.changed <- struct{}{}
}

// TestEngines: the loop waits until it is known what to decide by, and decides by another engine from the next cycle on, which is at once. Who was admitted by one stays
// admitted with the next, whatever that says of those who come.
func TestEngines(t *testing.T) {
	t.Parallel()
	ask := func(name string, gpus int64) (out []cluster.Event) {
		for _, e := range gang(name, "p-"+name) {
			switch o := e.(type) {
			case cluster.GangState:
				o.Key.Face, o.Queue, o.Asks = builtin.VolcanosFace, "volcano:q", []cluster.Quantity{{Name: "gpu", Value: gpus * 1000}}
				e = o
			case cluster.PodState:
				o.Gang.Face = builtin.VolcanosFace
				e = o
			}
			out = append(out, e)
		}
		return out
	}
	synctest.Test(t, func(t *testing.T) {
		o := &others{changed: make(chan struct{}, 1)}
		w := begin(t, Options{Engines: o}, func(w *fixture) {
			w.happens(append(ask("old", 3), cluster.QueueState{Name: "volcano:q", UID: "v"})...)
		})
		w.pass(5 * time.Second)
		if n := w.runs(); n != 0 {
			t.Errorf("%d runs before it is known what to decide by", n)
		}
		step := func(want string) {
			t.Helper()
			w.pass(1500 * time.Millisecond)
			said := w.reports()
			if last := said[len(said)-1]; !strings.HasSuffix(last, want) {
				t.Errorf("said %q, want %q", last, want)
			}
		}
		o.come(t, []string{"enqueue"})
		step(" old:NoAllocate")
		w.expect("without allocate", &w.plans)
		o.come(t, []string{"enqueue"}, engine.PluginUse{Name: "overcommit"})
		w.happens(ask("new", 3)...)
		step(" old:NoAllocate new:Overcommitted")
		w.expect("with votes", &w.plans)
		runs := w.runs()
		w.pass(time.Minute)
		if n := w.runs(); n != runs {
			t.Errorf("%d runs of a cluster at rest", n-runs)
		}
		o.come(t, []string{"enqueue", "allocate"}, engine.PluginUse{Name: "overcommit"})
		step(" new:Overcommitted")
		w.expect("with allocate", &w.plans, "68.00 p-old")
	})
}

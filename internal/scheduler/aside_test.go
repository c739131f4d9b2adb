package scheduler

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// mines panics when a gang is tried whose name begins so.
type mines struct{ ready string }

// CheckQueue implements policy.QueueGate.
func (m mines) CheckQueue(g *ledger.GangState, _ cluster.Resources, _ bool) engine.Verdict {
	if strings.HasPrefix(g.Key.Name, m.ready) {
		panic("a mine")
	}
	return engine.Verdict{}
}

// TestPanicSetsAGangAside: a gang that brings the engine down is not tried again, and is told why; all others are scheduled; when its
// specification changes it is tried again.
func TestPanicSetsAGangAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{}, func(w *fixture) {
			w.plugin = []policy.Factory{policy.Is(mines{"mine"})}
			w.happens(gang("mine-1", "m1")...)
			w.happens(gang("mine-2", "m2")...)
			w.happens(gang("good", "p")...)
		})
		w.pass(2 * time.Second)
		if len(w.plans) != 1 || !strings.HasSuffix(w.plans[0], " p") {
			t.Errorf("decided %q, want the good gang's pod alone", w.plans)
		}
		last := w.reports()
		if len(last) == 0 || !strings.Contains(last[len(last)-1], "mine-1:"+policy.ReasonGangInvalid.Key) || !strings.Contains(last[len(last)-1], "mine-2:"+policy.ReasonGangInvalid.Key) {
			t.Errorf("told %q, want both that they are set aside", last)
		}
		if got := counter(w.metrics.aside); got != 2 {
			t.Errorf("%v gangs were set aside, want 2", got)
		}
		// A change of its status is none of its specification.
		again := gang("mine-1")[0].(cluster.GangState)
		again.Sets[0].Min = 1
		w.happens(again)
		w.pass(2 * time.Second)
		if got := counter(w.metrics.aside); got != 2 {
			t.Errorf("tried again without a change: %v", got)
		}
		again.Generation = 7
		w.happens(again)
		w.pass(2 * time.Second)
		if got := counter(w.metrics.aside); got != 3 {
			t.Errorf("not tried again after a change: %v", got)
		}
	})
}

// TestPanicsAreBounded: panics that no gang explains, or that do not end, end the process as they would without a boundary.
func TestPanicsAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gangs  int
		plugin policy.Factory
		dies   bool
	}{
		"few":      {asideMost, policy.Is(mines{"mine"}), false},
		"many":     {asideMost + 1, policy.Is(mines{"mine"}), true},
		"nobody's": {1, policy.Opens(opening), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, Options{Period: time.Hour}, func(w *fixture) { w.synced.Store(false); w.plugin = []policy.Factory{c.plugin} })
			w.Drain(w.loop.store)
			for i := range c.gangs {
				id := string(rune('a' + i))
				for _, e := range gang("mine-"+id, id) {
					w.loop.store.Apply(e)
				}
			}
			died := func() (died bool) {
				defer func() { died = recover() != nil }()
				for range c.gangs + 1 {
					if w.loop.decide(context.Background(), &cycle{log: logr.Discard()}, time.Unix(0, 1)) {
						return
					}
				}
				return
			}()
			if died != c.dies {
				t.Errorf("%s: died %t", name, died)
			}
		})
	}
}

// opening panics before any gang is tried, in every run.
func opening(*policy.View) struct{} { panic("at the start") }

// TestLoopIsWatched: a cycle that does not end is noticed; a loop that waits for writers, or for something to do, is not.
func TestLoopIsWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dog := app.NewWatchdog(time.Minute)
		stuck := make(chan struct{})
		w := begin(t, Options{Watch: func(what string) Work { return dog.Begin(what) }, Period: 10 * time.Minute}, func(w *fixture) {
			w.slow = true
			w.plugin = []policy.Factory{policy.Is(holding{stuck})}
		})
		w.pass(time.Hour)
		if err := dog.Alive(); err != nil {
			t.Errorf("nothing to do: %v", err)
		}
		w.happens(gang("g", "p")...)
		w.pass(5 * time.Minute)
		if err := dog.Alive(); err != nil {
			t.Errorf("it waits for a writer: %v", err)
		}
		w.write()
		w.pass(time.Second)
		w.happens(gang("hold", "h")...)
		w.pass(2 * time.Minute)
		if err := dog.Alive(); err == nil || !strings.Contains(err.Error(), "scheduler") {
			t.Errorf("it hangs: %v", err)
		}
		close(stuck)
		w.pass(time.Second)
		if err := dog.Alive(); err != nil {
			t.Errorf("it got on: %v", err)
		}
	})
}

// holding does not answer about a gang.
type holding struct{ until chan struct{} }

// CheckQueue implements policy.QueueGate.
func (h holding) CheckQueue(g *ledger.GangState, _ cluster.Resources, _ bool) engine.Verdict {
	if g.Key == kai.GangKey("a", "hold") {
		<-h.until
	}
	return engine.Verdict{}
}

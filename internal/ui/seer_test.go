package ui

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/cycles"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/journal"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/see"
	"github.com/muster-scheduler/muster/internal/sim"
)

// TestSeer: at a tick it is told when who waits starts, and the journal has it; once he has started, it has what became of it; the next process knows what this one knew. The clock is the test's.
func TestSeer(t *testing.T) {
	t.Parallel()
	e, err := engine.New(profile.BuiltIn(), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	w := sim.NewCluster(sim.Options{Engine: e, Start: noon})
	if err := w.AddNode(sim.Node{Name: "n", Allocatable: sim.Room(8000, 128_000, 1<<40, 250)}); err != nil {
		t.Fatal(err)
	}
	w.Store.Apply(cluster.QueueState{Name: "q", UID: "q", Created: w.Now(), Quota: []cluster.Quantity{{Name: "gpu", Value: 8000}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}}})
	for _, name := range []string{"first", "second"} {
		if err := w.Submit(sim.Gang{Name: name, Queue: "q", Pods: 1, Requests: sim.Room(8000, 1000, 1<<30, 1), Priority: 50, Duration: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	works := map[cluster.Key]see.Work{sim.Key("first"): {Expected: time.Hour}, sim.Key("second"): {Expected: time.Hour}}
	live := func(d time.Duration) *see.Cycle {
		for end := w.Now().Add(d); w.Now().Before(end); {
			to := cluster.Earliest(end, cluster.Latest(w.Now().Add(time.Second), w.Next()))
			if w.Due() {
				to = w.Now().Add(time.Second)
			}
			if err := w.Advance(to); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Decide(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return &see.Cycle{Cluster: "c", Works: works, Registry: builtin.Registry(), Case: &replay.Case{Profile: profile.BuiltIn(), Image: w.Store.Snapshot(w.Now()).Image()}}
	}
	clock := func() time.Time { return w.Now().Time() }
	j, err := journal.Open(journal.Options{Folder: t.TempDir(), Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	s := newSeer("", j, clock, logr.Discard())
	s.forecast(t.Context())
	if s.outlook.Load() != nil {
		t.Error("something is forecast of nothing")
	}
	var passed *see.Outlook // what the scheduler was told
	s.tell = func(_ context.Context, text []byte) (err error) {
		passed, err = see.ReadOutlook(text)
		return cmp.Or(err, cycles.ErrUnwanted)
	}
	c := live(10 * time.Second)
	s.learn(c)
	s.forecast(t.Context())
	o := s.outlook.Load()
	if passed == nil || o == nil || !passed.At.Equal(o.At) || o.Text(&o.Gangs[0], time.UTC) != passed.Text(&passed.Gangs[0], time.UTC) {
		t.Errorf("the scheduler is told %+v", passed)
	}
	if o == nil || len(o.Gangs) != 1 || o.Gangs[0].Word != see.Between || o.Gangs[0].Awaits == nil || *o.Gangs[0].Awaits != sim.Key("first") {
		t.Fatalf("outlook %+v", o)
	}
	// Within a scope: who may read the namespace is told whose end it waits for, and nobody else.
	all, none := c.Scope(func(string) bool { return true }), c.Scope(func(string) bool { return false })
	if x := o.Expect(sim.Key("second"), all); x == nil || !strings.Contains(x.Text, "first ends") {
		t.Errorf("%+v", x)
	}
	if x := o.Expect(sim.Key("second"), none); x == nil || strings.Contains(fmt.Sprintf("%+v", x), "first") || !strings.Contains(x.Text, "a gang of queue q ends") {
		t.Errorf("%+v", x)
	}
	if n := len(o.Within(none, func(cluster.Key) bool { return true }).Gangs); n != 0 {
		t.Errorf("%d gangs are told of", n)
	}
	s.learn(live(70 * time.Minute))
	var told, came []journal.Start
	if err := j.Each(t.Context(), time.Time{}, func(e *journal.Entry) bool {
		switch e.Kind {
		case journal.Told:
			told = append(told, e.Starts...)
		case journal.Came:
			came = append(came, e.Starts...)
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || len(came) != 1 || told[0].Gang != sim.Key("second") || came[0].Gang != told[0].Gang || came[0].Of != 1 || came[0].Held != 1 || came[0].Started.Before(noon.Add(time.Hour)) || !came[0].Low.Equal(told[0].Low) {
		t.Errorf("told %+v, came %+v", told, came)
	}
	s.forecast(t.Context())
	next := newSeer("", j, clock, logr.Discard())
	if a, b := len(next.history.Runs), len(s.history.Runs); a != b || a == 0 || len(next.history.Records) == 0 {
		t.Errorf("the next process knows %d runs, this one %d", a, b)
	}
}

// TestFollowingKeeps: the journal has the cycles of a scheduler that bind, as they come by its stream, and each can be decided again; questions are answered from the same looks.
func TestFollowingKeeps(t *testing.T) {
	t.Parallel()
	place, decide := scheduler(t)
	j, err := journal.Open(journal.Options{Folder: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	f := &Following{
		Shards: func(context.Context) ([]string, error) { return []string{""}, nil },
		Find:   func(context.Context, string) (cycles.Place, error) { return place, nil },
		Token:  func() (string, error) { return "t", nil }, Registry: func(bool) engine.Registry { return builtin.Registry() }, Log: logr.Discard(), Journal: j, ForecastEvery: time.Hour,
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(3 * time.Minute)
	until := func(what string, so func() bool) {
		t.Helper()
		for !so() {
			select {
			case <-tick.C:
			case <-limit:
				t.Fatalf("it does not come to be so: %s", what)
			}
		}
	}
	kept := func() (out []*journal.Entry) {
		if err := j.Each(t.Context(), time.Time{}, func(e *journal.Entry) bool {
			if e.Kind == journal.Cycle && len(e.Decisions) > 0 {
				out = append(out, e)
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for n := range 5 {
		decide(false)
		until(fmt.Sprint(n+1, " cycles are kept"), func() bool { return len(kept()) == n+1 })
	}
	until("questions are answered", func() bool { c, _, err := f.Look(t.Context(), ""); return err == nil && c.Own() })
	for _, e := range kept() {
		c, _, _, err := j.Case(t.Context(), e.Number)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := c.Run(t.Context(), builtin.Registry()); err != nil || !out.Same {
			t.Errorf("cycle %d is decided otherwise: %v", e.Number, err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

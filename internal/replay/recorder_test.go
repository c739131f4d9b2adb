package replay_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
)

// TestKeptCycles: a cycle that only promises again what the one before promised has decided nothing, and is not kept in the place of one
// that has; what each did is counted, promises too.
func TestKeptCycles(t *testing.T) {
	t.Parallel()
	r, err := replay.NewRecorder("v", profile.BuiltIn(), false, 10)
	if err != nil {
		t.Fatal(err)
	}
	plan := func(intents ...engine.Intent) []engine.Plan {
		return []engine.Plan{{Action: "reclaim", Bundles: []engine.Bundle{{Intents: intents}}}}
	}
	evict := engine.Intent{Verb: engine.Evict, UID: "v", Node: "n"}
	promise, elsewhere := engine.Intent{Verb: engine.Nominate, UID: "p", Node: "n"}, engine.Intent{Verb: engine.Nominate, UID: "p", Node: "m"}
	bind := engine.Intent{Verb: engine.Bind, UID: "p", Node: "m"}
	snap := smallCluster().Image.Store(cluster.Options{}).Snapshot(cluster.UnixNano(1))
	for _, plans := range [][]engine.Plan{
		plan(evict, promise),
		plan(promise), plan(promise), // again and again
		plan(elsewhere),
		plan(elsewhere),
		nil,
		plan(elsewhere), // anew
		plan(bind),
		nil,
	} {
		r.Decided(snap, plans)
	}
	var got [][4]int
	for _, c := range r.Cycles() {
		got = append(got, [4]int{int(c.Cycle), c.Binds, c.Evictions, c.Promises})
	}
	want := [][4]int{{1, 0, 1, 1}, {4, 0, 0, 1}, {7, 0, 0, 1}, {8, 1, 0, 0}, {9, 0, 0, 0}} // the last one is the latest
	if !slices.Equal(got, want) {
		t.Errorf("kept %v, want %v", got, want)
	}
}

// TestOtherProfile: a scheduler may decide by another profile from one cycle to the next. Each cycle that is kept, and each that a reader follows, says by which it was
// decided, and comes to the same plans again.
func TestOtherProfile(t *testing.T) {
	t.Parallel()
	idle := profile.BuiltIn()
	idle.Actions = nil
	r, err := replay.NewRecorder("v", idle, false, 10)
	if err != nil {
		t.Fatal(err)
	}
	s := replay.NewStream("v", idle, false)
	f := follow(t, s)
	store := smallCluster().Image.Store(cluster.Options{})
	e, err := engine.New(idle, builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	d := engine.NewDriver(e, store)
	var kept replay.Follower
	for i, want := range []struct{ actions, plans int }{{0, 0}, {0, 0}, {5, 1}, {5, 0}} {
		if i == 2 {
			busy, err := engine.New(profile.BuiltIn(), builtin.Registry())
			if err != nil {
				t.Fatal(err)
			}
			d.Use(busy)
			if !d.Due(cluster.UnixNano(1)) {
				t.Error("another engine, and no cycle is due")
			}
			r.Use(busy.Profile())
			s.Use(busy.Profile())
			if got := len(r.Profile().Actions); got != 0 {
				t.Errorf("the latest cycle was decided by %d actions", got)
			}
		}
		snap, plans, _ := d.Cycle(t.Context(), cluster.UnixNano(1))
		r.Decided(snap, plans)
		s.Decided(snap, plans)
		f.take()
		var text bytes.Buffer
		if _, err := f.Condensed(&text, false); err != nil {
			t.Fatal(err)
		}
		if _, err := kept.Take(text.Bytes()); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/snapshot", nil))
		file, err := replay.Read(bytes.NewReader(w.Body.Bytes()), replay.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if _, p := r.LatestBy(); len(p.Actions) != want.actions {
			t.Errorf("cycle %d: the recorder says %v", i+1, p.Actions)
		}
		for name, c := range map[string]*replay.Case{"kept": file, "followed": f.Case(), "condensed": kept.Case()} { // order: each on its own
			out, err := c.Run(t.Context(), builtin.Registry())
			if err != nil || !out.Same || len(c.Plans) != want.plans || len(c.Profile.Actions) != want.actions {
				t.Errorf("cycle %d, %s: same %v, %d plans, actions %v, %v", i+1, name, out.Same, len(c.Plans), c.Profile.Actions, err)
			}
		}
	}
}

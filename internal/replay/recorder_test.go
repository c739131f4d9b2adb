package replay_test

import (
	"slices"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
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

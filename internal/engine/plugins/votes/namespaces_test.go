package votes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/plugins/votes"
	"github.com/muster-scheduler/muster/internal/profile"
)

// TestNamespaceQuota: reject where minResources, what is used, and what was admitted in the cycle, exceed any quota's hard amount of something; the sums are worked out by hand. Gangs
// ask in the order of their names, and each has a place.
func TestNamespaceQuota(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct { // order: each for itself
		quotas   string // NAMESPACE/NAME:DIM=HARD-USED
		gangs    string // NAMESPACE:ASKS cpu
		admitted string
	}{
		"no quota":                      {"", "a:9000 a:9000", "0 1"},
		"exactly":                       {"a/q:cpu=5-2", "a:3", "0"},
		"one more":                      {"a/q:cpu=5-2", "a:4", ""},
		"any of several":                {"a/q:cpu=9-2 a/r:cpu=5-2", "a:4", ""},
		"another namespace":             {"b/q:cpu=5-2", "a:4", "0"},
		"admitted in the cycle":         {"a/q:cpu=7-2", "a:3 a:3 a:2", "0 2"},
		"admitted elsewhere":            {"a/q:cpu=7-2 b/q:cpu=9-0", "b:3 a:3 a:2", "0 1 2"},
		"of something else":             {"a/q:memory=1-1", "a:3", "0"},
		"more used than there may be":   {"a/q:cpu=1-2", "a:1", ""},
		"who asks for nothing is asked": {"a/q:cpu=1-2", "a:0", "0"},
	} {
		store := cluster.NewStore(cluster.Options{})
		store.Apply(
			cluster.NodeState{Name: "n", UID: "n", Allocatable: []cluster.Quantity{{Name: "cpu", Value: 100_000}, {Name: "memory", Value: 100}, {Name: "pods", Value: 100}}},
			cluster.QueueState{Name: "volcano:q", UID: "q", Weight: []cluster.Quantity{{Name: "cpu", Value: 1000}}},
		)
		for text := range strings.FieldsSeq(c.quotas) {
			key, bound, _ := strings.Cut(text, ":")
			dim, amounts, _ := strings.Cut(bound, "=")
			b := cluster.QuotaBound{Dim: dim}
			if _, err := fmt.Sscanf(amounts, "%d-%d", &b.Hard, &b.Used); err != nil {
				t.Fatal(err)
			}
			store.Apply(cluster.ObjectState{Kind: cluster.ResourceQuotas, Key: key, Object: &cluster.SpaceQuota{Bounds: []cluster.QuotaBound{b}}})
		}
		for i, text := range strings.Fields(c.gangs) {
			space, asks, _ := strings.Cut(text, ":")
			key := cluster.Key{Face: "volcano", Namespace: space, Name: fmt.Sprint(i)}
			g := cluster.GangState{Key: key, UID: key.Name, Queue: "volcano:q", Preemptible: true, Sets: cluster.FlatTree(1), Created: cluster.UnixNano(int64(1 + i)), Asks: []cluster.Quantity{}}
			ask := cluster.Quantity{Name: "cpu"}
			if _, err := fmt.Sscan(asks, &ask.Value); err != nil {
				t.Fatal(err)
			}
			g.Asks = append(g.Asks, ask)
			store.Apply(g, cluster.PodState{UID: key.Name, Namespace: space, Name: key.Name, Ours: true, Gang: key, Requests: []cluster.Quantity{{Name: "cpu", Value: 1}, {Name: "pods", Value: 1}}})
		}
		p := profile.BuiltIn()
		p.Faces = []engine.Face{{Name: "volcano", Actions: []string{"enqueue", "allocate"}, Tiers: [][]engine.PluginUse{{{Name: votes.NamespaceQuota}}}}}
		e, err := engine.New(p, builtin.Registry())
		if err != nil {
			t.Fatal(err)
		}
		placed := map[string]bool{}
		e.Run(context.Background(), store.Snapshot(cluster.UnixNano(1000)), func(plan engine.Plan) {
			for _, b := range plan.Bundles {
				for _, in := range b.Intents {
					placed[in.Pod] = true
				}
			}
		})
		var admitted []string
		for i := range strings.Fields(c.gangs) {
			if placed[fmt.Sprint(i)] {
				admitted = append(admitted, fmt.Sprint(i))
			}
		}
		if got := strings.Join(admitted, " "); got != c.admitted {
			t.Errorf("%s: admitted %q, want %q", name, got, c.admitted)
		}
	}
}

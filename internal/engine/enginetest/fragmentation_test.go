package enginetest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
)

// TestFragmentationDescends: wherever the plugin puts a pod, no other node or device would have left less unusable, as counted
// from nothing on the cluster with the pod there.
func TestFragmentationDescends(t *testing.T) {
	t.Parallel()
	shapes := []cluster.PodState{
		{Requests: []cluster.Quantity{{Name: "cpu", Value: 2000}, {Name: "pods", Value: 1}}},
		{Requests: []cluster.Quantity{{Name: "gpu", Value: 1000}, {Name: "cpu", Value: 2000}, {Name: "pods", Value: 1}}},
		{Requests: []cluster.Quantity{{Name: "gpu", Value: 2000}, {Name: "cpu", Value: 1000}, {Name: "pods", Value: 1}}},
	}
	for _, part := range []cluster.Portion{2, 3, 5, 7} {
		shapes = append(shapes, cluster.PodState{
			Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "pods", Value: 1}},
			Spec:     &cluster.ClassSpec{Share: cluster.Share{Devices: 1, Portion: part * cluster.WholePortion / 10}},
		})
	}
	const nodes = 3
	rapid.Check(t, func(t *rapid.T) {
		e, err := engine.New(engine.Profile{
			Actions: []string{"allocate"}, Tiers: [][]engine.PluginUse{{{Name: "predicates"}, {Name: "fragmentation"}}}, Settings: engine.DefaultSettings(),
		}, builtin.Registry())
		if err != nil {
			t.Fatal(err)
		}
		var there []cluster.PodState
		with := func(more ...cluster.PodState) *cluster.Store {
			s := cluster.NewStore(cluster.Options{})
			for i := range nodes {
				name := fmt.Sprint("n", i)
				s.Apply(cluster.NodeState{Name: name, UID: name, Allocatable: []cluster.Quantity{{Name: "gpu", Value: 4000}, {Name: "cpu", Value: 12_000}, {Name: "pods", Value: 40}}})
			}
			s.Apply(queue("q", "", cluster.Unlimited))
			for _, p := range slices.Concat(there, more) {
				s.Apply(cluster.GangState{Key: p.Gang, UID: p.UID, Queue: "q", Sets: cluster.FlatTree(1)}, p)
			}
			return s
		}
		for i := range rapid.IntRange(1, 14).Draw(t, "pods") {
			p := shapes[rapid.IntRange(0, len(shapes)-1).Draw(t, "shape")]
			p.UID, p.Name, p.Namespace, p.Ours = fmt.Sprint("p", i), fmt.Sprint("p", i), "ns", true
			p.Gang = cluster.Key{Face: "kai", Namespace: "ns", Name: p.Name}
			var intent *engine.Intent
			e.Run(context.Background(), with(p).Snapshot(cluster.UnixNano(1)), func(pl engine.Plan) { intent = &pl.Bundles[0].Intents[0] })
			if intent == nil {
				return // full
			}
			p.Phase = cluster.Running
			unusable := func(node string, groups []string) (int64, bool) {
				q := p
				q.NodeName, q.Groups = node, groups
				snap := with(q).Snapshot(cluster.UnixNano(1))
				for d, x := range snap.NodeByName(node).Idle() {
					if x < 0 && d != cluster.Slots {
						return 0, false
					}
				}
				for _, d := range snap.NodeByName(node).Devices {
					if d.Used > 100 {
						return 0, false
					}
				}
				return (&engine.Engine{}).Fragmentation(snap).Unusable, true
			}
			chosen, ok := unusable(intent.Node, intent.Groups)
			if !ok {
				t.Fatalf("p%d does not fit on %s %v", i, intent.Node, intent.Groups)
			}
			for n := range nodes {
				node := fmt.Sprint("n", n)
				choices := [][]string{nil}
				if p.Spec != nil {
					choices = [][]string{{"new"}}
					for _, d := range with().Snapshot(cluster.UnixNano(1)).NodeByName(node).Devices {
						choices = append(choices, []string{d.Group})
					}
				}
				for _, groups := range choices {
					if other, ok := unusable(node, groups); ok && other+2 < chosen {
						t.Fatalf("p%d went to %s %v, which leaves %d milli-GPU unusable; %s %v would leave %d", i, intent.Node, intent.Groups, chosen, node, groups, other)
					}
				}
			}
			p.NodeName, p.Groups = intent.Node, intent.Groups
			there = append(there, p)
		}
	})
}

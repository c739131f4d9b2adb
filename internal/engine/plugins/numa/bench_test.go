package numa_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
)

// BenchmarkGang places a gang of 1,024 guaranteed pods on 5,000 nodes of two zones, half of which are taken.
func BenchmarkGang(b *testing.B) {
	for _, with := range []bool{false, true} {
		b.Run(map[bool]string{false: "without", true: "with"}[with], func(b *testing.B) {
			p := profile(nil)
			p.Actions = []string{"allocate"}
			if !with {
				p.Tiers[0] = p.Tiers[0][:len(p.Tiers[0])-1]
			}
			e, err := engine.New(p, builtin.Registry())
			if err != nil {
				b.Fatal(err)
			}
			s := cluster.NewStore(cluster.Options{})
			amounts := func(cpu, gpu int64) []cluster.Quantity {
				return []cluster.Quantity{{Name: "cpu", Value: cpu * 1000}, {Name: "gpu", Value: gpu * 1000}}
			}
			s.Apply(cluster.QueueState{Name: "q", UID: "q", Quota: []cluster.Quantity{{Name: "gpu", Value: 1e9}, {Name: "cpu", Value: 1e9}, {Name: "memory", Value: 1e9}}})
			one := func(name string) []cluster.Set {
				return []cluster.Set{{Parent: cluster.None, Children: []int32{1}, Min: 1}, {Name: name, Parent: 0, Leaf: true, Min: 1}}
			}
			key := cluster.Key{Face: "kai", Namespace: "ns", Name: "g"}
			sets := one("default")
			sets[1].Min = 1024
			s.Apply(cluster.GangState{Key: key, UID: "g", Queue: "q", Sets: sets})
			for n := range 5000 {
				name := fmt.Sprint("n", n)
				s.Apply(
					cluster.NodeState{Name: name, UID: name, Allocatable: append(amounts(128, 8), cluster.Quantity{Name: "pods", Value: 110}, cluster.Quantity{Name: "memory", Value: 100_000})},
					cluster.ObjectState{Kind: cluster.NodeResourceTopologies, Key: name, Object: &cluster.NodeZones{Policy: cluster.ZonesSingle, Scope: cluster.PerContainer, Zones: []cluster.Zone{
						{Name: "node-0", Allocatable: amounts(64, 4)}, {Name: "node-1", Allocatable: amounts(64, 4)},
					}}},
					cluster.PodState{UID: "r" + name, Namespace: "ns", Name: "r" + name, Phase: cluster.Running, NodeName: name, Requests: append(amounts(32, 4), cluster.Quantity{Name: "pods", Value: 1}), Zones: []cluster.ZoneShare{{Zone: "node-0", Amounts: amounts(32, 4)}}},
				)
			}
			for k := range 1024 {
				name := fmt.Sprint("g-", k)
				s.Apply(cluster.PodState{UID: name, Namespace: "ns", Name: name, Gang: key, SetName: "default", Ours: true, Requests: append(amounts(16, 2), cluster.Quantity{Name: "pods", Value: 1}), Spec: &cluster.ClassSpec{Align: []cluster.Need{{Amounts: amounts(16, 2)}}}})
			}
			snap := s.Snapshot(cluster.UnixNano(1))
			b.ReportAllocs()
			for b.Loop() {
				placed := 0
				e.Run(context.Background(), snap, func(p engine.Plan) { placed += p.Binds() })
				if placed != 1024 {
					b.Fatalf("placed %d", placed)
				}
			}
		})
	}
}

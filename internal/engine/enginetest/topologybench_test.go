package enginetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// dc is a plant of 5,000 nodes of 8 GPUs: 8 blocks of 25 racks of 25 nodes.
func dc(s *cluster.Store) {
	s.Apply(cluster.TopologyState{Name: "dc", Levels: []cluster.Level{{Label: "block"}, {Label: "rack"}}})
	for i := range 5000 {
		s.Apply(cluster.NodeState{
			Name: nodeName(i), UID: nodeName(i), Labels: map[string]string{"block": fmt.Sprint(i / 625), "rack": fmt.Sprint(i / 25)},
			Allocatable: []cluster.Quantity{{Name: "cpu", Value: 128000}, {Name: "memory", Value: 1 << 40}, {Name: "gpu", Value: 8000}, {Name: "pods", Value: 110}},
		})
	}
	s.Apply(queue("root", "", cluster.Unlimited), queue("team", "root", cluster.Unlimited))
}

func nearby(s *cluster.Store, name string, sets []cluster.Set, pods int, gpu int64, set func(i int) string) {
	key := cluster.Key{Face: "kai", Namespace: "ns", Name: name}
	s.Apply(cluster.GangState{Key: key, UID: name, Queue: "team", Priority: 50, Preemptible: true, Sets: sets})
	for i := range pods {
		pod := fmt.Sprintf("%s-%d", name, i)
		s.Apply(cluster.PodState{
			UID: pod, Namespace: "ns", Name: pod, Gang: key, SetName: set(i), Ours: true,
			Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "memory", Value: 1 << 30}, {Name: "gpu", Value: gpu * 1000}, {Name: "pods", Value: 1}},
		})
	}
}

func anySet(int) string { return "" }

// BenchmarkTopologyGang places a gang of 4,096 pods with a required block and a preferred rack on 5,000 nodes, alone, in 64
// sets that each prefer a rack, and from racks that are each taken in part.
func BenchmarkTopologyGang(b *testing.B) {
	near := cluster.Constraint{Topology: "dc", Required: "block", Preferred: "rack"}
	for name, fill := range map[string]func(s *cluster.Store){ // order: benchmarks do not care
		"flat": func(s *cluster.Store) {
			sets := cluster.FlatTree(4096)
			sets[0].Near = near
			nearby(s, "train", sets, 4096, 1, anySet)
		},
		"sets": func(s *cluster.Store) {
			sets := []cluster.Set{{Parent: cluster.None, Min: 64, Near: near}}
			for i := range int32(64) {
				sets[0].Children = append(sets[0].Children, i+1)
				sets = append(sets, cluster.Set{Name: fmt.Sprint("set-", i), Leaf: true, Min: 64, Near: cluster.Constraint{Topology: "dc", Preferred: "rack"}})
			}
			nearby(s, "train", sets, 4096, 1, func(i int) string { return fmt.Sprint("set-", i/64) })
		},
		"used": func(s *cluster.Store) {
			for i := range 5000 {
				if i%5 == 0 {
					name := fmt.Sprintf("used-%d", i)
					s.Apply(cluster.PodState{
						UID: name, Namespace: "ns", Name: name, Phase: cluster.Running, NodeName: nodeName(i),
						Requests: []cluster.Quantity{{Name: "gpu", Value: int64(1+i%7) * 1000}, {Name: "pods", Value: 1}},
					})
				}
			}
			sets := cluster.FlatTree(4096)
			sets[0].Near = near
			nearby(s, "train", sets, 4096, 1, anySet)
		},
	} {
		b.Run(name, func(b *testing.B) {
			s := cluster.NewStore(cluster.Options{})
			dc(s)
			fill(s)
			snap := s.Snapshot(cluster.UnixNano(1))
			e := builtIn(b)
			b.ReportAllocs()
			for b.Loop() {
				blocks := map[string]bool{}
				binds := 0
				e.Run(context.Background(), snap, func(pl engine.Plan) {
					for i := range pl.Bundles {
						for _, in := range pl.Bundles[i].Intents {
							binds++
							blocks[snap.NodeByName(in.Node).Labels["block"]] = true
						}
					}
				})
				if binds != 4096 || len(blocks) != 1 {
					b.Fatalf("%d of 4096 bound, in %d blocks", binds, len(blocks))
				}
			}
		})
	}
}

// BenchmarkTopologyCannot gives 1,000 waiting gangs of 50 shapes their verdicts, all actions, on a cluster without room.
func BenchmarkTopologyCannot(b *testing.B) {
	for name, left := range map[string]int{"full": 8, "one-gpu-left-on-each-node": 7} { // order: benchmarks do not care
		b.Run(name, func(b *testing.B) {
			s := cluster.NewStore(cluster.Options{})
			dc(s)
			for i := range 5000 {
				for k := range left {
					sets := cluster.FlatTree(1)
					nearby(s, fmt.Sprintf("run-%d-%d", i, k), sets, 0, 1, anySet)
					name := fmt.Sprintf("run-%d-%d", i, k)
					s.Apply(cluster.PodState{
						UID: name, Namespace: "ns", Name: name, Gang: cluster.Key{Face: "kai", Namespace: "ns", Name: name}, Ours: true,
						Phase: cluster.Running, NodeName: nodeName(i), Recreated: true,
						Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}},
					})
				}
			}
			for i := range 1000 {
				shape := i % 50
				sets := cluster.FlatTree(int32(4 + shape))
				sets[0].Near = cluster.Constraint{Topology: "dc", Required: []string{"block", "rack"}[shape%2]}
				if shape%4 == 0 {
					sets[0].Near.Preferred = "rack"
				}
				nearby(s, fmt.Sprintf("late-%d", i), sets, 4+shape, int64(2+shape%3), anySet)
			}
			e := builtIn(b)
			b.ReportAllocs()
			for b.Loop() {
				r := e.Run(context.Background(), s.Snapshot(cluster.UnixNano(1)), func(pl engine.Plan) { b.Fatalf("%s decided %d bundles", pl.Action, len(pl.Bundles)) })
				if len(r.Trace.Gangs) != 1000 {
					b.Fatalf("%d gangs diagnosed, want 1000", len(r.Trace.Gangs))
				}
			}
		})
	}
}

// BenchmarkReclaimCannotTogether is KAI's ReclaimUnschedulableDistributedJob with a topology: the gang must be in one zone.
func BenchmarkReclaimCannotTogether(b *testing.B) {
	for _, n := range []int{100, 500} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			s := impossible(n, cluster.ClassSpec{}, nil)
			s.nodes = append(s.nodes, cluster.TopologyState{Name: "dc", Levels: []cluster.Level{{Label: "zone"}, {Label: "kubernetes.io/hostname"}}})
			for i := range s.rest {
				if g, ok := s.rest[i].(cluster.GangState); ok && g.Key.Name == "gang" {
					g.Sets[0].Near = cluster.Constraint{Topology: "dc", Required: "zone"}
					s.rest[i] = g
				}
			}
			s.bench(b, reclaimOnly, none)
		})
	}
}

package enginetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// waitingGangs makes a Store in which so many gangs of Volcano's wait to be admitted in ten queues, and 100 nodes of 32 CPUs are full.
func waitingGangs(gangs int) *cluster.Store {
	s := cluster.NewStore(cluster.Options{})
	cpu := func(n int64) []cluster.Quantity { return []cluster.Quantity{{Name: "cpu", Value: n * 1000}} }
	s.Apply(cluster.QueueState{Name: "volcano:root", UID: "root"})
	for i := range 10 {
		name := fmt.Sprintf("volcano:q%d", i)
		s.Apply(cluster.QueueState{Name: name, UID: name, Parent: "volcano:root"})
	}
	gang := func(name string, i int) cluster.Key {
		key := cluster.Key{Face: "volcano", Namespace: "d", Name: name}
		s.Apply(cluster.GangState{
			Key: key, UID: name, Queue: fmt.Sprintf("volcano:q%d", i%10), Preemptible: true, Created: cluster.UnixNano(int64(i)), Sets: cluster.FlatTree(8), BeforePods: true,
			Asks: cpu(8),
		})
		return key
	}
	for i := range 100 {
		node := fmt.Sprintf("n%d", i)
		s.Apply(cluster.NodeState{Name: node, Allocatable: append(cpu(32), cluster.Quantity{Name: "pods", Value: 110})})
		for k := range 4 {
			key := gang(fmt.Sprintf("r%d-%d", i, k), k)
			for p := range 8 {
				name := fmt.Sprintf("%s-%d", key.Name, p)
				s.Apply(cluster.PodState{UID: name, Namespace: "d", Name: name, Requests: cpu(1), Phase: cluster.Running, NodeName: node, Gang: key, Ours: true})
			}
		}
	}
	for i := range gangs {
		gang(fmt.Sprintf("w%d", i), i)
	}
	return s
}

// volcanosOwn is the profile with Volcano's own scheduler file.
func volcanosOwn() engine.Profile {
	p := profile.BuiltIn()
	p.Faces = []engine.Face{{Name: "volcano", Actions: []string{"enqueue", "allocate", "backfill"}, Tiers: [][]engine.PluginUse{
		{{Name: "priority"}, {Name: "gang"}, {Name: "conformance"}},
		{{Name: "overcommit"}, {Name: "drf"}, {Name: "predicates"}, {Name: "proportion"}, {Name: "nodeorder"}},
	}}}
	return p
}

// TestWaiting: of many gangs that wait to be admitted each is told why, also after a change.
func TestWaiting(t *testing.T) {
	t.Parallel()
	const gangs = 500
	s := waitingGangs(gangs)
	e, err := engine.New(volcanosOwn(), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	d := engine.NewDriver(e, s)
	for cycle := range 3 {
		s.Apply(cluster.QueueState{Name: "other", UID: fmt.Sprint(cycle)})
		_, _, res := d.Cycle(context.Background(), epochInstant())
		said := 0
		for i := range res.Trace.Gangs {
			if res.Trace.Gangs[i].Diagnosis != nil {
				said++
			}
		}
		if admitted := len(res.Admitted); said+80 < gangs || cycle == 0 && admitted != 80 || cycle > 0 && admitted != 0 {
			t.Errorf("cycle %d: %d were admitted, and %d gangs were told", cycle, admitted, said)
		}
	}
}

// epochInstant is when scenarios begin.
func epochInstant() cluster.Instant { return cluster.UnixNano(epoch.UnixNano()) }

// BenchmarkWaiting is a cycle after one change while 10,000 gangs of Volcano's wait: to be admitted, by Volcano's own file; or admitted, with all their pods, for room, by a file
// without enqueue, whose queues are ordered by proportion, or by hierarchy. Reach 20 ms.
func BenchmarkWaiting(b *testing.B) {
	plugins := func(last ...engine.PluginUse) []engine.Face {
		first := []engine.PluginUse{{Name: "priority"}, {Name: "gang"}, {Name: "sla"}, {Name: "drf"}}
		return []engine.Face{{Name: "volcano", Actions: []string{"allocate"}, Tiers: [][]engine.PluginUse{first, last}}}
	}
	room, tree := profile.BuiltIn(), profile.BuiltIn()
	room.Faces = plugins(engine.PluginUse{Name: "capacity"})
	tree.Faces = plugins(engine.PluginUse{Name: "capacity"})
	tree.Faces[0].Tiers[0][3].Arguments = policy.Arguments{"enableHierarchy": "true"}
	for name, p := range map[string]engine.Profile{"admission": volcanosOwn(), "room": room, "hierarchy": tree} { // order: by itself
		b.Run(name, func(b *testing.B) { benchmarkWaiting(b, p, name != "admission") })
	}
}

func benchmarkWaiting(b *testing.B, p engine.Profile, pods bool) {
	s := waitingGangs(10_000)
	for i := range 10_000 {
		for k := range 2 {
			if name := fmt.Sprintf("w%d-%d", i, k); pods {
				key := cluster.Key{Face: "volcano", Namespace: "d", Name: fmt.Sprintf("w%d", i)}
				if k == 0 {
					s.Apply(cluster.GangState{Key: key, UID: key.Name, Queue: fmt.Sprintf("volcano:q%d", i%10), Preemptible: true, Created: cluster.UnixNano(int64(i)), Sets: cluster.FlatTree(2), Priority: int32(i % 7)})
				}
				s.Apply(cluster.PodState{UID: name, Namespace: "d", Name: name, Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}}, Gang: key, Ours: true, Phase: cluster.Pending})
			}
		}
	}
	e, err := engine.New(p, builtin.Registry())
	if err != nil {
		b.Fatal(err)
	}
	d := engine.NewDriver(e, s)
	d.Cycle(context.Background(), epochInstant())
	b.ResetTimer()
	for i := range b.N {
		s.Apply(cluster.QueueState{Name: "other", UID: fmt.Sprint(i)})
		d.Cycle(context.Background(), epochInstant())
	}
}

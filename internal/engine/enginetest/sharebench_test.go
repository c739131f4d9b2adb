package enginetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
)

// sharers is a plant whose pods take parts of GPUs, in thousandths, in turn.
func sharers(p plant, portions ...cluster.Portion) *cluster.Store {
	empty := p
	empty.gangs = 0
	s := empty.store()
	n := 0
	for i := range p.gangs {
		key := cluster.Key{Face: "kai", Namespace: "ns", Name: fmt.Sprintf("gang-%06d", i)}
		s.Apply(cluster.GangState{
			Key: key, UID: key.Name, Queue: fmt.Sprintf("dept-%d-team-%d", i%2, i/2%2), Priority: 50, Preemptible: true,
			Created: cluster.UnixNano(int64(i)), Sets: cluster.FlatTree(int32(p.members)),
		})
		for m := range p.members {
			share := cluster.Share{Devices: 1, Portion: portions[n%len(portions)] * (cluster.WholePortion / 1000)}
			requests := []cluster.Quantity{{Name: "cpu", Value: 500}, {Name: "memory", Value: 1 << 30}, {Name: "pods", Value: 1}}
			s.Apply(cluster.PodState{
				UID: fmt.Sprintf("%s-%d", key.Name, m), Namespace: "ns", Name: fmt.Sprintf("%s-%d", key.Name, m), Gang: key, Ours: true,
				Requests: requests, Charge: append(requests, cluster.Quantity{Name: "gpu", Value: share.Charge(0)}), Spec: &cluster.ClassSpec{Share: share},
			})
			n++
		}
	}
	return s
}

// BenchmarkShares decides 20,000 pods that take parts of GPUs, on 2,504 GPUs, from a warm store: snapshot to plan.
func BenchmarkShares(b *testing.B) {
	eighths, mixed := []cluster.Portion{125}, []cluster.Portion{50, 100, 150, 160}
	for _, c := range []struct {
		name           string
		gangs, members int
		portions       []cluster.Portion
		plugins        map[string]profile.Override
	}{
		{"single/equal", 20_000, 1, eighths, nil},
		{"single/mixed", 20_000, 1, mixed, nil},
		{"gangs/mixed", 200, 100, mixed, nil},
		{"single/mixed/fragmentation", 20_000, 1, mixed, map[string]profile.Override{"fragmentation": {}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := sharers(plant{nodes: 313, gangs: c.gangs, members: c.members}, c.portions...)
			prof, err := profile.ForShard(profile.Shard{Plugins: c.plugins})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				e, err := engine.New(prof, builtin.Registry())
				if err != nil {
					b.Fatal(err)
				}
				binds := 0
				e.Run(context.Background(), s.Snapshot(cluster.UnixNano(1)), func(pl engine.Plan) { binds += pl.Binds() })
				if binds != 20_000 {
					b.Fatalf("bound %d pods, want 20000", binds)
				}
			}
		})
	}
}

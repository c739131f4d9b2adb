package filters

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/profile"
)

// apartGang is KAI's ReclaimUnschedulableDistributedJob with required anti-affinity: n nodes of 8 GPUs full of one-GPU jobs, and
// a gang of 10 × 8 GPUs whose pods must be on different hosts. Reclaim may free spare more GPUs than 79, and pods that the gang keeps away from, and that must not be
// touched, are on guards of the nodes.
func apartGang(n, spare, guards int) []cluster.Event {
	at := cluster.UnixNano(int64(1_000_000) * 1e9)
	var out []cluster.Event
	labels := map[string]string{"app": "gang"}
	for i := range n {
		name := fmt.Sprintf("node-%05d", i)
		out = append(out, cluster.NodeState{
			Name: name, UID: name, Labels: map[string]string{hostKey: name, zoneKey: fmt.Sprint("z", i%4)},
			Allocatable: []cluster.Quantity{{Name: "cpu", Value: 128000}, {Name: "memory", Value: 1 << 40}, {Name: "gpu", Value: 8000}, {Name: "pods", Value: 110}},
		})
	}
	queue := func(name string, gpus int) {
		free := []cluster.Quantity{{Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}}
		out = append(out, cluster.QueueState{
			Name: name, UID: name, Quota: append([]cluster.Quantity{{Name: "gpu", Value: int64(gpus) * 1000}}, free...),
			Limit:  append([]cluster.Quantity{{Name: "gpu", Value: cluster.Unlimited}}, free...),
			Weight: []cluster.Quantity{{Name: "gpu", Value: 1000}, {Name: "cpu", Value: 1000}, {Name: "memory", Value: 1000}},
		})
	}
	queue("victims", 8*n-80+1-spare)
	queue("taker", 80)
	gang := func(name, queue string, pods int, gpus int64, created cluster.Instant, node string, spec cluster.ClassSpec, labels map[string]string) {
		key := cluster.Key{Face: "kai", Namespace: "ns", Name: name}
		out = append(out, cluster.GangState{Key: key, UID: name, Queue: queue, Priority: 50, Preemptible: node == "" || gpus > 0, Created: created, Sets: cluster.FlatTree(int32(pods))})
		for i := range pods {
			p := cluster.PodState{
				UID: fmt.Sprintf("%s-%d", name, i), Namespace: "ns", Name: fmt.Sprintf("%s-%d", name, i), Gang: key, Ours: true, Recreated: true,
				Labels: labels, Spec: &spec, Created: created,
				Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "memory", Value: 1 << 30}, {Name: "gpu", Value: gpus * 1000}, {Name: "pods", Value: 1}},
			}
			if node != "" {
				p.Phase, p.NodeName = cluster.Running, node
			}
			out = append(out, p)
		}
	}
	for i := range 8 * n {
		gang(fmt.Sprintf("victim-%06d", i), "victims", 1, 1, at.Add(-time.Duration(10+i)*1e9), fmt.Sprintf("node-%05d", i/8), cluster.ClassSpec{}, nil)
	}
	for i := range guards {
		gang(fmt.Sprintf("guard-%06d", i), "victims", 1, 0, at.Add(-time.Duration(10+i)*1e9), fmt.Sprintf("node-%05d", n-1-i), cluster.ClassSpec{}, labels)
	}
	gang("gang", "taker", 10, 8, at.Add(-1e9), "", cluster.ClassSpec{
		Namespace: "ns", Labels: labels,
		PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: labels}, TopologyKey: hostKey,
		}}},
	}, labels)
	return out
}

// BenchmarkReclaimApart runs reclaim from plain objects to the plan, with the filters: with one GPU too few, with exactly
// enough, and with a pod that must not be touched on all nodes but nine.
func BenchmarkReclaimApart(b *testing.B) {
	run := func(b *testing.B, events []cluster.Event, evicted int) {
		for b.Loop() {
			prof := profile.BuiltIn()
			prof.Actions = []string{"reclaim"}
			e, err := engine.New(prof, Register(builtin.Registry(), Options{}))
			if err != nil {
				b.Fatal(err)
			}
			st := cluster.NewStore(cluster.Options{})
			st.Apply(events...)
			n := 0
			e.Run(context.Background(), st.Snapshot(cluster.UnixNano(1_000_000*1e9)), func(pl engine.Plan) {
				for i := range pl.Bundles {
					for _, in := range pl.Bundles[i].Intents {
						if in.Verb == ledger.Evict {
							n++
						}
					}
				}
			})
			if n != evicted {
				b.Fatalf("evicted %d, want %d", n, evicted)
			}
		}
	}
	for _, n := range []int{100, 500} {
		b.Run(fmt.Sprintf("one-gpu-short/nodes=%d", n), func(b *testing.B) { run(b, apartGang(n, 0, 0), 0) })
		b.Run(fmt.Sprintf("enough/nodes=%d", n), func(b *testing.B) { run(b, apartGang(n, 1, 0), 80) })
		b.Run(fmt.Sprintf("guarded/nodes=%d", n), func(b *testing.B) { run(b, apartGang(n, 8*n-80, n-9), 0) })
		b.Run(fmt.Sprintf("pinned/nodes=%d", n), func(b *testing.B) {
			events := apartGang(n, 8*n-80, 0)
			for i, e := range events {
				if g, ok := e.(cluster.GangState); ok && g.Key.Name != "gang" {
					var k int
					if _, err := fmt.Sscanf(g.Key.Name, "victim-%d", &k); err != nil {
						b.Fatal(err)
					}
					g.Preemptible = k%8 != 0 || k/8 < 9
					events[i] = g
				}
			}
			run(b, events, 0)
		})
	}
}

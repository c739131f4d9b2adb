package placer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/engine/rules"
)

// TestDomainSums: whatever statements do and take back, a ranking's places per domain are those of its nodes, and the best
// node of a domain is the one that a scan finds.
func TestDomainSums(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		store := cluster.NewStore(cluster.Options{})
		levels := []cluster.Level{{Label: "zone"}, {Label: "rack", Alias: "row"}}
		store.Apply(cluster.TopologyState{Name: "dc", Levels: levels}, cluster.QueueState{Name: "q", Quota: []cluster.Quantity{{Name: "gpu", Value: cluster.Unlimited}}})
		relabel := func(i int) {
			labels := map[string]string{}
			for _, l := range levels {
				if r.IntN(8) > 0 {
					labels[l.Label] = fmt.Sprint(r.IntN(3))
				}
			}
			store.Apply(cluster.NodeState{Name: fmt.Sprintf("n%02d", i), Labels: labels, Allocatable: []cluster.Quantity{{Name: "gpu", Value: int64(r.IntN(9)) * 1000}, {Name: "pods", Value: 110}}})
		}
		for i := range 12 {
			relabel(i)
		}
		for range 10 { // nodes come, go and move; a snapshot between makes what follows copy
			store.Snapshot(cluster.Instant{})
			if r.IntN(3) == 0 {
				store.Apply(cluster.NodeGone{Name: fmt.Sprintf("n%02d", r.IntN(12))})
			} else {
				relabel(r.IntN(12))
			}
		}
		gang := cluster.Key{Face: "kai", Namespace: "d", Name: "g"}
		store.Apply(cluster.GangState{Key: gang, Queue: "q"})
		for i := range 20 {
			store.Apply(cluster.PodState{
				UID: fmt.Sprintf("p%02d", i), Namespace: "d", Name: fmt.Sprintf("p%02d", i), Gang: gang, Ours: true,
				Requests: []cluster.Quantity{{Name: "gpu", Value: int64(1+i%2) * 1000}, {Name: "pods", Value: 1}},
			})
		}
		snap := store.Snapshot(cluster.UnixNano(1))
		l, ps := ledger.New(snap, &ledger.Slabs{}), &policy.Plugins{}
		l.Follow(ps.Hooks())
		pl := New(context.Background(), &Cache{}, snap, l, rules.New(snap, l, ps), recorder.New(snap, 0, nil, new([]int32)), ps)
		topology := snap.Topology("dc")
		tree := pl.within(pl.everywhere(), topology)
		classes := map[*cluster.Class]bool{}
		snap.EachPod(func(p *cluster.Pod) { classes[p.Class] = true })
		check := func() {
			t.Helper()
			for c := range classes { // order: each on its own
				ranking := pl.rankingIn(c, tree.order)
				for d := range cluster.DomainID(topology.MaxDomainID()) {
					if topology.Domain(d) == nil {
						continue
					}
					want, best := 0, cluster.NodeID(cluster.None)
					for _, id := range snap.NodeOrder {
						if topology.DomainOf(id, topology.Domain(d).Level) != d {
							continue
						}
						if n := l.CountLater(c, id); n > 0 {
							want += n
							if best == cluster.None {
								best = id
							}
						}
					}
					if got := ranking.places[d]; got != want {
						t.Fatalf("seed %d: domain %q has %d places, its nodes %d", seed, topology.Path(d), got, want)
					}
					i, ok := ranking.best(tree.part(d))
					if ok != (best != cluster.None) || ok && tree.order.nodes[i] != best {
						t.Fatalf("seed %d: best node of %q is %d (%v), a scan finds %d", seed, topology.Path(d), i, ok, best)
					}
				}
			}
		}
		check()
		g := l.Gang(snap.GangByKey(gang).ID)
		st := l.Begin()
		var marks []ledger.Mark
		for range 60 {
			waiting := g.SetWaiting(1)
			switch {
			case len(marks) > 0 && (r.IntN(3) == 0 || len(waiting) == 0):
				k := r.IntN(len(marks))
				st.RollbackTo(marks[k])
				marks = marks[:k]
			case len(waiting) > 0:
				marks = append(marks, st.Mark())
				p := snap.Pod(waiting[r.IntN(len(waiting))])
				tr := trial{Placer: pl, st: st}
				if r.IntN(2) == 0 {
					tr.mode = onRelease
				}
				in := pl.everywhere()
				if ds := topology.Domain(cluster.RootDomain).Children; len(ds) > 0 && r.IntN(2) == 0 {
					in = tree.part(ds[r.IntN(len(ds))])
				}
				tr.placePod(p, in)
			}
			check()
		}
	}
}

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

// plant describes a synthetic cluster for benchmarks.
type plant struct {
	nodes, gangs, members int // nodes have 8 GPUs; members ask one each
	running               bool
}

func (p plant) store() *cluster.Store {
	s := cluster.NewStore(cluster.Options{})
	for i := range p.nodes {
		s.Apply(cluster.NodeState{
			Name: fmt.Sprintf("node-%05d", i), UID: fmt.Sprintf("node-%05d", i),
			Allocatable: []cluster.Quantity{{Name: "cpu", Value: 128000}, {Name: "memory", Value: 1 << 40}, {Name: "gpu", Value: 8000}, {Name: "pods", Value: 110}},
		})
	}
	for d := range 2 {
		dept := fmt.Sprintf("dept-%d", d)
		s.Apply(queue(dept, "", cluster.Unlimited))
		for t := range 2 {
			s.Apply(queue(fmt.Sprintf("%s-team-%d", dept, t), dept, int64(p.nodes)*2000))
		}
	}
	n := 0
	for i := range p.gangs {
		key := cluster.Key{Face: "kai", Namespace: "ns", Name: fmt.Sprintf("gang-%06d", i)}
		s.Apply(cluster.GangState{
			Key: key, UID: key.Name, Queue: fmt.Sprintf("dept-%d-team-%d", i%2, i/2%2), Priority: 50, Preemptible: true,
			Created: cluster.UnixNano(int64(i)), Sets: cluster.FlatTree(int32(p.members)),
		})
		for m := range p.members {
			st := cluster.PodState{
				UID: fmt.Sprintf("%s-%d", key.Name, m), Namespace: "ns", Name: fmt.Sprintf("%s-%d", key.Name, m), Gang: key, Ours: true,
				Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "memory", Value: 1 << 30}, {Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}},
			}
			if p.running {
				st.Phase, st.NodeName = cluster.Running, fmt.Sprintf("node-%05d", n/8)
			}
			s.Apply(st)
			n++
		}
	}
	return s
}

func queue(name, parent string, gpuQuota int64) cluster.QueueState {
	free := func(gpu int64) []cluster.Quantity {
		return []cluster.Quantity{{Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}, {Name: "gpu", Value: gpu}}
	}
	return cluster.QueueState{
		Name: name, UID: name, Parent: parent, Priority: 100, Quota: free(gpuQuota), Limit: free(cluster.Unlimited),
		Weight: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "memory", Value: 1000}, {Name: "gpu", Value: 1000}},
	}
}

func builtIn(tb testing.TB) *engine.Engine {
	e, err := engine.New(profile.BuiltIn(), builtin.Registry())
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// BenchmarkAllocate decides a whole cluster of waiting gangs from a warm store: snapshot to plan.
func BenchmarkAllocate(b *testing.B) {
	for _, p := range []plant{
		{nodes: 100, gangs: 500, members: 1},
		{nodes: 1000, gangs: 8000, members: 1},
		{nodes: 5000, gangs: 40000, members: 1},
		{nodes: 50, gangs: 100, members: 4},
		{nodes: 500, gangs: 1, members: 4000},
	} {
		b.Run(fmt.Sprintf("nodes=%d/gangs=%d/members=%d", p.nodes, p.gangs, p.members), func(b *testing.B) {
			s := p.store()
			want := p.gangs * p.members
			b.ReportAllocs()
			for b.Loop() {
				e := builtIn(b)
				binds := 0
				e.Run(context.Background(), s.Snapshot(cluster.UnixNano(1)), func(pl engine.Plan) { binds += pl.Binds() })
				if binds != want {
					b.Fatalf("bound %d pods, want %d", binds, want)
				}
			}
		})
	}
}

// BenchmarkAllocateFromObjects includes building the store, as KAI's own benchmark includes building its session.
func BenchmarkAllocateFromObjects(b *testing.B) {
	for _, p := range []plant{{nodes: 100, gangs: 500, members: 1}, {nodes: 50, gangs: 100, members: 4}} {
		b.Run(fmt.Sprintf("nodes=%d/gangs=%d/members=%d", p.nodes, p.gangs, p.members), func(b *testing.B) {
			for b.Loop() {
				binds := 0
				builtIn(b).Run(context.Background(), p.store().Snapshot(cluster.UnixNano(1)), func(pl engine.Plan) { binds += pl.Binds() })
				if binds != p.gangs*p.members {
					b.Fatalf("bound %d pods, want %d", binds, p.gangs*p.members)
				}
			}
		})
	}
}

// BenchmarkQuietCycle is the cycle after one of 40,000 running pods ended on 5,000 nodes: the event, the snapshot, the run.
func BenchmarkQuietCycle(b *testing.B) {
	s := plant{nodes: 5000, gangs: 40000, members: 1, running: true}.store()
	e := builtIn(b)
	e.Run(context.Background(), s.Snapshot(cluster.UnixNano(1)), func(engine.Plan) {})
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		s.Apply(cluster.PodGone{UID: fmt.Sprintf("gang-%06d-0", i)})
		i++
		e.Run(context.Background(), s.Snapshot(cluster.UnixNano(int64(i))), func(engine.Plan) { b.Fatal("nothing was to be decided") })
	}
}

// BenchmarkCannot is a full cluster with 8,000 gangs that cannot be placed: a no must be as cheap as a yes.
func BenchmarkCannot(b *testing.B) {
	full := plant{nodes: 1000, gangs: 8000, members: 1, running: true}.store()
	for i := range 8000 {
		key := cluster.Key{Face: "kai", Namespace: "ns", Name: fmt.Sprintf("late-%06d", i)}
		full.Apply(cluster.GangState{Key: key, UID: key.Name, Queue: "dept-0-team-0", Preemptible: true, Sets: cluster.FlatTree(1)},
			cluster.PodState{UID: key.Name, Namespace: "ns", Name: key.Name, Gang: key, Ours: true, Requests: []cluster.Quantity{{Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}}})
	}
	e := builtIn(b)
	b.ReportAllocs()
	for b.Loop() {
		r := e.Run(context.Background(), full.Snapshot(cluster.UnixNano(1)), func(engine.Plan) { b.Fatal("the cluster is full") })
		if len(r.Trace.Gangs) != 8000 {
			b.Fatalf("%d gangs diagnosed, want 8000", len(r.Trace.Gangs))
		}
	}
}

package solver_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/solver"
	"github.com/muster-scheduler/muster/internal/profile"
)

// stage is an engine that runs an action of the test's own after these.
func stage(t *testing.T, act engine.Action, before ...string) *engine.Engine {
	t.Helper()
	p := profile.BuiltIn()
	p.Actions = append(before, "own")
	reg := builtin.Registry()
	reg.Actions["own"] = func() engine.Action { return act }
	e, err := engine.New(p, reg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// store has learned of the town, and then of what remember tells it of the past, unless that is nil.
func (w *exampleCluster) store(remember func(*cluster.Store)) *cluster.Store {
	s := cluster.NewStore(cluster.Options{})
	s.Apply(w.events()...)
	if remember != nil {
		s.Snapshot(noon)
		remember(s)
	}
	return s
}

// doubters ask of every waiting gang whether it is known that there is no room, and look for some all the same.
type doubters struct {
	ask                 func(*solver.Solver, *ledger.GangState) (known, found bool)
	cause               policy.EvictionCause
	known, found, other int
	wrong               []string
}

// Run implements engine.Action.
func (d *doubters) Run(s *engine.Session) {
	for _, g := range s.Waiting() {
		switch known, found := d.ask(solver.New(s, d.cause, nil), g); {
		case known && found:
			d.wrong = append(d.wrong, g.Key.Name)
		case known:
			d.known++
		case found:
			d.found++
		default:
			d.other++
		}
	}
}

// past is a random history: who was displaced when, for whom, and is back since when; and which pairs are frozen.
func past(r *rand.Rand, w *exampleCluster) func(*cluster.Store) {
	name := func() string { return gangName(r.IntN(len(w.gangs))) }
	when := func() cluster.Instant { // around the times at which gangs were made, or after all of them
		if r.IntN(2) == 0 {
			return noon.Add(-1e9 * time.Duration(10+r.IntN(200)))
		}
		return noon.Add(-1e14).Add(time.Duration(r.IntN(2*len(w.gangs)+1)) * 5e8)
	}
	m := cluster.Memory{Held: map[string]cluster.Instant{}}
	if r.IntN(2) == 0 {
		m.News = when()
	}
	for i, g := range w.gangs {
		if r.IntN(3) > 0 {
			continue
		}
		gm := cluster.GangMemory{Gang: gang(gangName(i))}
		for range []int{1, 1, 2, 3, cluster.MaxDisplacements}[r.IntN(5)] {
			by := gang("other")
			if r.IntN(4) == 0 {
				by = gang(name())
			}
			gm.Displacements = append(gm.Displacements, cluster.Displacement{At: when(), By: by})
		}
		slices.SortFunc(gm.Displacements, func(a, b cluster.Displacement) int { return a.At.Compare(b.At) })
		gm.Displaced = gm.Displacements[len(gm.Displacements)-1].At
		m.Gangs = append(m.Gangs, gm)
		for k := range g.pods {
			m.Held[fmt.Sprintf("%s-%d", gangName(i), k)] = when()
		}
	}
	frozen := map[[2]string]bool{}
	for range r.IntN(3) {
		frozen[[2]string{name(), name()}] = true
	}
	return func(s *cluster.Store) {
		s.Restore(m)
		for pair := range frozen { // order: each on its own
			s.Freeze(gang(pair[0]), gang(pair[1]), noon.Add(1e9))
		}
	}
}

// drawRacks is blocks of racks of nodes that are mostly full, and gangs whose sets have to be near, some of which run in part.
func drawRacks(r *rand.Rand, s *cluster.Store) {
	s.Apply(cluster.TopologyState{Name: "dc", Levels: []cluster.Level{{Label: "block"}, {Label: "rack"}}})
	nodes, small := 4+r.IntN(5), r.IntN(3) == 0 // small: with pods that want less than a device, and few slots
	slots := func() int64 {
		if small && r.IntN(2) == 0 {
			return 2 + r.Int64N(3)
		}
		return 110
	}
	for i := range nodes {
		labels := map[string]string{"block": fmt.Sprint(i / 4), "rack": fmt.Sprint(i / 2)}
		if r.IntN(8) == 0 {
			labels = nil
		}
		s.Apply(cluster.NodeState{Name: fmt.Sprint("n", i), UID: fmt.Sprint("n", i), Labels: labels, Allocatable: []cluster.Quantity{{Name: "gpu", Value: 2000}, {Name: "pods", Value: slots()}}})
	}
	for _, q := range []string{"owner", "guest"} {
		quota := int64(0)
		if q == "owner" {
			quota = 1_000_000
		}
		s.Apply(cluster.QueueState{
			Name: q, UID: q,
			Quota: []cluster.Quantity{{Name: "gpu", Value: quota}}, Limit: []cluster.Quantity{{Name: "gpu", Value: cluster.Unlimited}},
			Weight: []cluster.Quantity{{Name: "gpu", Value: 1000}},
		})
	}
	near := func() cluster.Constraint {
		return []cluster.Constraint{{}, {}, {Topology: "dc", Required: "rack"}, {Topology: "dc", Required: "block"}, {Topology: "dc", Preferred: "rack"}}[r.IntN(5)]
	}
	free := make([]int, nodes)
	for i := range free {
		free[i] = 2
	}
	for i := range nodes + 4 {
		name := fmt.Sprint("g", i)
		st := cluster.GangState{Key: gang(name), UID: name, Queue: "guest", Priority: 50, Preemptible: r.IntN(4) > 0, Created: noon.Add(-time.Duration(20-i) * 1e9)}
		if runs := i < nodes; !runs || r.IntN(4) == 0 {
			st.Queue, st.Priority = []string{"owner", "guest"}[r.IntN(2)], 60
		}
		st.Sets = []cluster.Set{{Parent: cluster.None, Near: near()}}
		for k := range 1 + r.IntN(3) {
			st.Sets[0].Children = append(st.Sets[0].Children, int32(k+1))
			st.Sets = append(st.Sets, cluster.Set{Name: fmt.Sprint("s", k), Parent: 0, Min: int32(1 + r.IntN(2)), Leaf: true, Near: near()})
		}
		st.Sets[0].Min = int32(len(st.Sets) - 1)
		if r.IntN(4) == 0 {
			st.Sets[0].Min = 1
		}
		s.Apply(st)
		for k, set := range st.Sets[1:] {
			for m := range int(set.Min) + r.IntN(2) {
				pod := fmt.Sprint(name, "-", k, "-", m)
				gpu := 1 + r.IntN(2)
				p := cluster.PodState{
					UID: pod, Namespace: "x", Name: pod, Gang: gang(name), SetName: set.Name, Ours: true, Recreated: true, Created: noon.Add(-1e9), Spec: &cluster.ClassSpec{},
					Requests: []cluster.Quantity{{Name: "pods", Value: 1}, {Name: "gpu", Value: int64(gpu) * 1000}},
				}
				switch size := r.IntN(6); {
				case small && size == 0: // its reservation takes a slot, too
					p.Requests, p.Spec.Share = p.Requests[:1], cluster.Share{Devices: 1, Portion: cluster.WholePortion / 2}
				case small && size == 1:
					p.Requests = p.Requests[:1]
				}
				if n := r.IntN(nodes); free[n] >= gpu && (i < nodes || r.IntN(3) == 0) {
					free[n] -= gpu
					p.Phase, p.NodeName = cluster.Running, fmt.Sprint("n", n)
					if !p.Spec.Share.None() {
						p.Groups = []string{pod}
					}
				}
				s.Apply(p)
			}
		}
	}
}

// drawLoose is racks of nodes of which most have room for one more pod of one GPU, beside one that stays or one that could go elsewhere:
// there is enough room for who waits, and it is a question of who moves.
func drawLoose(r *rand.Rand, s *cluster.Store) {
	s.Apply(cluster.TopologyState{Name: "dc", Levels: []cluster.Level{{Label: "rack"}}}, cluster.QueueState{
		Name: "guest", UID: "guest", Quota: []cluster.Quantity{{Name: "gpu", Value: cluster.Unlimited}}, Limit: []cluster.Quantity{{Name: "gpu", Value: cluster.Unlimited}},
	})
	nodes := 4 + r.IntN(5)
	for i := range nodes {
		s.Apply(cluster.NodeState{
			Name: fmt.Sprint("n", i), UID: fmt.Sprint("n", i), Labels: map[string]string{"rack": fmt.Sprint(i / 2)},
			Allocatable: []cluster.Quantity{{Name: "gpu", Value: 2000}, {Name: "pods", Value: 3}},
		})
	}
	for i := range nodes + 3 {
		name, runs := fmt.Sprint("g", i), i < nodes
		st := cluster.GangState{Key: gang(name), UID: name, Queue: "guest", Priority: 50, Preemptible: !runs || r.IntN(3) == 0, Created: noon.Add(-time.Duration(20-i) * 1e9), Sets: cluster.FlatTree(1)}
		if near := []string{"", "rack"}[r.IntN(2)]; near != "" {
			st.Sets[0].Near = cluster.Constraint{Topology: "dc", Required: near}
		}
		pods, gpu := 1, int64(1)
		if !runs {
			pods, gpu = 1+r.IntN(2), 2
			st.Sets[1].Min = int32(pods)
		}
		s.Apply(st)
		for k := range pods {
			p := cluster.PodState{
				UID: fmt.Sprint(name, "-", k), Namespace: "x", Name: fmt.Sprint(name, "-", k), Gang: gang(name), Ours: true, Recreated: true, Created: noon.Add(-1e9),
				Requests: []cluster.Quantity{{Name: "pods", Value: 1}, {Name: "gpu", Value: gpu * 1000}},
			}
			if runs {
				p.Phase, p.NodeName = cluster.Running, fmt.Sprint("n", i)
			}
			s.Apply(p)
		}
	}
}

package solver_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/plugins/topology"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// rates notes what it costs to be told of gangs whether their constraints are understood, and whether there is room.
type rates struct {
	near, room, again map[string]int // nodes, by gang
	says              map[string]policy.Verdict
}

// Run implements engine.Action.
func (r *rates) Run(s *engine.Session) {
	steps := func(into map[string]int, g *ledger.GangState, ask func(*ledger.GangState, []cluster.PodID)) {
		before := s.Placer.Rated()
		pods, _ := s.Ledger.Next(g)
		ask(g, pods)
		into[g.Key.Name] = s.Placer.Rated() - before
	}
	room := func(g *ledger.GangState, pods []cluster.PodID) { s.Placer.Room(g, pods) }
	for _, g := range s.Pending() {
		steps(r.near, g, func(g *ledger.GangState, pods []cluster.PodID) { r.says[g.Key.Name] = s.Placer.CheckNear(g, pods) })
		steps(r.room, g, room)
		steps(r.again, g, room)
	}
}

// TestRated: whether a constraint is understood is said without a look at the nodes, and whatever room there is; that the nodes are
// rated for one more class is counted, once.
func TestRated(t *testing.T) {
	t.Parallel()
	s := cluster.NewStore(cluster.Options{})
	s.Apply(cluster.TopologyState{Name: "dc", Levels: []cluster.Level{{Label: "rack"}}}, cluster.QueueState{
		Name: "team", UID: "team", Quota: []cluster.Quantity{{Name: "gpu", Value: cluster.Unlimited}}, Limit: []cluster.Quantity{{Name: "gpu", Value: cluster.Unlimited}},
	})
	const nodes = 256
	for i := range nodes {
		s.Apply(cluster.NodeState{
			Name: fmt.Sprint("n", i), UID: fmt.Sprint("n", i), Labels: map[string]string{"rack": fmt.Sprint(i / 2)},
			Allocatable: []cluster.Quantity{{Name: "gpu", Value: 2000}, {Name: "pods", Value: 110}},
		})
	}
	gangs := map[string]cluster.Constraint{
		"plain":   {},
		"rack":    {Topology: "dc", Required: "rack"},
		"missing": {Topology: "gone", Required: "rack"},
		"level":   {Topology: "dc", Required: "row"},
	}
	for name, near := range gangs { // order: each is asked about for itself
		st := cluster.GangState{Key: gang(name), UID: name, Queue: "team", Priority: 50, Created: noon.Add(-1e9), Sets: cluster.FlatTree(3)}
		st.Sets[0].Near = near
		s.Apply(st)
		for k := range 3 { // no rack has room for three
			s.Apply(cluster.PodState{
				UID: fmt.Sprint(name, "-", k), Namespace: "x", Name: fmt.Sprint(name, "-", k), Gang: gang(name), Ours: true, Created: noon.Add(-1e9),
				Requests: []cluster.Quantity{{Name: "pods", Value: 1}, {Name: "gpu", Value: 2000}, {Name: "cpu", Value: int64(len(name))}},
			})
		}
	}
	act := &rates{near: map[string]int{}, room: map[string]int{}, again: map[string]int{}, says: map[string]policy.Verdict{}}
	stage(t, act).Run(context.Background(), s.Snapshot(noon), func(engine.Plan) {})
	for name, want := range map[string]*policy.Reason{"plain": nil, "rack": nil, "missing": topology.ReasonTopologyMissing, "level": topology.ReasonTopologyLevel} { // order: each for itself
		if v := act.says[name]; v.Reason != want {
			t.Errorf("%s: the constraint is said to be %v", name, v)
		}
		if n := act.near[name]; n != 0 {
			t.Errorf("%s: asking whether the constraint is understood rated %d nodes", name, n)
		}
		if n := act.again[name]; n != 0 {
			t.Errorf("%s: asking for room once more rated %d nodes", name, n)
		}
	}
	if got, want := act.room["plain"], nodes; got != want {
		t.Errorf("%d nodes were rated %d times, want %d", nodes, got, want)
	}
	if got, want := act.room["rack"], 2*nodes; got != want {
		t.Errorf("%d nodes, and those of a topology, were rated %d times, want %d", nodes, got, want)
	}
}

package predicates_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/plugins/predicates"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// TestPorts: whatever a run places, nominates, evicts, moves and undoes, and whoever was asked about when, a pod is refused a node just
// when somebody who stays or comes there opens one of its ports, the nodes that are refused beforehand are those, and a port is
// there now unless somebody is still on the node who opens it.
func TestPorts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		store := cluster.NewStore(cluster.Options{})
		nodes := rapid.IntRange(1, 4).Draw(t, "nodes")
		for i := range nodes {
			store.Apply(cluster.NodeState{Name: fmt.Sprint("n", i), UID: fmt.Sprint("n", i), Allocatable: []cluster.Quantity{{Name: "pods", Value: 100}}})
		}
		store.Apply(cluster.QueueState{Name: "q", UID: "q"})
		for i := range rapid.IntRange(1, 8).Draw(t, "pods") {
			name := fmt.Sprint("p", i)
			key := cluster.Key{Face: "kai", Namespace: "ns", Name: name}
			p := cluster.PodState{UID: name, Namespace: "ns", Name: name, Gang: key, Ours: true, Spec: &cluster.ClassSpec{}, Requests: []cluster.Quantity{{Name: "pods", Value: 1}}}
			for range rapid.IntRange(0, 3).Draw(t, "ports") {
				p.Spec.HostPorts = append(p.Spec.HostPorts, cluster.HostPort{
					IP:       rapid.SampledFrom([]string{"0.0.0.0", "10.0.0.1", "10.0.0.2"}).Draw(t, "address"),
					Protocol: rapid.SampledFrom([]string{"TCP", "UDP"}).Draw(t, "protocol"), Port: int32(rapid.IntRange(1, 3).Draw(t, "port")),
				})
			}
			if rapid.Bool().Draw(t, "there") {
				p.NodeName = fmt.Sprint("n", rapid.IntRange(0, nodes-1).Draw(t, "node"))
				p.Phase = rapid.SampledFrom([]cluster.Phase{cluster.Running, cluster.Running, cluster.Releasing}).Draw(t, "phase")
			}
			store.Apply(cluster.GangState{Key: key, UID: name, Queue: "q", Preemptible: true, Sets: cluster.FlatTree(1)}, p)
		}
		during(t, store.Snapshot(cluster.UnixNano(1)), func(s *engine.Session, w *watched) { wander(t, s, w) })
	})
}

// wander makes a statement at random and compares on the way.
func wander(t *rapid.T, s *engine.Session, w *watched) {
	const waits, runs, evicted, decided = 0, 1, 2, 3
	type state struct {
		mark ledger.Mark
		at   []int
	}
	var pods []*cluster.Pod
	var at []int
	s.Snap.EachPod(func(p *cluster.Pod) {
		switch {
		case p.Phase == cluster.Pending:
			pods, at = append(pods, p), append(at, waits)
		case p.Phase.Active():
			s.Ledger.LivePods(s.Ledger.Gang(p.Gang))
			pods, at = append(pods, p), append(at, runs)
		}
	})
	if len(pods) == 0 {
		return
	}
	st := s.Ledger.Begin()
	var points []state
	for range rapid.IntRange(1, 15).Draw(t, "steps") {
		k := rapid.IntRange(0, len(pods)-1).Draw(t, "pod")
		p, n := pods[k], s.Snap.Node(rapid.SampledFrom(s.Snap.NodeOrder).Draw(t, "to"))
		switch what := rapid.IntRange(0, 5).Draw(t, "step"); {
		case what == 0:
			points = append(points, state{st.Mark(), slices.Clone(at)})
		case what == 1 && len(points) > 0:
			last := points[len(points)-1]
			st.RollbackTo(last.mark)
			copy(at, last.at)
		case what == 2:
			w.compare(t, p, n)
		case at[k] == waits && what == 3:
			st.Nominate(p, n.ID)
			at[k] = decided
		case at[k] == waits:
			st.Place(p, n.ID)
			at[k] = decided
		case at[k] == runs:
			st.Evict(p)
			at[k] = evicted
		case at[k] == evicted && what == 3:
			st.Spare(p)
			at[k] = runs
		case at[k] == evicted:
			st.Move(p, n.ID)
			at[k] = decided
		}
	}
	for _, p := range pods {
		for _, id := range s.Snap.NodeOrder {
			w.compare(t, p, s.Snap.Node(id))
		}
	}
	st.Discard()
}

// watched is the plugin, and who came to which node, as it was told.
type watched struct {
	filter
	view *policy.View
	came []ledger.Op
}

type filter interface {
	policy.NodeRefusals
	policy.NodeReady
	policy.Observer
}

func (w *watched) Done(op ledger.Op) {
	w.filter.Done(op)
	w.came = append(w.came, op)
}

func (w *watched) Undone(op ledger.Op) {
	w.filter.Undone(op)
	w.came = w.came[:len(w.came)-1]
}

// compare asks about a pod and a node, and looks at everybody there.
func (w *watched) compare(t *rapid.T, p *cluster.Pod, n *cluster.Node) {
	if !w.Wants(p.Class) {
		return
	}
	later, now := map[int]bool{}, map[int]bool{} // by place among the pod's ports
	note := func(of map[int]bool, q *cluster.Pod) {
		for k, want := range p.Class.HostPorts {
			if slices.ContainsFunc(q.Class.HostPorts, want.Conflicts) {
				of[k] = true
				return
			}
		}
	}
	for _, id := range n.Pods {
		q := w.view.Snapshot().Pod(id)
		note(now, q)
		if q.Phase != cluster.Releasing && w.view.NodeOf(q) == n.ID {
			note(later, q)
		}
	}
	for _, op := range w.came {
		if op.Node == n.ID && op.Gives() > 0 && op.Verb != ledger.Spare {
			note(later, op.Pod)
		}
	}
	first := func(of map[int]bool) string {
		for k, want := range p.Class.HostPorts {
			if of[k] {
				return fmt.Sprintf("%s/%d", want.Protocol, want.Port)
			}
		}
		return ""
	}
	if v := w.CheckNode(p, n); v.Object != first(later) || v.Yes() != (len(later) == 0) {
		t.Fatalf("%s on %s: %+v, and %v is taken", p.Name, n.Name, v, later)
	}
	if v := w.CheckReady(p, n); v.Object != first(now) || v.Yes() != (len(now) == 0) {
		t.Fatalf("%s on %s: now %+v, and %v is not free", p.Name, n.Name, v, now)
	}
	bits, why := w.Refuses(p)
	if refused := bits[n.ID>>6]&(1<<(n.ID&63)) != 0; refused != (len(later) > 0) {
		t.Fatalf("%s on %s: refused beforehand %v, and %v is taken", p.Name, n.Name, refused, later)
	}
	if why != nil && len(later) > 0 && *why != w.CheckNode(p, n) {
		t.Fatalf("%s on %s: %+v beforehand, then %+v", p.Name, n.Name, *why, w.CheckNode(p, n))
	}
}

// during calls f within a run that has the plugin.
func during(t *rapid.T, snap *cluster.Snapshot, f func(*engine.Session, *watched)) {
	open, _, err := predicates.Factory.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	w, ran := &watched{}, false
	e, err := engine.New(engine.Profile{Actions: []string{"test"}, Tiers: [][]engine.PluginUse{{{Name: "watched"}}}}, engine.Registry{
		Actions: map[string]func() engine.Action{"test": func() engine.Action {
			return runs(func(s *engine.Session) { f(s, w); ran = true })
		}},
		Plugins: map[string][]policy.Factory{"watched": {policy.Opens(func(v *policy.View) *watched {
			w.view, w.filter = v, open(v).(filter)
			return w
		})}},
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Run(context.Background(), snap, func(engine.Plan) {})
	if !ran {
		t.Fatal("the action did not run")
	}
}

type runs func(*engine.Session)

func (f runs) Run(s *engine.Session) { f(s) }

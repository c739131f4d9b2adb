package enginetest

import (
	"context"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
)

// pair is a Store with a node of one GPU and two gangs of a pod that wants it.
func pair() *cluster.Store {
	s := cluster.NewStore(cluster.Options{})
	all := []cluster.Quantity{{Name: "gpu", Value: cluster.Unlimited}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}}
	s.Apply(cluster.QueueState{Name: "q", UID: "q", Quota: all, Limit: all},
		cluster.NodeState{Name: "n", UID: "n", Allocatable: []cluster.Quantity{{Name: "gpu", Value: 1000}, {Name: "pods", Value: 10}}})
	for _, name := range []string{"a", "b"} {
		key := cluster.Key{Face: "kai", Namespace: "ns", Name: name}
		s.Apply(cluster.GangState{Key: key, UID: name, Queue: "q", Sets: cluster.FlatTree(1)},
			cluster.PodState{UID: name, Namespace: "ns", Name: name, Gang: key, Ours: true, Requests: []cluster.Quantity{{Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}}})
	}
	return s
}

func driver(t *testing.T, s *cluster.Store, more ...func(*engine.Session)) *engine.Driver {
	t.Helper()
	p, r := profile.BuiltIn(), builtin.Registry()
	for i, f := range more {
		name := string(rune('A' + i))
		r.Actions[name] = func() engine.Action { return act(f) }
		p.Actions = append(p.Actions, name)
	}
	e, err := engine.New(p, r)
	if err != nil {
		t.Fatal(err)
	}
	return engine.NewDriver(e, s)
}

type act func(*engine.Session)

func (f act) Run(s *engine.Session) { f(s) }

// TestDriver: a plan is assumed before anybody sees it, and a cycle is due as long as it could decide otherwise than the last.
func TestDriver(t *testing.T) {
	t.Parallel()
	s := pair()
	d := driver(t, s)
	if !d.Due(noon) {
		t.Error("the first cycle is not due")
	}
	snap := d.Begin(t.Context(), noon)
	p := d.Ready()
	if p == nil || p.Binds() != 1 {
		t.Fatalf("decided %+v", p)
	}
	if n := s.Snapshot(noon).NodeByName("n"); n.Used.At(cluster.GPU) != 1000 {
		t.Error("what was decided is not assumed")
	}
	if n := snap.NodeByName("n"); n.Used.At(cluster.GPU) != 0 {
		t.Error("what was decided on has changed")
	}
	if d.Ready() != nil {
		t.Error("there is more")
	}
	d.Advance()
	if !d.Due(noon) {
		t.Error("the Store has changed: the other gang may now have a reason to wait")
	}
	if _, plans, r := d.Cycle(t.Context(), noon); len(plans) > 0 || len(r.Trace.Gangs) != 1 {
		t.Errorf("decided %v on %v", plans, r.Trace.Gangs)
	}
	if d.Due(noon.Add(1)) {
		t.Error("a cycle is due, and nothing has changed")
	}
	if at := d.Wake(); at == cluster.Forever || d.Due(at.Add(-1)) || !d.Due(at) {
		t.Errorf("the assumption ends at %d", int64(at.Sub(noon)))
	}
	if !d.Due(noon.Add(-1)) {
		t.Error("the clock was set back, and no cycle is due")
	}
	s.Apply(cluster.NodeState{Name: "m", UID: "m"})
	if !d.Due(noon.Add(1)) {
		t.Error("there is another node, and no cycle is due")
	}
	if d.Skip(); d.Due(noon.Add(1)) {
		t.Error("what needs no cycle makes one due")
	}
}

// TestDriverCutShort: a cycle whose ctx ends has decided nothing more, says so, and ends as any other.
func TestDriverCutShort(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s := pair()
	d := driver(t, s)
	if _, plans, r := d.Cycle(ctx, noon); len(plans) > 0 || !r.Trace.Truncated {
		t.Errorf("decided %v", plans)
	}
	s.Apply(cluster.NodeState{Name: "m", UID: "m"})
	if _, plans, _ := d.Cycle(t.Context(), noon); len(plans) != 1 {
		t.Errorf("then decided %v", plans)
	}
}

// TestDriverOrder: any other order of calls is a programming error, and a cycle that panicked can be abandoned.
func TestDriverOrder(t *testing.T) {
	t.Parallel()
	s := pair()
	fail := true
	d := driver(t, s, func(*engine.Session) {
		if fail {
			panic("a defect")
		}
	})
	panics := func(want string, do func()) {
		t.Helper()
		defer func() {
			if text, _ := recover().(string); !strings.Contains(text, want) {
				t.Errorf("%q, want %q", text, want)
			}
		}()
		do()
	}
	panics("Ready outside a cycle", func() { d.Ready() })
	panics("Advance before", func() { d.Advance() })
	d.Begin(t.Context(), noon)
	panics("Begin within a cycle", func() { d.Begin(t.Context(), noon) })
	panics("Advance before", func() { d.Advance() })
	if d.Ready() == nil {
		t.Fatal("nothing is decided")
	}
	panics("Advance before", func() { d.Advance() })
	panics("a defect", func() { d.Ready() })
	d.Abandon()
	fail = false
	if !d.Due(noon) {
		t.Error("the cycle that was abandoned is not due again")
	}
	if snap, plans, _ := d.Cycle(t.Context(), noon); len(plans) > 0 || snap.NodeByName("n").Used.At(cluster.GPU) != 1000 {
		t.Errorf("what was decided before does not stand: %v", plans)
	}
}

package budgets

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// fixture is a store with one node, a queue "top" above "open" and "shut", the latter with budgets that block, and what a
// test adds.
type fixture struct{ *cluster.Store }

func newFixture() fixture {
	w := fixture{cluster.NewStore(cluster.Options{})}
	w.Apply(cluster.NodeState{Name: "n", UID: "n", Allocatable: []cluster.Quantity{{Name: "pods", Value: 100}}})
	w.Apply(cluster.QueueState{Name: "top", UID: "top"})
	w.Apply(cluster.QueueState{Name: "open", UID: "open", Parent: "top"})
	w.Apply(cluster.QueueState{Name: "dept", UID: "dept", Parent: "top", BudgetsBlock: true})
	w.Apply(cluster.QueueState{Name: "shut", UID: "shut", Parent: "dept"})
	return w
}

// gang adds a gang of n running pods that need each other; app labels them.
func (w fixture) gang(name, queue, app string, n int) {
	key := cluster.Key{Face: "kai", Namespace: "ns", Name: name}
	w.Apply(cluster.GangState{Key: key, UID: name, Queue: queue, Preemptible: true, Sets: cluster.FlatTree(int32(n))})
	for i := range n {
		uid := fmt.Sprintf("%s-%d", name, i)
		w.Apply(cluster.PodState{
			UID: uid, Namespace: "ns", Name: uid, Labels: map[string]string{"app": app}, Requests: []cluster.Quantity{{Name: "pods", Value: 1}},
			Phase: cluster.Running, NodeName: "n", Gang: key, Ours: true,
		})
	}
}

// budget adds a budget for the pods of an app; "" for a selector that means all, "-" for none.
func (w fixture) budget(namespace, name, app string, allowed int32) {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	switch app {
	case "-":
	case "":
		b.Spec.Selector = &metav1.LabelSelector{}
	default:
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	b.Status.DisruptionsAllowed = allowed
	w.Apply(cluster.ObjectState{Kind: cluster.PodDisruptionBudgets, Key: namespace + "/" + name, Object: b})
}

// run opens a session with the plugin alone.
func (w fixture) run(t interface {
	Helper()
	Fatal(...any)
}, f func(*engine.Session),
) {
	t.Helper()
	e, err := engine.New(engine.Profile{Actions: []string{"test"}, Tiers: [][]engine.PluginUse{{{Name: Name}}}}, engine.Registry{
		Actions: map[string]func() engine.Action{"test": func() engine.Action { return action(f) }},
		Plugins: map[string][]policy.Factory{Name: {Factory}},
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Run(context.Background(), w.Snapshot(cluster.UnixNano(1)), func(engine.Plan) {})
}

type action func(*engine.Session)

// Run implements engine.Action.
func (f action) Run(s *engine.Session) { f(s) }

// unit returns what a gang gives next.
func unit(t *testing.T, s *engine.Session, name string) *ledger.VictimUnit {
	t.Helper()
	u, ok := s.Ledger.NextUnit(gang(s, name))
	if !ok {
		t.Fatalf("gang %s has nothing left", name)
	}
	return &u
}

func gang(s *engine.Session, name string) *ledger.GangState {
	return s.Ledger.Gang(s.Snap.GangByKey(cluster.Key{Face: "kai", Namespace: "ns", Name: name}).ID)
}

// TestWhoIsMeant: which pods use which budgets up.
func TestWhoIsMeant(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given func(fixture)
		want  string // the budget that is violated by evicting both pods of gang "g" of app "x"
	}{
		"enough":             {func(w fixture) { w.budget("ns", "b", "x", 2) }, ""},
		"one too few":        {func(w fixture) { w.budget("ns", "b", "x", 1) }, "ns/b"},
		"another app":        {func(w fixture) { w.budget("ns", "b", "y", 0) }, ""},
		"another namespace":  {func(w fixture) { w.budget("other", "b", "x", 0) }, ""},
		"everybody":          {func(w fixture) { w.budget("ns", "b", "", 0) }, "ns/b"},
		"no selector":        {func(w fixture) { w.budget("ns", "b", "-", 0) }, ""},
		"two, one violated":  {func(w fixture) { w.budget("ns", "a", "x", 2); w.budget("ns", "b", "", 1) }, "ns/b"},
		"two, both violated": {func(w fixture) { w.budget("ns", "b", "x", 0); w.budget("ns", "a", "", 1) }, "ns/a"},
		"a selector nobody can read": {func(w fixture) {
			w.budget("ns", "a", "x", 2)
			b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}}
			b.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}
			w.Apply(cluster.ObjectState{Kind: cluster.PodDisruptionBudgets, Key: "ns/b", Object: b})
		}, ""},
		"one does not run yet": {func(w fixture) {
			w.budget("ns", "b", "x", 1)
			st := w.pod("g-1")
			st.Phase = cluster.Bound
			w.Apply(st)
		}, ""},
		"one more goes already": {func(w fixture) {
			w.gang("gone", "open", "x", 1)
			w.budget("ns", "b", "x", 2)
			w.AssumeEvicted("gone-0", cluster.Key{}, cluster.Forever)
		}, "ns/b"},
		"one more is gone": {func(w fixture) {
			w.gang("gone", "open", "x", 1)
			w.budget("ns", "b", "x", 2)
			st := w.pod("gone-0")
			st.Phase, st.DeletedAt = cluster.Releasing, cluster.UnixNano(1)
			w.Apply(st)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture()
			w.gang("g", "open", "x", 2)
			c.given(w)
			w.run(t, func(s *engine.Session) {
				tier, broken := s.Rules.Tier(unit(t, s, "g"))
				if broken != c.want || (tier == 1) != (c.want != "") {
					t.Errorf("tier %d for %q, want %q", tier, broken, c.want)
				}
			})
		})
	}
}

// pod returns the event that would make a pod as it is.
func (w fixture) pod(uid string) cluster.PodState {
	snap := w.Snapshot(cluster.UnixNano(1))
	var st cluster.PodState
	snap.EachPod(func(p *cluster.Pod) {
		if p.UID == uid {
			st = p.State(snap.Dims)
		}
	})
	return st
}

// TestBlocks: a violation bars the unit where its queue or one above says so, whatever the cause, and nowhere else.
func TestBlocks(t *testing.T) {
	t.Parallel()
	w := newFixture()
	w.gang("free", "open", "x", 1)
	w.gang("kept", "shut", "x", 1)
	w.gang("taker", "open", "z", 1)
	w.budget("ns", "b", "x", 1)
	w.run(t, func(s *engine.Session) {
		check := func(when, name, want string) {
			t.Helper()
			for _, cause := range []policy.EvictionCause{policy.Reclaim, policy.Preempt, policy.Consolidation} {
				_, v := s.Rules.CheckUnit(cause, gang(s, "taker"), nil, unit(t, s, name))
				got := ""
				if !v.Yes() {
					got = v.String()
				}
				if got != want {
					t.Errorf("%s, %s of %s: %q, want %q", when, cause, name, got, want)
				}
			}
		}
		check("at first", "free", "")
		check("at first", "kept", "")
		st := s.Ledger.Begin()
		st.EvictUnit(unit(t, s, "taker"))
		check("after another app's", "kept", "")
		st.Discard()
		st = s.Ledger.Begin()
		mark := st.Mark()
		st.EvictUnit(unit(t, s, "free"))
		check("after one", "kept", "PodDisruptionBudget ns/b allows no more disruptions")
		st.RollbackTo(mark)
		st.EvictUnit(unit(t, s, "kept"))
		check("after the other", "free", "")
		st.Discard()
		check("at last", "kept", "")
	})
}

// TestIgnored: a profile may do without.
func TestIgnored(t *testing.T) {
	t.Parallel()
	open, unknown, err := Factory.New(policy.Arguments{"mode": "ignore", "strange": "x"})
	if err != nil || !slices.Equal(unknown, []string{"strange"}) {
		t.Fatalf("unknown %v, error %v", unknown, err)
	}
	if open(nil) != nil {
		t.Error("the plugin has points although it is to ignore budgets")
	}
}

// TestCostsNothingWithoutBudgets: there is nobody to ask or to tell.
func TestCostsNothingWithoutBudgets(t *testing.T) {
	t.Parallel()
	for _, has := range []bool{false, true} {
		w := newFixture()
		if has {
			w.budget("ns", "b", "x", 1)
		}
		var opened policy.Instance
		e, err := engine.New(engine.Profile{Tiers: [][]engine.PluginUse{{{Name: Name}}}}, engine.Registry{
			Plugins: map[string][]policy.Factory{Name: {{New: func(args policy.Arguments) (func(*policy.View) policy.Instance, []string, error) {
				open, unknown, err := Factory.New(args)
				return func(v *policy.View) policy.Instance { opened = open(v); return opened }, unknown, err
			}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		e.Run(t.Context(), w.Snapshot(cluster.UnixNano(1)), func(engine.Plan) {})
		if (opened != nil) != has {
			t.Errorf("budgets %t, instance %T", has, opened)
		}
	}
}

// TestLedger draws budgets and operations, and compares what is left of each budget with a count over the pods.
func TestLedger(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newFixture()
		for i := range rapid.IntRange(1, 5).Draw(t, "gangs") {
			w.gang(fmt.Sprint("g", i), "open", rapid.SampledFrom([]string{"x", "y"}).Draw(t, "app"), rapid.IntRange(1, 3).Draw(t, "pods"))
		}
		allowed := map[string]int32{}
		for _, app := range []string{"", "x", "y"} {
			allowed[app] = rapid.Int32Range(0, 4).Draw(t, "allowed")
			w.budget("ns", "b"+app, app, allowed[app])
		}
		w.run(t, func(s *engine.Session) {
			var pods []*cluster.Pod
			s.Snap.EachPod(func(p *cluster.Pod) { pods = append(pods, p) })
			const there, gone, moved = 0, 1, 2
			at := map[cluster.PodID]int{}
			check := func() {
				left := maps.Clone(allowed)
				for _, p := range pods {
					if at[p.ID] != there {
						left[""]--
						left[p.Labels["app"]]--
					}
				}
				for _, p := range pods {
					if at[p.ID] != there {
						continue
					}
					want := ""
					switch {
					case left[""] < 1:
						want = "ns/b"
					case left[p.Labels["app"]] < 1:
						want = "ns/b" + p.Labels["app"]
					}
					_, got := s.Rules.Tier(&ledger.VictimUnit{Gang: s.Ledger.Gang(p.Gang), Pods: []*cluster.Pod{p}})
					if d := cmp.Diff(want, got); d != "" {
						t.Fatalf("%s (-want +got):\n%s", p.Name, d)
					}
				}
			}
			st := s.Ledger.Begin()
			type state struct {
				mark ledger.Mark
				at   map[cluster.PodID]int
			}
			var points []state
			for range 20 {
				p := rapid.SampledFrom(pods).Draw(t, "pod")
				switch rapid.IntRange(0, 4).Draw(t, "step") {
				case 0:
					points = append(points, state{st.Mark(), maps.Clone(at)})
				case 1:
					if n := len(points); n > 0 {
						k := rapid.IntRange(0, n-1).Draw(t, "back to")
						st.RollbackTo(points[k].mark)
						at = maps.Clone(points[k].at)
						points = points[:k+1]
						check()
					}
				default:
					switch at[p.ID] {
					case there:
						st.Evict(p)
						at[p.ID] = gone
					case gone:
						if rapid.Bool().Draw(t, "spare") {
							st.Spare(p)
							at[p.ID] = there
						} else {
							st.Move(p, p.Node)
							at[p.ID] = moved
						}
					}
					if rapid.Bool().Draw(t, "ask") {
						check()
					}
				}
			}
			st.Discard()
			clear(at)
			check()
		})
	})
}

// BenchmarkTier asks about 4,000 pods with 100 budgets in their namespace.
func BenchmarkTier(b *testing.B) {
	w := newFixture()
	for i := range 100 {
		w.budget("ns", fmt.Sprint("b", i), fmt.Sprint("app", i), 1)
	}
	for i := range 4000 {
		w.gang(fmt.Sprint("g", i), "open", fmt.Sprint("app", i%200), 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.run(b, func(s *engine.Session) {
			n := 0
			s.Ledger.EachGang(func(g *ledger.GangState) {
				u, _ := s.Ledger.NextUnit(g)
				tier, _ := s.Rules.Tier(&u)
				n += tier
			})
			if n != 0 {
				b.Fatal(n)
			}
		})
	}
}

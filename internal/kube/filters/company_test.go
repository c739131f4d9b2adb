package filters

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/plugins/podaffinity"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// sums returns what kube-scheduler's InterPodAffinity says of each node to each waiting pod, before it normalises, with
// pods where on says; "" for nowhere.
func sums(t interface{ Fatal(...any) }, p *plant, on map[string]string) map[string]int64 {
	var there []*v1.Pod
	for _, o := range p.pods {
		if on[o.Name] != "" {
			o = o.DeepCopy()
			o.Spec.NodeName = on[o.Name]
			there = append(there, o)
		}
	}
	u := &upstream{snapshot: cache.NewSnapshot(there, p.nodes), factory: informers.NewSharedInformerFactory(nil, 0)}
	for _, o := range p.rest {
		if n, ok := o.(*v1.Namespace); ok {
			if err := u.factory.Core().V1().Namespaces().Informer().GetIndexer().Add(n); err != nil {
				t.Fatal(err)
			}
		}
	}
	made, err := interpodaffinity.New(context.Background(), &config.InterPodAffinityArgs{HardPodAffinityWeight: 1}, u, features())
	if err != nil {
		t.Fatal(err)
	}
	scorer := made.(*interpodaffinity.InterPodAffinity)
	nodes, err := u.snapshot.NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int64{}
	for _, o := range p.pods {
		if on[o.Name] != "" {
			continue
		}
		state := framework.NewCycleState()
		s := scorer.PreScore(context.Background(), state, o, nil)
		if !s.IsSuccess() && !s.IsSkip() {
			t.Fatal(s.Message())
		}
		for _, n := range nodes {
			x := int64(0)
			if s.IsSuccess() {
				x, _ = scorer.Score(context.Background(), state, o, n)
			}
			out[o.Name+" on "+n.Node().Name] = x * 1_000_000 * policy.ScorePoint
		}
	}
	return out
}

// company is podaffinity in a run, kept so that a test can ask it.
type company struct {
	opened interface {
		policy.CompanyScore
		policy.Observer
	}
}

// watching declares podaffinity so that what is opened is kept in c.
func (c *company) watching() policy.Factory {
	f := podaffinity.Factory
	return policy.Factory{Points: f.Points, New: func(args policy.Arguments) (func(*policy.View) policy.Instance, []string, error) {
		open, unknown, err := f.New(args)
		return func(v *policy.View) policy.Instance {
			inst := open(v)
			c.opened = inst.(interface {
				policy.CompanyScore
				policy.Observer
			})
			return inst
		}, unknown, err
	}}
}

// scores returns what podaffinity says of each node to each pod that has none.
func (c *company) scores(s *engine.Session, on map[string]string) map[string]int64 {
	out := map[string]int64{}
	s.Snap.EachPod(func(p *pod) {
		if on[p.Name] != "" {
			return
		}
		kind := c.opened.Kind(p)
		for _, id := range s.Snap.NodeOrder {
			x := int64(0)
			if kind != 0 {
				points, _ := c.opened.Company(kind)
				x = points[id]
			}
			out[p.Name+" on "+s.Snap.Node(id).Name] = x
		}
	})
	return out
}

// TestPodAffinityScores gives random clusters to kube-scheduler's InterPodAffinity and to podaffinity: as they are, while
// pods are evicted and placed, and once that is undone.
func TestPodAffinityScores(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t, false)
		on := map[string]string{}
		for _, o := range p.pods {
			on[o.Name] = o.Spec.NodeName
		}
		c := &company{}
		agree := func(s *engine.Session, when string) {
			t.Helper()
			if d := cmp.Diff(sums(t, p, on), c.scores(s, on)); d != "" {
				t.Fatalf("%s, upstream and we disagree (-upstream +ours):\n%s", when, d)
			}
		}
		run := actionFunc(func(s *engine.Session) {
			if rapid.Bool().Draw(t, "warm") {
				agree(s, "at first")
			}
			st := s.Ledger.Begin()
			type point struct {
				mark ledger.Mark
				pod  string
				node string
			}
			var done []point
			for i := range rapid.IntRange(0, 8).Draw(t, "steps") {
				o := podNamed(s.Snap, rapid.SampledFrom(p.pods).Draw(t, "pod").Name)
				was := point{st.Mark(), o.Name, on[o.Name]}
				switch {
				case o.Phase.Active() && on[o.Name] != "" && on[o.Name] == o.NodeName:
					st.Evict(o)
					on[o.Name] = ""
				case o.Phase == cluster.Pending && on[o.Name] == "":
					n := s.Snap.Node(rapid.SampledFrom(s.Snap.NodeOrder).Draw(t, "node"))
					st.Place(o, n.ID)
					on[o.Name] = n.Name
				case o.Phase.Active() && on[o.Name] == "" && rapid.Bool().Draw(t, "spare"):
					st.Spare(o)
					on[o.Name] = o.NodeName
				default:
					continue
				}
				done = append(done, was)
				if rapid.Bool().Draw(t, "ask") {
					agree(s, fmt.Sprintf("after step %d", i))
				}
				if len(done) > 0 && rapid.IntRange(0, 3).Draw(t, "back") == 0 {
					last := done[len(done)-1]
					done = done[:len(done)-1]
					st.RollbackTo(last.mark)
					on[last.pod] = last.node
				}
			}
			agree(s, "after all steps")
			for len(done) > 0 {
				last := done[len(done)-1]
				done = done[:len(done)-1]
				st.RollbackTo(last.mark)
				on[last.pod] = last.node
			}
			agree(s, "after they were undone")
		})
		e, err := engine.New(engine.Profile{Actions: []string{"test"}, Tiers: [][]engine.PluginUse{{{Name: podaffinity.Name}}}}, engine.Registry{
			Actions: map[string]func() engine.Action{"test": func() engine.Action { return run }},
			Plugins: map[string][]policy.Factory{podaffinity.Name: {c.watching()}},
		})
		if err != nil {
			t.Fatal(err)
		}
		e.Run(context.Background(), p.store.Snapshot(cluster.UnixNano(1)), func(engine.Plan) {})
	})
}

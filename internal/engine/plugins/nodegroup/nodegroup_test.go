package nodegroup_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nodegroup"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// site is nodes of one CPU each in groups ("" for none), a queue and one above it with what they say of groups, and one pod.
type site struct {
	nodes       []string
	full        []bool
	above, own  *cluster.NodeGroups
	args        policy.Arguments
	strict      bool
	ordered     bool
	byHierarchy bool
}

// place is the node on which the engine places the pod; "" for none.
func (s *site) place(t *testing.T) string {
	t.Helper()
	store := cluster.NewStore(cluster.Options{})
	for i, g := range s.nodes {
		n := cluster.NodeState{
			Name: fmt.Sprintf("n%d", i), UID: fmt.Sprint(i), Allocatable: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "pods", Value: 10}},
		}
		if g != "" {
			n.Labels = map[string]string{"volcano.sh/nodegroup-name": g}
		}
		store.Apply(n)
		if s.full[i] {
			store.Apply(cluster.PodState{
				UID: "on" + n.Name, Name: "on" + n.Name, Phase: cluster.Running, NodeName: n.Name, Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}},
			})
		}
	}
	weight := []cluster.Quantity{{Name: "cpu", Value: 1000}}
	store.Apply(
		cluster.QueueState{Name: "volcano:root", UID: "root", Weight: weight},
		cluster.QueueState{Name: "volcano:above", UID: "above", Parent: "volcano:root", Weight: weight, NodeGroups: s.above},
		cluster.QueueState{Name: "volcano:q", UID: "q", Display: "q", Parent: "volcano:above", Weight: weight, NodeGroups: s.own},
		cluster.GangState{Key: cluster.Key{Face: "volcano", Namespace: "x", Name: "g"}, UID: "g", Queue: "volcano:q", Preemptible: true, Sets: cluster.FlatTree(1)},
		cluster.PodState{
			UID: "p", Namespace: "x", Name: "p", Ours: true, Gang: cluster.Key{Face: "volcano", Namespace: "x", Name: "g"},
			Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "pods", Value: 1}},
		},
	)
	p := profile.BuiltIn()
	p.Faces = []engine.Face{{Name: "volcano", Actions: []string{"allocate"}, Tiers: [][]engine.PluginUse{{{Name: nodegroup.Name, Arguments: s.args}}}}}
	e, err := engine.New(p, builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	at := ""
	e.Run(context.Background(), store.Snapshot(cluster.UnixNano(1)), func(plan engine.Plan) {
		for _, b := range plan.Bundles {
			for _, in := range b.Intents {
				at = in.Node
			}
		}
	})
	return at
}

// TestTable: who may use which node, and which comes first, by the description's words. Nodes are n0 in group a, n1 in b, n2 in c and n3 in none.
func TestTable(t *testing.T) {
	t.Parallel()
	groups := func(required, preferred, avoided, refused string) *cluster.NodeGroups {
		return &cluster.NodeGroups{Required: strings.Fields(required), Preferred: strings.Fields(preferred), Avoided: strings.Fields(avoided), Refused: strings.Fields(refused)}
	}
	loose, order := policy.Arguments{"strict": "false"}, policy.Arguments{"enablePreferredOrder": "true"}
	tree := policy.Arguments{"enableHierarchy": "true"}
	for name, c := range map[string]struct { // order: each for itself
		args       policy.Arguments
		own, above *cluster.NodeGroups
		full       string
		want       string
	}{
		"required counts 100, preferred 50":             {nil, groups("b", "a", "", ""), nil, "", "n1"},
		"preferred counts 50, preferred-anti -1":        {nil, groups("", "b", "a", ""), nil, "", "n1"},
		"preferred-anti may be used":                    {nil, groups("", "b", "a", ""), nil, "n1", "n0"},
		"what is not named may not":                     {nil, groups("", "b", "", ""), nil, "n1", ""},
		"required-anti wins":                            {nil, groups("a", "a", "a", "a"), nil, "", ""},
		"required-anti alone names nothing":             {nil, groups("", "", "", "a"), nil, "", ""},
		"strict: no queue without affinity, no label":   {nil, nil, nil, "", ""},
		"without order both preferred count 50":         {nil, groups("", "c a", "", ""), nil, "", "n0"},
		"in order 50·(2−0)/2 and 50·(2−1)/2":            {order, groups("", "c a", "", ""), nil, "", "n2"},
		"required and preferred add up":                 {nil, groups("a b", "b", "", ""), nil, "", "n1"},
		"not strict: no label is for all":               {loose, groups("", "", "a", ""), nil, "n0", "n3"},
		"not strict: 0 of no label before -1":           {loose, groups("", "", "a", ""), nil, "", "n3"},
		"not strict: a label is for who says nothing":   {loose, nil, nil, "n0", "n1"},
		"not strict: and not for who says another":      {loose, groups("b", "", "", ""), nil, "n1 n3", ""},
		"without the switch nobody has those above":     {nil, nil, groups("b", "", "", ""), "", ""},
		"by hierarchy the queue above says it":          {tree, nil, groups("b", "", "", ""), "", "n1"},
		"by hierarchy the nearest that says anything":   {tree, groups("c", "", "", ""), groups("b", "", "", ""), "", "n2"},
		"by hierarchy nobody says anything, and strict": {tree, nil, nil, "", ""},
	} {
		s := site{nodes: []string{"a", "b", "c", ""}, own: c.own, above: c.above, args: c.args}
		for i := range s.nodes {
			s.full = append(s.full, slices.Contains(strings.Fields(c.full), fmt.Sprintf("n%d", i)))
		}
		if got := s.place(t); got != c.want {
			t.Errorf("%s: on %q, want %q", name, got, c.want)
		}
	}
}

// literal is the description, word by word: which node, "" for none; of equal ones the first by name.
func (s *site) literal() string {
	affinity := s.own
	if affinity == nil && s.byHierarchy {
		affinity = s.above
	}
	best, at := -1e9, ""
	for i, group := range s.nodes {
		allowed, score := false, 0.0
		switch {
		case group == "":
			allowed = !s.strict
		case affinity == nil:
			allowed = !s.strict
		default:
			in := func(list []string) bool {
				for _, x := range list {
					if x == group {
						return true
					}
				}
				return false
			}
			allowed = (in(affinity.Required) || in(affinity.Preferred) || in(affinity.Avoided)) && !in(affinity.Refused)
			if in(affinity.Required) {
				score += 100
			}
			if in(affinity.Preferred) {
				n := float64(len(affinity.Preferred))
				for i, x := range affinity.Preferred {
					if x == group {
						if s.ordered {
							score += 50 * (n - float64(i)) / n
						} else {
							score += 50
						}
						break
					}
				}
			}
			if in(affinity.Avoided) {
				score--
			}
		}
		if allowed && !s.full[i] && score > best {
			best, at = score, fmt.Sprintf("n%d", i)
		}
	}
	return at
}

// TestOracle: on random sites a pod goes where the description says.
func TestOracle(t *testing.T) {
	t.Parallel()
	placed := 0
	for i := range 1500 {
		r := rand.New(rand.NewPCG(14, uint64(i)))
		list := func() (out []string) {
			for _, k := range r.Perm(4)[:r.IntN(3)] {
				out = append(out, string(rune('a'+k)))
			}
			return out
		}
		says := func() *cluster.NodeGroups {
			if r.IntN(3) == 0 {
				return nil
			}
			g := cluster.NodeGroups{Required: list(), Preferred: list(), Avoided: list(), Refused: list()}
			if len(g.Required)+len(g.Preferred)+len(g.Avoided)+len(g.Refused) == 0 {
				return nil
			}
			return &g
		}
		s := site{own: says(), above: says(), strict: r.IntN(2) == 0, ordered: r.IntN(2) == 0, byHierarchy: r.IntN(2) == 0}
		s.args = policy.Arguments{"strict": fmt.Sprint(s.strict), "enablePreferredOrder": fmt.Sprint(s.ordered), "enableHierarchy": fmt.Sprint(s.byHierarchy)}
		for range 1 + r.IntN(6) {
			s.nodes, s.full = append(s.nodes, [...]string{"", "a", "b", "c", "d"}[r.IntN(5)]), append(s.full, r.IntN(4) == 0)
		}
		got, want := s.place(t), s.literal()
		if got != want {
			t.Errorf("site %d: on %q, want %q: %+v own %+v above %+v", i, got, want, s, s.own, s.above)
		}
		if got != "" {
			placed++
		}
	}
	if placed < 300 || placed > 1200 {
		t.Errorf("%d of 1500 are placed", placed)
	}
}

// TestArguments: what cannot be read is refused.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, name := range []string{nodegroup.StrictArgument, nodegroup.OrderArgument} {
		_, unknown, err := nodegroup.Factory.New(policy.Arguments{name: "perhaps"})
		if want := fmt.Sprintf("argument %q is %q; it must be true or false", name, "perhaps"); err == nil || err.Error() != want || unknown != nil {
			t.Errorf("%v, %v, want %s", err, unknown, want)
		}
	}
	if _, unknown, err := nodegroup.Factory.New(policy.Arguments{"strict": "true", "whim": "1"}); err != nil || fmt.Sprint(unknown) != "[whim]" {
		t.Errorf("%v, %v", err, unknown)
	}
}

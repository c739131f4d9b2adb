package predicates_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/plugins/predicates"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// TestManyNodes: a class that is asked about many nodes at once, whose taints are numbered and which are found by their labels, is
// told of each what the upstream library and the definition of a toleration say, and the same as of that node alone.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := cluster.NewStore(cluster.Options{})
		pick := func(of ...string) string { return rapid.SampledFrom(of).Draw(t, "pick") }
		var before []v1.Taint
		for i := range rapid.IntRange(1, 80).Draw(t, "nodes") {
			n := cluster.NodeState{Name: fmt.Sprint("n", i), UID: fmt.Sprint("n", i), Labels: map[string]string{}}
			for range rapid.IntRange(0, 3).Draw(t, "labels") {
				n.Labels[pick("a", "b", "size")] = pick("", "x", "y", "1", "7", "007", "-3", "12x")
			}
			if i > 0 && rapid.IntRange(0, 9).Draw(t, "like the one before") > 0 {
				n.Taints = slices.Clone(before)
				if len(n.Taints) > 0 && rapid.Bool().Draw(t, "but for a value") {
					n.Taints[rapid.IntRange(0, len(n.Taints)-1).Draw(t, "which")].Value = pick("x", "y")
				}
			} else {
				for range rapid.IntRange(0, 3).Draw(t, "taints") {
					n.Taints = append(n.Taints, v1.Taint{Key: pick("k", "l"), Value: pick("", "x", "y"), Effect: effect(pick)})
				}
			}
			before = n.Taints
			s.Apply(n)
		}
		snap := s.Snapshot(cluster.UnixNano(1))
		spec := cluster.ClassSpec{}
		for range rapid.IntRange(0, 6).Draw(t, "tolerations") {
			e := effect(pick)
			if rapid.Bool().Draw(t, "any effect") {
				e = ""
			}
			spec.Tolerations = append(spec.Tolerations, v1.Toleration{
				Key: pick("", "k", "l", "m"), Operator: v1.TolerationOperator(pick("", "Equal", "Exists", "Odd")), Value: pick("", "x", "y"), Effect: e,
			})
		}
		if rapid.Bool().Draw(t, "selector") {
			spec.NodeSelector = map[string]string{pick("a", "b"): pick("", "x", "y")}
		}
		if rapid.Bool().Draw(t, "affinity") {
			spec.NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: drawTerms(t, pick)}
		}
		c := &cluster.Class{ClassSpec: spec}
		var nodes []*cluster.Node
		for _, id := range snap.NodeOrder {
			nodes = append(nodes, snap.Node(id))
		}
		no := make([]*policy.Verdict, len(nodes))
		session(t, snap, func(i policy.NodeStatic) { i.CheckStatic(c, nodes, no) })
		for k, n := range nodes {
			one := make([]*policy.Verdict, 1)
			session(t, snap, func(i policy.NodeStatic) { i.CheckStatic(c, nodes[k:k+1], one) })
			if (no[k] == nil) != (one[0] == nil) || no[k] != nil && *no[k] != *one[0] {
				t.Fatalf("node %s: among others %v, alone %v", n.Name, no[k], one[0])
			}
			if want := slowly(c, n); want != (no[k] == nil) {
				t.Fatalf("node %s %v %v: may be used %v, and %v is said to %+v", n.Name, n.Labels, n.Taints, want, no[k], spec)
			}
		}
	})
}

func effect(pick func(...string) string) v1.TaintEffect {
	return v1.TaintEffect(pick("NoSchedule", "NoExecute", "PreferNoSchedule"))
}

func drawTerms(t *rapid.T, pick func(...string) string) *v1.NodeSelector {
	out := &v1.NodeSelector{}
	for range rapid.IntRange(0, 3).Draw(t, "terms") {
		term := v1.NodeSelectorTerm{}
		for range rapid.IntRange(0, 2).Draw(t, "expressions") {
			r := v1.NodeSelectorRequirement{
				Key: pick("a", "b", "size", "absent"), Operator: v1.NodeSelectorOperator(pick("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")),
			}
			switch r.Operator {
			case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
				r.Values = []string{pick("", "x", "7"), pick("y", "1", "12x", "y", "1", "x_", "a b", "long", ".y", "x-y")}
				r.Values[1] = strings.ReplaceAll(r.Values[1], "long", strings.Repeat("y", 64))
			case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
				r.Values = []string{pick("0", "1", "7", "12", "7", "-3", "x")}
			}
			term.MatchExpressions = append(term.MatchExpressions, r)
		}
		for range rapid.IntRange(0, 1).Draw(t, "fields") {
			term.MatchFields = append(term.MatchFields, v1.NodeSelectorRequirement{
				Key: pick("metadata.name", "metadata.name", "other"), Operator: v1.NodeSelectorOperator(pick("In", "NotIn")), Values: []string{pick("n0", "n7", "gone", "")},
			})
		}
		out.NodeSelectorTerms = append(out.NodeSelectorTerms, term)
	}
	return out
}

// slowly says whether pods of a class may use a node, as the API defines it.
func slowly(c *cluster.Class, n *cluster.Node) bool {
	for i := range n.Taints {
		x, ok := &n.Taints[i], n.Taints[i].Effect == v1.TaintEffectPreferNoSchedule
		for _, o := range c.Tolerations {
			key := o.Key == x.Key || o.Key == "" && o.Operator == v1.TolerationOpExists
			value := o.Operator == v1.TolerationOpExists || (o.Operator == "" || o.Operator == v1.TolerationOpEqual) && o.Key != "" && o.Value == x.Value
			ok = ok || key && value && (o.Effect == "" || o.Effect == x.Effect)
		}
		if !ok {
			return false
		}
	}
	pod, node := &v1.Pod{}, &v1.Node{}
	pod.Spec.NodeSelector = c.NodeSelector
	pod.Spec.Affinity = &v1.Affinity{NodeAffinity: c.NodeAffinity}
	node.Name, node.Labels = n.Name, n.Labels
	if a := c.NodeAffinity; a != nil && a.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		if _, err := nodeaffinity.NewNodeSelector(a.RequiredDuringSchedulingIgnoredDuringExecution); err != nil {
			return false // what cannot be parsed matches nothing
		}
	}
	fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return fits && err == nil
}

// session calls f with an instance of the plugin.
func session(t *rapid.T, snap *cluster.Snapshot, f func(policy.NodeStatic)) {
	open, _, err := predicates.Factory.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	reg := engine.Registry{
		Plugins: map[string][]policy.Factory{"probe": {policy.Opens(func(v *policy.View) struct{} { f(open(v).(policy.NodeStatic)); return struct{}{} })}},
		Actions: map[string]func() engine.Action{},
	}
	e, err := engine.New(engine.Profile{Tiers: [][]engine.PluginUse{{{Name: "probe"}}}}, reg)
	if err != nil {
		t.Fatal(err)
	}
	e.Run(context.Background(), snap, func(engine.Plan) {})
}

package nodescores_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nodescores"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// want is a node's score in billionths of a point, for the plugin with the arguments, of a node with so much, of which so much is used, for a pod that asks for so much.
type want struct {
	plugin          string
	args            policy.Arguments
	node, used, pod string
	score           string
}

// amounts reads cpu=MILLI memory=BYTES gpu=MILLI NAME=N.
func amounts(text string) (out []cluster.Quantity) {
	for word := range strings.FieldsSeq(text) {
		name, n, _ := strings.Cut(word, "=")
		q := cluster.Quantity{Name: name}
		if _, err := fmt.Sscan(n, &q.Value); err != nil {
			panic(err)
		}
		out = append(out, q)
	}
	return out
}

// TestScores: the formulas of Volcano's documentation, by numbers worked out by hand.
func TestScores(t *testing.T) {
	t.Parallel()
	const binpack, nodeorder, fit = nodescores.Binpack, nodescores.NodeOrder, nodescores.StrategyFit
	only := func(name, weight string) policy.Arguments {
		args := policy.Arguments{"leastrequested.weight": "0", "balancedresource.weight": "0", "nodeaffinity.weight": "0", "tainttoleration.weight": "0"}
		args[name] = weight
		return args
	}
	for _, w := range []want{
		// CPU 3/4, memory 1/2: (75 + 50) / 2.
		{binpack, nil, "cpu=4000 memory=100", "cpu=2000 memory=40", "cpu=1000 memory=10", "62500000000"},
		// CPU thrice: (225 + 50) / 4, five times.
		{binpack, policy.Arguments{"binpack.cpu": "3", "binpack.weight": "5"}, "cpu=4000 memory=100", "cpu=2000 memory=40", "cpu=1000 memory=10", "343750000000"},
		// What is not asked for does not count, and neither does what has no weight.
		{binpack, nil, "cpu=4000 memory=100 gpu=8000", "cpu=2000 memory=40", "cpu=1000 gpu=1000", "75000000000"},
		// GPUs by the name that files have for them: (75 + 7 * 12.5) / 8, cut.
		{binpack, policy.Arguments{"binpack.resources": "nvidia.com/gpu, example.com/nic", "binpack.resources.nvidia.com/gpu": "7"}, "cpu=4000 gpu=8000", "cpu=2000", "cpu=1000 gpu=1000", "20312500000"},
		{binpack, nil, "cpu=3000", "", "cpu=1000", "33333333333"},
		// CPU 1/4 is left, memory 1/2: (25 + 50) / 2, cut.
		{nodeorder, only("leastrequested.weight", "1"), "cpu=4000 memory=100", "cpu=2000 memory=40", "cpu=1000 memory=10", "37000000000"},
		{nodeorder, only("mostrequested.weight", "2"), "cpu=4000 memory=100", "cpu=2000 memory=40", "cpu=1000 memory=10", "124000000000"},
		// 3/4 and 1/2: they deviate by 1/8 from their mean.
		{nodeorder, only("balancedresource.weight", "1"), "cpu=4000 memory=100", "cpu=2000 memory=40", "cpu=1000 memory=10", "87000000000"},
		// 1/2, 1/2 and 1/8: the mean is 3/8, the variance 1/32, the deviation 0.17677.
		{nodeorder, only("balancedresource.weight", "1"), "cpu=4000 memory=100 gpu=8000", "cpu=1000 memory=40", "cpu=1000 memory=10 gpu=1000", "82000000000"},
		// All of it: 37 + 87, no preferred terms, and three times 100 for taints that there are not.
		{nodeorder, nil, "cpu=4000 memory=100", "cpu=2000 memory=40", "cpu=1000 memory=10", "424000000000"},
		// GPUs 5/8 packed, twice, CPU 1/4 left: (2 * 62.5 + 25) / 3, ten times.
		{
			fit,
			policy.Arguments{"resources": `{"nvidia.com/*": {"type": "MostAllocated", "weight": 2}, "cpu": {"type": "LeastAllocated", "weight": 1}}`},
			"cpu=4000 gpu=8000", "cpu=2000 gpu=4000", "cpu=1000 gpu=1000", "500000000000",
		},
		// One of two scarce resources is there, of weight 3 of 4: a quarter is left.
		{
			fit,
			policy.Arguments{"sra": `{"enable": true, "resources": "nvidia.com/gpu,example.com/card", "weight": 4, "resourceWeight": {"nvidia.com/gpu": 3}}`},
			"cpu=4000 gpu=8000", "", "cpu=1000", "100000000000",
		},
		{fit, policy.Arguments{"sra": `{"enable": false, "resources": "nvidia.com/gpu", "weight": 4}`}, "cpu=4000", "", "cpu=1000", "0"},
		{fit, nil, "cpu=4000", "", "cpu=1000", "0"},
	} {
		if got := score(t, w, nil, nil); got != w.score {
			t.Errorf("%s %v, node %s, used %s, pod %s: %s, want %s", w.plugin, w.args, w.node, w.used, w.pod, got, w.score)
		}
	}
	// Preferred affinity is of the best that any node is; taints, of the worst.
	spec := &cluster.ClassSpec{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{
		{Weight: 10, Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "disk", Operator: v1.NodeSelectorOpExists}}}},
		{Weight: 30, Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "fast", Operator: v1.NodeSelectorOpExists}}}},
	}}, Tolerations: []v1.Toleration{{Key: "old", Operator: v1.TolerationOpExists}}}
	taint := func(keys ...string) (out []v1.Taint) {
		for _, k := range keys {
			out = append(out, v1.Taint{Key: k, Effect: v1.TaintEffectPreferNoSchedule})
		}
		return out
	}
	others := []cluster.NodeState{
		{Labels: map[string]string{"disk": "x"}, Taints: taint("slow", "old")},
		{Labels: map[string]string{"disk": "x", "fast": "x"}, Taints: taint("slow", "far", "old")},
	}
	for name, c := range map[string]want{ // order: each for itself
		"10 of 40, twice":                 {nodeorder, only("nodeaffinity.weight", "2"), "cpu=1000", "", "cpu=1", "50000000000"},
		"1 of 2 is not tolerated, thrice": {nodeorder, only("tainttoleration.weight", "3"), "cpu=1000", "", "cpu=1", "150000000000"},
	} {
		if got := score(t, c, spec, others); got != c.score {
			t.Errorf("%s: %s, want %s", name, got, c.score)
		}
	}
}

// score is what a plugin says of the first node of a cluster.
func score(t *testing.T, w want, spec *cluster.ClassSpec, nodes []cluster.NodeState) string {
	t.Helper()
	if nodes == nil {
		nodes = []cluster.NodeState{{}}
	}
	s := cluster.NewStore(cluster.Options{})
	for i, n := range nodes {
		n.Name, n.UID, n.Allocatable = fmt.Sprintf("n%d", i), fmt.Sprint(i), append(amounts(w.node), cluster.Quantity{Name: "pods", Value: 10})
		s.Apply(n)
	}
	s.Apply(cluster.PodState{UID: "there", Name: "there", Phase: cluster.Running, NodeName: "n0", Requests: amounts(w.used)}, cluster.PodState{UID: "p", Name: "p", Requests: amounts(w.pod), Spec: spec})
	said := "nothing"
	probe := policy.Opens(func(v *policy.View) *struct{} {
		open, _, err := builtin.Registry().Faces[builtin.VolcanosFace].Plugins[w.plugin][0].New(w.args)
		if err != nil {
			t.Fatal(err)
		}
		snap := v.Snapshot()
		snap.EachPod(func(p *cluster.Pod) {
			if p.UID == "p" {
				said = fmt.Sprint(open(v).(policy.NodeScore).ScoreNode(p.Class, snap.Node(snap.NodeOrder[0])))
			}
		})
		return nil
	})
	known, prof := builtin.Registry(), profile.BuiltIn()
	known.Plugins["probe"] = []policy.Factory{probe}
	prof.Tiers = append(prof.Tiers, []engine.PluginUse{{Name: "probe"}})
	e, err := engine.New(prof, known)
	if err != nil {
		t.Fatal(err)
	}
	e.Run(context.Background(), s.Snapshot(cluster.UnixNano(1)), func(engine.Plan) {})
	return said
}

// TestArguments: what cannot be read is refused, and the error names the argument and the rule; what is not known is reported.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		plugin, name, value, want string
	}{
		{nodescores.Binpack, "binpack.weight", "-1", `argument "binpack.weight" is "-1"; it must be a whole number from 0 to 1000`},
		{nodescores.Binpack, "binpack.cpu", "1.5", `argument "binpack.cpu" is "1.5"`},
		{nodescores.Binpack, "binpack.resources", strings.Repeat("a,b,c,", 1), ""},
		{nodescores.NodeOrder, "podaffinity.weight", "1001", `argument "podaffinity.weight" is "1001"`},
		{nodescores.StrategyFit, "resources", `{"cpu": {"type": "Best"}}`, `argument "resources": the type of "cpu" is "Best"`},
		{nodescores.StrategyFit, "resources", `{"cpu": {"type": "MostAllocated", "weight": -1}}`, `argument "resources": the weight of "cpu" is -1`},
		{nodescores.StrategyFit, "resources", `[1]`, `argument "resources" cannot be read`},
		{nodescores.StrategyFit, "sra", `{"enable": true, "weight": 2000}`, `argument "sra": weight is 2000`},
		{nodescores.StrategyFit, "proportional", `{"enable": true, "resources": "a", "resourceProportion": {"b.cpu": 1}}`, `argument "proportional": resourceProportion of "b.cpu" is of none`},
		{nodescores.StrategyFit, "proportional", `{"enable": true, "resources": "a", "resourceProportion": {"a.cpu": -1}}`, `resourceProportion of "a.cpu" is "-1"; it must be a number`},
		{nodescores.StrategyFit, "sra", `{"colour": 1}`, `argument "sra" cannot be read`},
	} {
		_, unknown, err := builtin.Registry().Faces[builtin.VolcanosFace].Plugins[c.plugin][0].New(policy.Arguments{c.name: c.value, "whim": "1"})
		if said := fmt.Sprint(err); err != nil && c.want == "" || !strings.Contains(said, c.want) && c.want != "" || err == nil && fmt.Sprint(unknown) != "[whim]" {
			t.Errorf("%s %s=%s: %v, %v", c.plugin, c.name, c.value, err, unknown)
		}
	}
}

package nodeaffinity

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// TestScore: weights of the terms that a node matches add up, by label and by name, and are bounded on both sides; a term in error counts
// nothing, and takes none of the others with it.
func TestScore(t *testing.T) {
	t.Parallel()
	is := func(weight int32, key string, op v1.NodeSelectorOperator, values ...string) v1.PreferredSchedulingTerm {
		return v1.PreferredSchedulingTerm{Weight: weight, Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}}
	}
	name := v1.PreferredSchedulingTerm{Weight: 3, Preference: v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"n1"}}}}}
	n1 := &cluster.Node{NodeState: cluster.NodeState{Name: "n1", Labels: map[string]string{"zone": "a", "generation": "7"}}}
	n2 := &cluster.Node{NodeState: cluster.NodeState{Name: "n2", Labels: map[string]string{"zone": "b"}}}
	for id, c := range []struct {
		terms  []v1.PreferredSchedulingTerm
		n1, n2 int64 // points
	}{
		{nil, 0, 0},
		{[]v1.PreferredSchedulingTerm{is(5, "zone", v1.NodeSelectorOpIn, "a")}, 50, 0},
		{[]v1.PreferredSchedulingTerm{is(5, "zone", v1.NodeSelectorOpIn, "a"), is(2, "generation", v1.NodeSelectorOpDoesNotExist), name}, 80, 20},
		{[]v1.PreferredSchedulingTerm{is(1, "generation", v1.NodeSelectorOpGt, "6")}, 10, 0},
		{[]v1.PreferredSchedulingTerm{is(100, "zone", v1.NodeSelectorOpExists), is(100, "zone", v1.NodeSelectorOpIn, "b")}, 990, 990},
		{[]v1.PreferredSchedulingTerm{is(9, "zone", v1.NodeSelectorOpGt, "no number"), is(4, "zone", v1.NodeSelectorOpIn, "b")}, 0, 40},
		{[]v1.PreferredSchedulingTerm{is(9, "zone", v1.NodeSelectorOpGt, "no number")}, 0, 0},
	} {
		class := &cluster.Class{ID: uint64(id)}
		class.NodeAffinity = &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: c.terms}
		i := instance{}
		for range 2 { // parsed, and known
			if a, b := i.ScoreNode(class, n1), i.ScoreNode(class, n2); a != c.n1*policy.ScorePoint || b != c.n2*policy.ScorePoint {
				t.Errorf("case %d: n1 has %d, n2 %d, want %d and %d points", id, a, b, c.n1, c.n2)
			}
		}
	}
	if got := (instance{}).ScoreNode(&cluster.Class{}, n1); got != 0 {
		t.Errorf("a pod without affinity gives %d", got)
	}
}

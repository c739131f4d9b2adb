package enginetest

import (
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// small is a cluster in which one pod more than fits, and one more than the limit allows, waits.
func small(preemptible bool, quota int64) *cluster.Snapshot {
	k := cluster.Key{Face: "kai", Namespace: "default", Name: "g"}
	gpu := func(x int64) []cluster.Quantity { return []cluster.Quantity{{Name: "gpu", Value: x}} }
	s := cluster.NewStore(cluster.Options{})
	s.Apply(cluster.NodeState{Name: "n1", UID: "n1", Allocatable: gpu(2000)}, cluster.NodeState{Name: "n2", UID: "n2", Allocatable: gpu(2000)},
		cluster.NodeState{Name: "n3", UID: "n3", Allocatable: gpu(2000), Problem: "NotReady"},
		cluster.QueueState{Name: "top", UID: "top", Quota: gpu(quota), Limit: gpu(3000)}, cluster.QueueState{Name: "q", UID: "q", Parent: "top", Quota: gpu(cluster.Unlimited)},
		cluster.GangState{Key: k, UID: "g", Queue: "q", Preemptible: preemptible, Sets: cluster.FlatTree(2)},
		cluster.PodState{UID: "old", Name: "old", Phase: cluster.Releasing, NodeName: "n2", Requests: gpu(1000)})
	for _, name := range []string{"a", "b", "c", "d"} {
		s.Apply(cluster.PodState{UID: name, Name: name, Gang: k, Ours: true, Requests: gpu(1000)})
	}
	return s.Snapshot(noon)
}

// TestAudit: the checks that scenarios and properties rest on find what they are for.
func TestAudit(t *testing.T) {
	t.Parallel()
	bind := func(pod, node string) engine.Intent {
		return engine.Intent{Verb: ledger.Bind, Pod: pod, UID: pod, Node: node}
	}
	nominate := func(pod, node string) engine.Intent {
		return engine.Intent{Verb: ledger.Nominate, Pod: pod, UID: pod, Node: node}
	}
	for _, tc := range []struct {
		name    string
		intents []engine.Intent
		fixed   bool
		quota   int64
		want    string
	}{
		{name: "sound", intents: []engine.Intent{bind("a", "n1"), bind("b", "n1")}},
		{name: "sound with growth on releasing room", intents: []engine.Intent{bind("a", "n1"), bind("b", "n1"), nominate("c", "n2")}},
		{name: "node overcommitted", intents: []engine.Intent{bind("a", "n1"), bind("b", "n1"), bind("c", "n1")}, want: "idle is"},
		{name: "bound onto releasing room", intents: []engine.Intent{bind("a", "n2"), bind("b", "n2")}, want: "idle is"},
		{name: "promised twice", intents: []engine.Intent{nominate("a", "n2"), nominate("b", "n2"), nominate("c", "n2")}, want: "after releases"},
		{name: "above the limit of the parent", intents: []engine.Intent{bind("a", "n1"), bind("b", "n1"), bind("c", "n2"), nominate("d", "n2")}, want: "above its limit"},
		{name: "non-preemptible above quota", intents: []engine.Intent{bind("a", "n1"), bind("b", "n1")}, fixed: true, quota: 1000, want: "above its quota"},
		{name: "half a gang", intents: []engine.Intent{bind("a", "n1")}, want: "below its minimum"},
		{name: "half a gang bound, half promised", intents: []engine.Intent{bind("a", "n1"), nominate("b", "n2")}, want: "waits for a release"},
		{name: "decided twice", intents: []engine.Intent{bind("a", "n1"), bind("a", "n1")}, want: "decided before"},
		{name: "unknown pod", intents: []engine.Intent{bind("x", "n1")}, want: "no waiting pod"},
		{name: "bad node", intents: []engine.Intent{bind("a", "n3")}, want: "takes no pods"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			quota := tc.quota
			if quota == 0 {
				quota = cluster.Unlimited
			}
			k := cluster.Key{Face: "kai", Namespace: "default", Name: "g"}
			err := Audit(small(!tc.fixed, quota), []engine.Plan{{Action: "allocate", Bundles: []engine.Bundle{{Gang: k, UID: "g", Intents: tc.intents}}}}, true)
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want something about %q", err, tc.want)
			}
		})
	}
}

// TestRefusals: a scenario with a mistake fails by name and line instead of passing by accident.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, text, want string }{
		{"no prose", "-- cluster --\n", "one sentence"},
		{"unknown section", "about\n-- clutser --\n", "no section has this name"},
		{"run without want", "about\n-- run --\ncycle\n", "followed by a want"},
		{"want without run", "about\n-- want --\n", "follows a run"},
		{"config and shard", "about\n-- config --\nactions: allocate\n-- shard --\ngpu spread\n", "exclude each other"},
		{"open quote", "about\n-- cluster --\nnode \"n1\n", "not closed"},
		{"part without a whole", "about\n-- cluster --\n  set a\n", "indented"},
		{"unknown option", "about\n-- options --\nfaster\n", "no option"},
		{"unknown statement", "about\n-- cluster --\nnoed n1\n", "line 1: noed"},
		{"unknown key", "about\n-- cluster --\nnode n1 gpus=8\n", "does not know gpus=8"},
		{"unknown word", "about\n-- cluster --\nnode n1 cordonned\n", `does not know the word "cordonned"`},
		{"unknown key of a part", "about\n-- cluster --\ngang g\n  set a mni=2\n", "does not know mni=2"},
		{"bad quantity", "about\n-- cluster --\nnode n1 gpu=eight\n", "want a quantity"},
		{"more pods placed than there are", "about\n-- cluster --\ngang g pods=2 running=n1:3\n", "says where 3 pods are"},
		{"missing name", "about\n-- cluster --\nqueue\n", "needs a name"},
		{"missing pod", "about\n-- run --\nend ghost\n-- want --\n", "no pod or gang ghost"},
		{"edit of nothing", "about\n-- run --\nedit queue q limit=1\n-- want --\n", "no statement made"},
		{"bad manifest", "about\n-- yaml --\nkind: Queue\nspec: {nonsense: 1}\n", "unknown field"},
		{"unknown kind", "about\n-- yaml --\nkind: Widget\n", "unknown to scenarios"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			sc, err := Parse("x", []byte(tc.text))
			if err == nil {
				b, made := NewEngine(&sc.Options, Mutation{}, nil)
				if made != nil {
					t.Fatal(made)
				}
				_, err = sc.Play(b)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want something about %q", err, tc.want)
			}
		})
	}
}

package enginetest

import (
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

func named(name string) cluster.Key {
	return cluster.Key{Face: "kai", Namespace: "default", Name: name}
}

// busy is a cluster in which a gang of two waits, of priority 75 in the queue mine, limited to two GPUs, and everybody else
// runs: low (priority 25) in mine, two that need each other and one that nobody recreates in lent, and one in lent that
// must stay.
func busy() *cluster.Snapshot {
	gpu := func(x int64) []cluster.Quantity { return []cluster.Quantity{{Name: "gpu", Value: x}} }
	s := cluster.NewStore(cluster.Options{})
	s.Apply(cluster.NodeState{Name: "n1", UID: "n1", Allocatable: gpu(4000)}, cluster.NodeState{Name: "n2", UID: "n2", Allocatable: gpu(3000)},
		cluster.NodeState{Name: "n3", UID: "n3", Allocatable: gpu(4000), Problem: "NotReady"},
		cluster.QueueState{Name: "mine", UID: "mine", Quota: gpu(cluster.Unlimited), Limit: gpu(2000)}, cluster.QueueState{Name: "lent", UID: "lent", Quota: gpu(cluster.Unlimited)})
	gang := func(name, queue string, priority, least int32, preemptible bool) {
		s.Apply(cluster.GangState{Key: named(name), UID: name, Queue: queue, Priority: priority, Preemptible: preemptible, Sets: cluster.FlatTree(least)})
	}
	gang("taker", "mine", 75, 2, true)
	gang("low", "mine", 25, 1, true)
	gang("peer", "mine", 75, 1, true)
	gang("pair", "lent", 50, 2, true)
	gang("alone", "lent", 50, 1, true)
	gang("fixed", "lent", 25, 1, false)
	pod := func(name, gang, node string) {
		st := cluster.PodState{UID: name, Name: name, Gang: named(gang), Ours: true, Requests: gpu(1000), Recreated: gang != "alone"}
		if node != "" {
			st.Phase, st.NodeName = cluster.Running, node
		}
		s.Apply(st)
	}
	pod("t1", "taker", "")
	pod("t2", "taker", "")
	pod("l1", "low", "n1")
	pod("p1", "pair", "n1")
	pod("p2", "pair", "n1")
	pod("a1", "alone", "n1")
	pod("f1", "fixed", "n2")
	return s.Snapshot(noon)
}

// TestAuditOfEvictions: the checks find evictions that nobody had a right to, and those that were for nothing.
func TestAuditOfEvictions(t *testing.T) {
	t.Parallel()
	evict := func(pod, node string) engine.Intent {
		return engine.Intent{Verb: ledger.Evict, Pod: pod, UID: pod, Node: node}
	}
	move := func(pod, node, to string) engine.Intent {
		return engine.Intent{Verb: ledger.Evict, Pod: pod, UID: pod, Node: node, To: to}
	}
	nominate := func(pod, node string) engine.Intent {
		return engine.Intent{Verb: ledger.Nominate, Pod: pod, UID: pod, Node: node}
	}
	gets := []engine.Intent{nominate("t1", "n1"), nominate("t2", "n1")}
	for _, tc := range []struct {
		name  string
		cause policy.EvictionCause
		gone  []engine.Intent
		then  []engine.Intent
		want  string
	}{
		{name: "from its own queue", cause: policy.Reclaim, gone: []engine.Intent{evict("l1", "n1"), evict("p1", "n1"), evict("p2", "n1")}, then: gets, want: "a queue reclaims from itself"},
		{name: "sound preemption", cause: policy.Preempt, gone: []engine.Intent{evict("l1", "n1")}, then: []engine.Intent{nominate("t1", "n1"), nominate("t2", "n2")}},
		{name: "above the limit all the same", cause: policy.Reclaim, gone: []engine.Intent{evict("p1", "n1"), evict("p2", "n1")}, then: gets, want: "above its limit"},
		{name: "no record", gone: []engine.Intent{evict("l1", "n1")}, then: gets, want: "no record"},
		{name: "no such cause", cause: "wish", gone: []engine.Intent{evict("l1", "n1")}, then: gets, want: "is no cause"},
		{name: "not there", cause: policy.Preempt, gone: []engine.Intent{evict("l1", "n2")}, then: gets, want: "not there"},
		{name: "a pod that waits", cause: policy.Preempt, gone: []engine.Intent{evict("t1", "n1")}, then: gets, want: "no pod of ours that holds room"},
		{name: "twice", cause: policy.Preempt, gone: []engine.Intent{evict("l1", "n1"), evict("l1", "n1")}, then: gets, want: "decided before"},
		{name: "not preemptible", cause: policy.Reclaim, gone: []engine.Intent{evict("f1", "n2")}, then: gets, want: "not preemptible"},
		{name: "another queue", cause: policy.Preempt, gone: []engine.Intent{evict("p1", "n1"), evict("p2", "n1")}, then: gets, want: "preempts"},
		{name: "half of two that need each other", cause: policy.Consolidation, gone: []engine.Intent{evict("p1", "n1")}, then: gets, want: "nowhere to go"},
		{name: "moved where nobody is made anew", cause: policy.Consolidation, gone: []engine.Intent{move("a1", "n1", "n2")}, then: gets, want: "nobody would make it anew"},
		{name: "moved onto a bad node", cause: policy.Consolidation, gone: []engine.Intent{move("l1", "n1", "n3"), move("p1", "n1", "n2")}, then: gets, want: "from nowhere else"},
		{name: "moved where there is no room", cause: policy.Consolidation, gone: []engine.Intent{move("p1", "n1", "n2"), move("p2", "n1", "n2"), move("l1", "n1", "n2")}, then: nil, want: "after releases"},
		{name: "for nobody", cause: policy.Preempt, gone: []engine.Intent{evict("l1", "n1")}, want: "whether it gets anything is false"},
		{name: "repair of another", cause: policy.Repair, gone: []engine.Intent{evict("l1", "n1")}, want: "repair of gang"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := engine.Bundle{Gang: named("taker"), UID: "taker", Intents: append(append([]engine.Intent{}, tc.gone...), tc.then...)}
			if tc.cause != "" {
				b.Eviction = &engine.EvictionRecord{Cause: tc.cause}
			}
			err := Audit(busy(), []engine.Plan{{Action: "test", Bundles: []engine.Bundle{b}}}, true)
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want something about %q", err, tc.want)
			}
		})
	}
	t.Run("half a victim is left", func(t *testing.T) {
		t.Parallel()
		b := engine.Bundle{Gang: named("alone"), UID: "alone", Eviction: &engine.EvictionRecord{Cause: policy.Preempt}, Intents: []engine.Intent{evict("p1", "n1")}}
		g := busy()
		a := newAuditor(g)
		v, err := a.evict(g.GangByKey(named("taker")), &engine.EvictionRecord{Cause: policy.Reclaim}, &b.Intents[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := a.runs(v); err == nil || !strings.Contains(err.Error(), "below the minimum") {
			t.Errorf("got %v", err)
		}
	})
}

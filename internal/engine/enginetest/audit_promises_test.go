package enginetest

import (
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// owed is a cluster of three idle nodes in which a gang of two waits in the queue mine, and another in lent, to which two GPUs of n1,
// which has three, are promised, and one of n3, which has two. Together the queues may hold so many GPUs.
func owed(limit int64) *cluster.Snapshot {
	gpu := func(x int64) []cluster.Quantity { return []cluster.Quantity{{Name: "gpu", Value: x}} }
	s := cluster.NewStore(cluster.Options{})
	s.Apply(cluster.NodeState{Name: "n1", UID: "n1", Allocatable: gpu(3000)}, cluster.NodeState{Name: "n2", UID: "n2", Allocatable: gpu(4000)},
		cluster.NodeState{Name: "n3", UID: "n3", Allocatable: gpu(2000)},
		cluster.QueueState{Name: "top", UID: "top", Quota: gpu(cluster.Unlimited), Limit: gpu(limit)})
	for _, name := range []string{"mine", "lent"} {
		s.Apply(cluster.QueueState{Name: name, UID: name, Parent: "top", Quota: gpu(cluster.Unlimited), Limit: gpu(cluster.Unlimited)})
	}
	for name, queue := range map[string]string{"taker": "mine", "second": "mine", "promised": "lent"} { // order: each on its own
		s.Apply(cluster.GangState{Key: named(name), UID: name, Queue: queue, Preemptible: true, Sets: cluster.FlatTree(1)})
	}
	for pod, gang := range map[string]string{"t1": "taker", "t2": "taker", "s1": "second", "p1": "promised", "p2": "promised", "p3": "promised"} { // order: each on its own
		s.Apply(cluster.PodState{UID: pod, Name: pod, Gang: named(gang), Ours: true, Requests: gpu(1000)})
	}
	for pod, node := range map[string]string{"p1": "n1", "p2": "n1", "p3": "n3"} { // order: each on its own
		s.HoldFor(pod, node, noon.Add(1))
	}
	return s.Snapshot(noon)
}

// TestAuditOfPromises: who takes a promise may wait for what it kept, and for nothing else.
func TestAuditOfPromises(t *testing.T) {
	t.Parallel()
	nominate := func(pod, node string) engine.Intent {
		return engine.Intent{Verb: ledger.Nominate, Pod: pod, UID: pod, Node: node}
	}
	takes := func(gang string, promised int, intents ...engine.Intent) engine.Bundle {
		return engine.Bundle{Gang: named(gang), UID: gang, Intents: intents, Eviction: &engine.EvictionRecord{
			Cause: policy.Reclaim, Victims: []engine.Victim{{Gang: named("promised"), UID: "promised", Promised: promised}},
		}}
	}
	const nobody = "promises room that nobody leaves"
	for _, tc := range []struct {
		name    string
		limit   int64
		bundles []engine.Bundle
		want    string
	}{
		{name: "what was promised", bundles: []engine.Bundle{takes("taker", 2, nominate("t1", "n1"), nominate("t2", "n1"))}},
		{name: "what was promised, and room elsewhere", bundles: []engine.Bundle{takes("taker", 2, nominate("t1", "n2"), nominate("t2", "n3"))}, want: nobody},
		{name: "room elsewhere", bundles: []engine.Bundle{takes("taker", 3, nominate("t1", "n2"), nominate("t2", "n2"))}, want: nobody},
		{name: "room beside what was promised", bundles: []engine.Bundle{takes("taker", 2, nominate("t1", "n1"))}, want: nobody},
		{name: "room that nobody was promised", bundles: []engine.Bundle{takes("taker", 0, nominate("t1", "n1"), nominate("t2", "n1"))}, want: nobody},
		{name: "what a limit keeps for the promise", limit: 4000, bundles: []engine.Bundle{takes("taker", 3, nominate("t1", "n2"), nominate("t2", "n2"))}},
		{name: "what a limit has beside the promise", limit: 5000, bundles: []engine.Bundle{takes("taker", 3, nominate("t1", "n2"), nominate("t2", "n2"))}, want: nobody},
		{name: "what somebody else has taken", bundles: []engine.Bundle{
			takes("taker", 2, nominate("t1", "n1"), nominate("t2", "n1")), takes("second", 2, nominate("s1", "n1")),
		}, want: nobody},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			limit := tc.limit
			if limit == 0 {
				limit = cluster.Unlimited
			}
			err := Audit(owed(limit), []engine.Plan{{Action: "test", Bundles: tc.bundles}}, true)
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want something about %q", err, tc.want)
			}
		})
	}
}

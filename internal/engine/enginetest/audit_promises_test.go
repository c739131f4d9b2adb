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

// TestAuditOfSharedPromises: with Volcano's law a promise is in the way too where it and the taker are more than the fair share of their queue, as the record says; not in another queue, and
// not within the share.
func TestAuditOfSharedPromises(t *testing.T) {
	t.Parallel()
	gpu := func(x int64) []cluster.Quantity { return []cluster.Quantity{{Name: "gpu", Value: x}} }
	gpus := func(x int64) cluster.Resources {
		r := make(cluster.Resources, cluster.GPU+1)
		r[cluster.GPU] = x
		return r
	}
	key := func(face, name string) cluster.Key { return cluster.Key{Face: face, Namespace: "a", Name: name} }
	for _, tc := range []struct {
		name, face, queue string
		share             int64
		fine              bool
	}{
		{"beyond the share", "volcano", "mine", 2000, true},
		{"within the share", "volcano", "mine", 3000, false},
		{"of another queue", "volcano", "other", 2000, false},
		{"by KAI's law", "kai", "mine", 2000, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := cluster.NewStore(cluster.Options{})
			s.Apply(cluster.NodeState{Name: "n1", UID: "n1", Allocatable: gpu(4000)}, cluster.NodeState{Name: "n2", UID: "n2", Allocatable: gpu(4000)})
			for _, q := range []string{"mine", "other"} {
				s.Apply(cluster.QueueState{Name: q, UID: q, Quota: gpu(cluster.Unlimited), Limit: gpu(cluster.Unlimited)})
			}
			s.Apply(cluster.GangState{Key: key(tc.face, "taker"), UID: "taker", Queue: "mine", Preemptible: true, Sets: cluster.FlatTree(1)},
				cluster.GangState{Key: key(tc.face, "promised"), UID: "promised", Queue: tc.queue, Preemptible: true, Sets: cluster.FlatTree(1)})
			s.Apply(cluster.PodState{UID: "t", Name: "t", Gang: key(tc.face, "taker"), Ours: true, Requests: gpu(1000)}, cluster.PodState{UID: "p", Name: "p", Gang: key(tc.face, "promised"), Ours: true, Requests: gpu(1000)})
			s.HoldFor("p", "n1", noon.Add(1))
			b := engine.Bundle{
				Gang: key(tc.face, "taker"), UID: "taker", Intents: []engine.Intent{{Verb: ledger.Nominate, Pod: "t", UID: "t", Node: "n2"}},
				Eviction: &engine.EvictionRecord{
					Cause: policy.Preempt, Victims: []engine.Victim{{Gang: key(tc.face, "promised"), UID: "promised", Promised: 1}},
					Shares: []engine.ShareChange{{Queue: "mine", FairShare: gpus(tc.share), Before: gpus(2000)}},
				},
			}
			err := Audit(s.Snapshot(noon), []engine.Plan{{Action: "test", Bundles: []engine.Bundle{b}}}, true)
			if tc.fine && err != nil || !tc.fine && (err == nil || !strings.Contains(err.Error(), "nobody leaves")) {
				t.Errorf("got %v", err)
			}
		})
	}
}

package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

func assumeStore() *cluster.Store {
	s := cluster.NewStore(cluster.Options{})
	s.Apply(cluster.NodeState{Name: "n", UID: "n", Allocatable: []cluster.Quantity{{Name: "gpu", Value: 8000}}})
	for _, g := range []string{"taker", "giver"} {
		s.Apply(cluster.GangState{Key: cluster.Key{Namespace: "a", Name: g}, UID: g, Preemptible: true})
	}
	pod := func(uid, gang string, phase cluster.Phase, node string) {
		s.Apply(cluster.PodState{UID: uid, Namespace: "a", Name: uid, Gang: cluster.Key{Namespace: "a", Name: gang}, Phase: phase, NodeName: node, Ours: true})
	}
	pod("t1", "taker", cluster.Pending, "")
	pod("t2", "taker", cluster.Pending, "")
	pod("g1", "giver", cluster.Running, "n")
	pod("g2", "giver", cluster.Running, "n")
	s.Snapshot(cluster.UnixNano(1))
	return s
}

// takes is a bundle that evicts g1 for good and moves g2, for t1.
func takes() Bundle {
	beneficiary, giver := cluster.Key{Namespace: "a", Name: "taker"}, cluster.Key{Namespace: "a", Name: "giver"}
	return Bundle{ID: "b", Gang: beneficiary, UID: "taker", Eviction: &EvictionRecord{Cause: policy.Reclaim}, Intents: []Intent{
		{Verb: ledger.Evict, UID: "g1", Node: "n", Gang: giver},
		{Verb: ledger.Evict, UID: "g2", Node: "n", To: "m", Gang: giver},
		{Verb: ledger.Nominate, UID: "t1", Node: "n"},
	}}
}

func seen(s *cluster.Store) map[string]string {
	out := map[string]string{}
	snap := s.Snapshot(cluster.UnixNano(2))
	snap.EachPod(func(p *cluster.Pod) { out[p.UID] = p.Phase.String() })
	for i := range snap.Holds {
		h := &snap.Holds[i]
		out["held for "+h.Gang.Name+" "+h.ID()] = h.Node
	}
	return out
}

func TestAssumeAndForget(t *testing.T) {
	t.Parallel()
	fresh := seen(assumeStore())
	assumed := map[string]string{
		"t1": "Pending", "t2": "Pending", "g1": "Releasing", "g2": "Releasing",
		"held for taker t1": "n", "held for giver g2": "m",
	}
	s := assumeStore()
	p := Plan{Bundles: []Bundle{takes()}}
	p.assume(s, cluster.UnixNano(1))
	if d := cmp.Diff(assumed, seen(s)); d != "" {
		t.Error(d)
	}
	p.Bundles[0].Forget(s, func(string) bool { return false })
	if d := cmp.Diff(fresh, seen(s)); d != "" {
		t.Errorf("nothing was applied, and yet: %s", d)
	}

	s = assumeStore()
	p.assume(s, cluster.UnixNano(1))
	later := takes()
	later.ID, later.Intents = "later", []Intent{{Verb: ledger.Nominate, UID: "t1", Node: "m"}}
	(&Plan{Bundles: []Bundle{later}}).assume(s, cluster.UnixNano(1))
	if p.Bundles[0].Forget(s, func(string) bool { return false }) {
		t.Error("a later promise was not noticed")
	}
	fresh["held for taker t1"] = "m"
	if d := cmp.Diff(fresh, seen(s)); d != "" {
		t.Errorf("what was promised later stands: %s", d)
	}

	s = assumeStore()
	p.assume(s, cluster.UnixNano(1))
	p.Bundles[0].Forget(s, func(uid string) bool { return uid == "g2" })
	if d := cmp.Diff(map[string]string{"t1": "Pending", "t2": "Pending", "g1": "Running", "g2": "Releasing", "held for giver g2": "m"}, seen(s)); d != "" {
		t.Errorf("the one that was moved keeps its new room: %s", d)
	}
}

func TestAssumeNominations(t *testing.T) {
	t.Parallel()
	beneficiary := cluster.Key{Namespace: "a", Name: "taker"}
	s := assumeStore()
	(&Plan{Bundles: []Bundle{{Gang: beneficiary, Intents: []Intent{{Verb: ledger.Nominate, UID: "t1", Node: "n"}}}}}).assume(s, cluster.UnixNano(1))
	if d := cmp.Diff(seen(assumeStore()), seen(s)); d != "" {
		t.Errorf("a nomination alone holds nothing: %s", d)
	}
	s.Hold(cluster.Hold{HoldState: cluster.HoldState{Gang: beneficiary, Moved: "gone", Node: "n", Until: cluster.UnixNano(100)}})
	(&Plan{Bundles: []Bundle{{Gang: beneficiary, Intents: []Intent{
		{Verb: ledger.Nominate, UID: "t1", Node: "n", Kept: "gone"},
		{Verb: ledger.Bind, UID: "t2", Node: "n"},
	}}}}).assume(s, cluster.UnixNano(1))
	want := seen(assumeStore())
	want["t2"], want["held for taker t1"] = "Binding", "n"
	if d := cmp.Diff(want, seen(s)); d != "" {
		t.Errorf("a promise goes on under the pod it is for: %s", d)
	}
	(&Plan{Bundles: []Bundle{{Gang: beneficiary, Intents: []Intent{{Verb: ledger.Bind, UID: "t1", Node: "n", Kept: "t1"}}}}}).assume(s, cluster.UnixNano(1))
	want["t1"] = "Binding"
	delete(want, "held for taker t1")
	if d := cmp.Diff(want, seen(s)); d != "" {
		t.Errorf("a promise is kept: %s", d)
	}
}

// TestVoidSparesWhatIsPromisedAnew: a promise that this very run made again under the same name is not void.
func TestVoidSparesWhatIsPromisedAnew(t *testing.T) {
	t.Parallel()
	d := draft{plan: Plan{Bundles: []Bundle{takes()}}, promised: map[string]struct{}{}}
	d.promises()
	if d := cmp.Diff([]string{"t2"}, d.stillVoid([]string{"t1", "t2"})); d != "" {
		t.Error(d)
	}
}

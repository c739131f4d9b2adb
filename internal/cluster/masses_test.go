package cluster

import (
	"fmt"
	"testing"
)

// TestGangsWithoutPodsWaitForNothing: PodGroups that somebody makes in masses are no questions to a cycle as long as nobody is in them, and
// nothing is left of them when they go.
func TestGangsWithoutPodsWaitForNothing(t *testing.T) {
	t.Parallel()
	s := NewStore(Options{})
	s.Apply(NodeState{Name: "n", Allocatable: []Quantity{{"gpu", 8000}}}, QueueState{Name: "q"})
	const many = 2000
	key := func(i int) Key { return Key{"kai", "ns", fmt.Sprint("g", i)} }
	waiting := func(now Instant) (out []Key) {
		snap := s.Snapshot(now)
		for g := range snap.PendingGangs() {
			out = append(out, g.Key)
		}
		for g := range snap.PartialGangs() {
			out = append(out, g.Key)
		}
		for g := range snap.OddGangs() {
			out = append(out, g.Key)
		}
		return out
	}
	for i := range many {
		s.Apply(GangState{Key: key(i), UID: fmt.Sprint("u", i), Queue: "q", Sets: FlatTree(2)})
	}
	if got := waiting(UnixNano(1e9)); len(got) != 0 {
		t.Errorf("%d gangs without pods are asked about", len(got))
	}
	s.Apply(PodState{UID: "p", Namespace: "ns", Name: "p", Gang: key(7), Phase: Pending, Ours: true, Requests: []Quantity{{"gpu", 1000}}})
	if got := waiting(UnixNano(2e9)); len(got) != 1 || got[0] != key(7) {
		t.Errorf("waiting are %v, want the one with a pod", got)
	}
	s.Apply(PodGone{UID: "p"})
	for i := range many {
		s.Apply(GangGone{Key: key(i)})
	}
	if got := waiting(UnixNano(3e9)); len(got) != 0 {
		t.Errorf("left over: %v", got)
	}
}

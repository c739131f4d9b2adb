package cluster

import "testing"

// TestLostQueues: a queue that is gone while pods hold room of it is told of with what they hold, until they have gone or it is back.
func TestLostQueues(t *testing.T) {
	t.Parallel()
	s := NewStore(Options{})
	key := Key{Face: "kai", Namespace: "a", Name: "g"}
	pod := PodState{UID: "p", Name: "p", Namespace: "a", Gang: key, Ours: true, Phase: Running, NodeName: "n", Requests: []Quantity{{"gpu", 2000}}}
	s.Apply(NodeState{Name: "n", Allocatable: []Quantity{{"gpu", 8000}}}, QueueState{Name: "q"}, GangState{Key: key, UID: "g", Queue: "q"}, pod)
	expect := func(what string, gpu int64) {
		t.Helper()
		lost := s.Snapshot(UnixNano(1)).Lost
		if gpu == 0 && len(lost) == 0 || len(lost) == 1 && lost[0].Name == "q" && lost[0].Allocated.At(GPU) == gpu {
			return
		}
		t.Errorf("%s: %+v, want %d", what, lost, gpu)
	}
	expect("while it is there", 0)
	s.Apply(QueueGone{Name: "q"})
	expect("when it is gone", 2000)
	expect("still", 2000)
	s.Apply(QueueState{Name: "q"})
	expect("when it is back", 0)
	s.Apply(QueueGone{Name: "q"}, PodGone{UID: "p"})
	expect("when nobody holds room of it", 0)
}

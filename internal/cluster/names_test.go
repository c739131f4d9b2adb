package cluster

import (
	"fmt"
	"testing"
)

// TestNamesOfPodsAreBounded: a pod may ask for resources of any names, and each has a place in every vector of the model. So names that
// only pods have are few; of the rest a pod asks for something that no node has. What nodes offer and queues state always has a place.
func TestNamesOfPodsAreBounded(t *testing.T) {
	t.Parallel()
	s := NewStore(Options{})
	pod := func(uid string, names ...string) PodState {
		p := PodState{UID: uid, Name: uid, Namespace: "a", Ours: true, Phase: Pending}
		for _, n := range names {
			p.Requests = append(p.Requests, Quantity{n, 1})
		}
		return p
	}
	var names []string
	for i := range 20 * MaxAsked {
		names = append(names, fmt.Sprintf("made.up/r%d", i))
	}
	for i := range 20 {
		s.Apply(pod(fmt.Sprintf("p%d", i), names[i*MaxAsked:(i+1)*MaxAsked]...))
	}
	s.Apply(NodeState{Name: "n", Allocatable: []Quantity{{"cpu", 1000}, {"real/device", 4}}}, QueueState{Name: "q", Quota: []Quantity{{"real/other", 1}}})
	s.Apply(pod("honest", "cpu", "real/device", "real/other"))
	d := s.Snapshot(UnixNano(1)).Dims
	if most := MaxAsked + 3; d.Len() > most {
		t.Errorf("%d names, want at most %d", d.Len(), most)
	}
	sum := func(uid string) (named, further int64) {
		id := s.podIDs[uid]
		for i, x := range s.pod(id).Class.Requests {
			if d.Name(i) == Further {
				further += x
			} else {
				named += x
			}
		}
		return named, further
	}
	for uid, want := range map[string][2]int64{"p0": {MaxAsked - 4, 4}, "p19": {0, MaxAsked}, "honest": {3, 0}} { // order: each on its own
		if named, further := sum(uid); named != want[0] || further != want[1] {
			t.Errorf("%s asks for %d of names and %d of others, want %v", uid, named, further, want)
		}
	}
	s.Apply(pod("p19", names[19*MaxAsked:]...)) // an echo
	if s.Snapshot(UnixNano(2)).Dims.Len() != d.Len() {
		t.Error("an echo makes names")
	}
}

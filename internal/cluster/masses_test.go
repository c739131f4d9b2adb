package cluster

import (
	"fmt"
	"math/rand/v2"
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

// TestCompleteTreesArePartialNoMore: of gangs of several sets, of which masses run, only those are asked about that may lack pods of a set.
func TestCompleteTreesArePartialNoMore(t *testing.T) {
	t.Parallel()
	s := NewStore(Options{})
	s.Apply(NodeState{Name: "n", Allocatable: []Quantity{{"cpu", 8000}}}, QueueState{Name: "q"})
	tree := func(least, pods int32) []Set {
		return []Set{{Parent: None, Children: []int32{1, 2}, Min: 2, Pods: pods}, {Name: "a", Leaf: true, Min: least}, {Name: "b", Leaf: true, Min: 1}}
	}
	key := Key{"kai", "ns", "g"}
	s.Apply(GangState{Key: key, UID: "u", Queue: "q", Sets: tree(1, 0)})
	pod := func(name, set string, phase Phase) {
		s.Apply(PodState{UID: name, Namespace: "ns", Name: name, Gang: key, SetName: set, NodeName: "n", Phase: phase, Ours: true, Requests: []Quantity{{"cpu", 100}}})
	}
	now := int64(0)
	is := func(what string, want bool) {
		t.Helper()
		now++
		n := 0
		for range s.Snapshot(UnixNano(now * 1e9)).PartialGangs() {
			n++
		}
		if (n == 1) != want {
			t.Errorf("%s: %d gangs may lack pods, want %v", what, n, want)
		}
	}
	is("no pods", false)
	pod("a0", "a", Bound)
	pod("a1", "a", Running)
	is("two of one set", true)
	pod("b0", "b", Bound)
	is("each set has its minimum", false)
	pod("b0", "b", Running)
	is("they run", false)
	pod("b0", "b", Succeeded)
	is("one has ended", true)
	pod("b0", "b", Running)
	s.Apply(GangState{Key: key, UID: "u", Queue: "q", Sets: tree(3, 0)})
	is("a minimum has grown", true)
	s.Apply(GangState{Key: key, UID: "u", Queue: "q", Sets: tree(1, 4)})
	is("the tree needs one more, of any set", true)
	pod("a2", "a", Running)
	is("it has", false)
	s.Apply(PodGone{UID: "b0"})
	is("one is gone", true)
	pod("b0", "b", Running)
	for i := range countedPods {
		pod(string(rune('A'+i/26))+string(rune('a'+i%26)), "a", Running)
	}
	is("too many to count", true)
}

// TestWhoLacksPodsIsPartial: after each change of random histories a gang of several sets that has room, and has a set without its minimum, is among those that are asked about. The pods of a set are counted anew here.
func TestWhoLacksPodsIsPartial(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	lacked, left := 0, 0
	for range 400 {
		s := NewStore(Options{})
		s.Apply(NodeState{Name: "n", Allocatable: []Quantity{{"cpu", 8000}}}, QueueState{Name: "q"})
		key := Key{"kai", "ns", "g"}
		reads := func() GangState {
			return GangState{Key: key, UID: "u", Queue: "q", Sets: []Set{
				{Parent: None, Children: []int32{1, 2}, Min: 2, Pods: r.Int32N(5)}, {Name: "a", Leaf: true, Min: r.Int32N(3)}, {Name: "b", Leaf: true, Min: r.Int32N(3)},
			}}
		}
		s.Apply(reads())
		for step := range 40 {
			uid := string(rune('0' + r.IntN(6)))
			var e Event = PodState{
				UID: uid, Namespace: "ns", Name: uid, Gang: key, SetName: []string{"a", "b", "none"}[r.IntN(3)], NodeName: "n", Ours: r.IntN(6) > 0,
				Phase: []Phase{Bound, Running, Succeeded, Failed, Releasing}[r.IntN(5)], Requests: []Quantity{{"cpu", 100}},
			}
			switch r.IntN(8) {
			case 0:
				e = reads()
			case 1:
				e = PodGone{UID: uid}
			}
			s.Apply(e)
			snap := s.Snapshot(UnixNano(int64(step+1) * 1e9))
			asked := false
			for range snap.PartialGangs() {
				asked = true
			}
			g := snap.GangByKey(key)
			have, all, holds := make([]int32, len(g.Sets)), int32(0), false
			for _, id := range g.Pods {
				p := snap.Pod(id)
				if !p.Ours || !p.Phase.Active() {
					continue
				}
				if holds = true; p.Set != None {
					have[p.Set]++
					all++
				}
			}
			lacks := all < g.Sets[0].Pods || have[1] < g.Sets[1].Min || have[2] < g.Sets[2].Min
			switch {
			case lacks && holds && !asked:
				t.Fatalf("after %#v: %v pods in the sets %+v, and nobody asks about the gang", e, have, g.Sets)
			case lacks && holds:
				lacked++
			case holds && !asked:
				left++
			}
		}
	}
	if lacked < 1000 || left < 1000 {
		t.Errorf("%d gangs lacked pods, %d were left alone: the histories say too little", lacked, left)
	}
}

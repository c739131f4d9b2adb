package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// at is a moment of a test.
func at(second int64) Instant { return UnixNano(second * 1_000_000_000) }

// TestEvictedIsStillAskedFor: what a queue asks for does not dip while a pod goes that was evicted and is made anew.
func TestEvictedIsStillAskedFor(t *testing.T) {
	t.Parallel()
	for _, recreated := range []bool{true, false} {
		s := NewStore(Options{})
		key := Key{"kai", "ns", "g"}
		pod := PodState{UID: "p", Namespace: "ns", Name: "p", Gang: key, Ours: true, Recreated: recreated, Phase: Running, NodeName: "n", Requests: []Quantity{{"gpu", 1000}}}
		s.Apply(NodeState{Name: "n", Allocatable: []Quantity{{"gpu", 2000}}}, QueueState{Name: "q"}, GangState{Key: key, Queue: "q", Sets: FlatTree(1)}, pod)
		asked := func() int64 { return s.Snapshot(at(1)).QueueByName("q").Requested.At(GPU) }
		want := int64(0)
		if recreated {
			want = 1000
		}
		s.AssumeEvicted("p", Key{}, at(10))
		if got := asked(); got != want {
			t.Errorf("recreated %v, decided: asks for %d, want %d", recreated, got, want)
		}
		fork := Fork(s.Snapshot(at(1)), Options{})
		if got := fork.Snapshot(at(1)).QueueByName("q").Requested.At(GPU); got != want {
			t.Errorf("recreated %v, in a fork: asks for %d, want %d", recreated, got, want)
		}
		s.Spare("p")
		if got := asked(); got != 1000 {
			t.Errorf("recreated %v, spared: asks for %d, want 1000", recreated, got)
		}
		s.AssumeEvicted("p", Key{}, at(10))
		pod.Phase, pod.DeletedAt = Releasing, at(5)
		s.Apply(pod)
		if got := asked(); got != want {
			t.Errorf("recreated %v, going: asks for %d, want %d", recreated, got, want)
		}
		restarted := NewStore(Options{})
		told := s.Snapshot(at(1))
		restarted.Apply(QueueState{Name: "q"}, told.Gang(0).GangState, told.Pod(0).State(told.Dims))
		if got := restarted.Snapshot(at(1)).QueueByName("q").Requested.At(GPU); got != want {
			t.Errorf("recreated %v, after a restart: asks for %d, want %d", recreated, got, want)
		}
		s.Apply(PodGone{UID: "p"})
		if got := asked(); got != 0 {
			t.Errorf("recreated %v, gone: asks for %d, want 0", recreated, got)
		}
	}
}

// TestNews: a fair share has moved when it has been one and the same other for a minute.
func TestNews(t *testing.T) {
	t.Parallel()
	s := NewStore(Options{})
	s.Apply(QueueState{Name: "q"})
	var got []int64
	for _, step := range []struct{ at, gpus int64 }{
		{0, 4}, {10, 8}, {40, 4}, {50, 8}, {80, 12}, {115, 8}, {150, 12}, {209, 12}, {211, 12}, {300, 12},
	} {
		s.Snapshot(at(step.at))
		s.NoteShares(map[string]Resources{"q": {0, 0, step.gpus * 1000}})
		got = append(got, s.Snapshot(at(step.at)).QueueByName("q").ShareMoved.UnixNano()/1_000_000_000)
	}
	if diff := cmp.Diff([]int64{0, 0, 0, 0, 0, 0, 0, 0, 150, 150}, got); diff != "" {
		t.Errorf("moved (-want +got):\n%s", diff)
	}
}

// TestOrphansCount: what pods hold whose gang is deleted before them is still their queue's.
func TestOrphansCount(t *testing.T) {
	t.Parallel()
	s := NewStore(Options{})
	key := Key{Face: "kai", Namespace: "a", Name: "g"}
	s.Apply(
		NodeState{Name: "n", Allocatable: []Quantity{{"gpu", 8000}, {"pods", 10}}},
		QueueState{Name: "q"},
		GangState{Key: key, UID: "g", Queue: "q"},
		PodState{UID: "p", Name: "p", Namespace: "a", Gang: key, Ours: true, Phase: Running, NodeName: "n", Requests: []Quantity{{"gpu", 2000}}},
	)
	held := func() int64 { return s.Snapshot(UnixNano(1)).QueueByName("q").Allocated.At(GPU) }
	if got := held(); got != 2000 {
		t.Fatalf("before: %d", got)
	}
	s.Apply(GangGone{Key: key})
	if got := held(); got != 2000 {
		t.Errorf("when its gang is gone: %d", got)
	}
	other := Fork(s.Snapshot(UnixNano(1)), Options{})
	if got := other.Snapshot(UnixNano(1)).QueueByName("q").Allocated.At(GPU); got != 2000 {
		t.Errorf("in another store that was told: %d", got)
	}
	s.Apply(PodState{UID: "p", Name: "p", Namespace: "a", Gang: key, Ours: true, Phase: Releasing, NodeName: "n", Requests: []Quantity{{"gpu", 2000}}})
	if got := held(); got != 0 {
		t.Errorf("when it leaves: %d", got)
	}
	s.Apply(PodGone{UID: "p"})
	if got := held(); got != 0 {
		t.Errorf("when it is gone: %d", got)
	}
}

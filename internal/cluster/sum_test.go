package cluster

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// TestSumEqualsBigNumbers: whatever is added and taken away, what is read is the true sum, cut to what can be read.
func TestSumEqualsBigNumbers(t *testing.T) {
	t.Parallel()
	number := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-3, 3), rapid.SampledFrom([]int64{MaxQuantity, -MaxQuantity, math.MaxInt64, -math.MaxInt64, MaxSum, 1 - MaxSum}))
	rapid.Check(t, func(t *rapid.T) {
		var s, o sum
		truth := [2]*big.Int{new(big.Int), new(big.Int)}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			x := number.Draw(t, "x")
			which, into := rapid.IntRange(0, 1).Draw(t, "which"), &s
			if which == 1 {
				into = &o
			}
			if x != math.MinInt64 && rapid.Bool().Draw(t, "take away") {
				into.sub(Resources{0, x})
				x = -x
			} else {
				into.add(Resources{0, x})
			}
			truth[which].Add(truth[which], big.NewInt(x))
		}
		cut := func(b *big.Int) int64 {
			switch {
			case b.Cmp(big.NewInt(MaxSum)) > 0:
				return MaxSum
			case b.Cmp(big.NewInt(-MaxSum)) < 0:
				return -MaxSum
			}
			return b.Int64()
		}
		if got, want := s.at(1).read(), cut(truth[0]); got != want {
			t.Fatalf("read %d, the sum is %v", got, truth[0])
		}
		if got, want := s.at(1).minus(o.at(1)).read(), cut(new(big.Int).Sub(truth[0], truth[1])); got != want {
			t.Fatalf("the difference is read as %d, want %d", got, want)
		}
	})
}

// TestAbsurdPodsLeaveNoTrace: any number of pods of any size, on a node and waiting, never make a sum fall; when they have
// gone, everything is as it was.
func TestAbsurdPodsLeaveNoTrace(t *testing.T) {
	t.Parallel()
	s := NewStore(Options{})
	room := []Quantity{{"cpu", 64_000}, {"memory", 1 << 40}, {"gpu", 8000}, {"pods", 110}}
	s.Apply(NodeState{Name: "n1", UID: "n1", Allocatable: room}, QueueState{Name: "q", UID: "q"})
	gang := Key{"kai", "x", "g"}
	s.Apply(GangState{Key: gang, UID: "g", Queue: "q", Preemptible: true})
	pod := func(name string, x int64, phase Phase, ours bool) PodState {
		p := PodState{
			UID: name, Namespace: "x", Name: name, Ours: ours, Gang: gang, Phase: phase,
			Requests: []Quantity{{"cpu", x}, {"memory", x}, {"gpu", min(x, MaxQuantity)}, {"pods", 1}},
		}
		if phase != Pending {
			p.NodeName = "n1"
		}
		return p
	}
	s.Apply(pod("small", 1000, Running, true))
	before := s.Snapshot(UnixNano(1))
	const many = 9000 // 2^50 each: over 2^63
	last := before
	for i := range many {
		s.Apply(pod(fmt.Sprint("r", i), MaxQuantity, Running, true), pod(fmt.Sprint("f", i), MaxQuantity, Releasing, false), pod(fmt.Sprint("w", i), MaxQuantity, Pending, true))
		if i%300 != 0 && i < many-3 {
			continue
		}
		now := s.Snapshot(UnixNano(1))
		n, q, m, r := now.NodeByName("n1"), now.QueueByName("q"), last.NodeByName("n1"), last.QueueByName("q")
		for d := range 3 {
			if n.Used.At(d) < m.Used.At(d) || n.Foreign.At(d) < m.Foreign.At(d) || q.Allocated.At(d) < r.Allocated.At(d) || q.Requested.At(d) < r.Requested.At(d) {
				t.Fatalf("%d pods: used %v after %v, foreign %v after %v, allocated %v after %v, requested %v after %v", i, n.Used, m.Used, n.Foreign, m.Foreign, q.Allocated, r.Allocated, q.Requested, r.Requested)
			}
			if n.Idle().At(d) >= 0 || n.Later().At(d) >= 0 || n.Later().At(d) < n.Idle().At(d) {
				t.Fatalf("%d pods: idle %v, later %v", i, n.Idle(), n.Later())
			}
		}
		last = now
	}
	for i := range many {
		s.Apply(PodGone{fmt.Sprint("r", i)}, PodGone{fmt.Sprint("f", i)}, PodGone{fmt.Sprint("w", i)})
	}
	after := s.Snapshot(UnixNano(1))
	n, m := after.NodeByName("n1"), before.NodeByName("n1")
	q, r := after.QueueByName("q"), before.QueueByName("q")
	if !n.Used.Equal(m.Used) || !n.Releasing.Equal(m.Releasing) || !n.Foreign.Equal(m.Foreign) || !q.Allocated.Equal(r.Allocated) || !q.Requested.Equal(r.Requested) {
		t.Fatalf("used %v, releasing %v, foreign %v, allocated %v, requested %v; before %v, %v, %v, %v, %v",
			n.Used, n.Releasing, n.Foreign, q.Allocated, q.Requested, m.Used, m.Releasing, m.Foreign, r.Allocated, r.Requested)
	}
}

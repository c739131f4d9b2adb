package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// told is a CompanyScore by hand: kinds by pod, scores by kind, and what has changed.
type told struct {
	kinds   map[cluster.PodID]int
	scores  [][]int64
	changed [][]cluster.NodeID
}

func (c *told) Kind(p *cluster.Pod) int { return c.kinds[p.ID] }

func (c *told) Company(kind int) ([]int64, []cluster.NodeID) {
	return c.scores[kind-1], c.changed[kind-1]
}

// TestBeside: what several say of a node is added up, for pods of one kind for each of them, and follows what changes.
func TestBeside(t *testing.T) {
	t.Parallel()
	a := &told{map[cluster.PodID]int{1: 1, 2: 1, 3: 1}, [][]int64{{1, 2, 3}}, [][]cluster.NodeID{{2}}}
	b := &told{map[cluster.PodID]int{2: 2, 3: 2, 4: 1}, [][]int64{{10, 20, 30}, {100, 200, 300}}, [][]cluster.NodeID{nil, nil}}
	both := beside(beside(nil, a), b)
	kind := func(id cluster.PodID) int { p := &cluster.Pod{}; p.ID = id; return both.Kind(p) }
	if kind(5) != 0 || kind(2) != kind(3) || kind(1) == kind(2) || kind(4) == kind(1) {
		t.Errorf("kinds %d %d %d %d %d", kind(1), kind(2), kind(3), kind(4), kind(5))
	}
	check := func(id cluster.PodID, want []int64, changed []cluster.NodeID) {
		t.Helper()
		scores, news := both.Company(kind(id))
		if d := cmp.Diff(want, scores) + cmp.Diff(changed, news); d != "" {
			t.Errorf("pod %d: -want +got:\n%s", id, d)
		}
	}
	check(1, []int64{1, 2, 3}, nil)
	check(2, []int64{101, 202, 303}, nil)
	check(4, []int64{10, 20, 30}, nil)
	a.scores[0][1], a.changed[0] = 7, append(a.changed[0], 1)
	b.scores[1][0], b.changed[1] = 500, append(b.changed[1], 0)
	check(1, []int64{1, 7, 3}, []cluster.NodeID{1})
	check(2, []int64{501, 207, 303}, []cluster.NodeID{1, 0})
	check(4, []int64{10, 20, 30}, nil)
}

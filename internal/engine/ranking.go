package engine

import (
	"math"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// unfit is the score of a node that cannot take one more pod of the class.
const unfit = math.MinInt64

// ranking keeps, for one class, the best node at the root of a tournament over all nodes, and how many pods of the class
// would fit in all. A change of one node costs the height of the tree; a gang of ten thousand equal pods is placed by
// ten thousand such changes and not by ten thousand scans.
//
// Leaves are in node-name order and a draw goes to the left, so that equal scores end in the smaller name.
type ranking struct {
	class  *cluster.Class
	width  int     // leaves, a power of two
	score  []int64 // per leaf
	count  []int32 // per leaf: how many pods of the class fit into what will be free
	winner []int32 // per inner node and leaf: the leaf that wins below; index 1 is the root
	room   int     // sum of count
	synced int     // how much of Session.touched is included
}

// manyPods bounds the count of one node, for pods that ask for nothing.
const manyPods = 1 << 16

// ranking returns the class's tournament, built or brought up to date.
func (s *Session) ranking(c *cluster.Class) *ranking {
	r := s.rankings[c.ID]
	if r == nil {
		r = s.buildRanking(c)
		s.rankings[c.ID] = r
		return r
	}
	if len(s.touched)-r.synced > 4*r.width { // cheaper to start over than to replay
		*r = *s.buildRanking(c)
		return r
	}
	for ; r.synced < len(s.touched); r.synced++ {
		n := s.touched[r.synced]
		s.refresh(r, n, s.rank[n])
	}
	return r
}

func (s *Session) buildRanking(c *cluster.Class) *ranking {
	width := 1
	for width < len(s.Snap.NodeOrder) {
		width *= 2
	}
	r := &ranking{class: c, width: width, score: make([]int64, width), count: make([]int32, width), winner: make([]int32, 2*width), synced: len(s.touched)}
	mask := s.staticMask(c)
	for i := range width {
		r.score[i] = unfit
		if i < len(s.Snap.NodeOrder) {
			if id := s.Snap.NodeOrder[i]; mask.has(id) {
				s.rate(r, id, int32(i))
			}
		}
		r.winner[width+i] = int32(i)
	}
	for i := width - 1; i >= 1; i-- {
		r.winner[i] = r.play(r.winner[2*i], r.winner[2*i+1])
	}
	return r
}

// play returns the leaf with the larger score; draws go to l, which has the smaller name.
func (r *ranking) play(l, m int32) int32 {
	if r.score[m] > r.score[l] {
		return m
	}
	return l
}

// rate computes leaf i from the session's ledgers.
func (s *Session) rate(r *ranking, n cluster.NodeID, i int32) {
	r.room -= int(r.count[i])
	r.count[i] = int32(r.class.Requests.CountIn(s.Later(n), manyPods))
	r.room += int(r.count[i])
	if r.count[i] == 0 {
		r.score[i] = unfit
		return
	}
	r.score[i] = s.scoreNode(r.class, s.Snap.Node(n))
}

func (s *Session) scoreNode(c *cluster.Class, n *cluster.Node) int64 {
	sum := int64(0)
	for _, p := range s.points.scores {
		sum += p.ScoreNode(c, n)
	}
	return sum
}

// refresh recomputes a leaf after its node changed, and the matches above it.
func (s *Session) refresh(r *ranking, n cluster.NodeID, i int32) {
	if !s.staticMask(r.class).has(n) {
		return
	}
	s.rate(r, n, i)
	r.replay(i)
}

func (r *ranking) replay(i int32) {
	for k := (int32(r.width) + i) / 2; k >= 1; k /= 2 {
		r.winner[k] = r.play(r.winner[2*k], r.winner[2*k+1])
	}
}

// best returns the leaf that wins, and false when no node fits.
func (r *ranking) best() (int32, bool) {
	i := r.winner[1]
	return i, r.score[i] != unfit
}

// setAside takes a leaf out of the tournament and returns its score for restore.
func (r *ranking) setAside(i int32) int64 {
	old := r.score[i]
	r.score[i] = unfit
	r.replay(i)
	return old
}

func (r *ranking) restore(i int32, score int64) {
	r.score[i] = score
	r.replay(i)
}

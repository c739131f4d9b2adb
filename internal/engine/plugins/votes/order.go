package votes

import (
	"cmp"
	"math/bits"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// How the plugins order queues, gangs and pods, and what they say of who may be given more.

// bestEffort says whether pods of a class ask for nothing but to run.
func bestEffort(c *cluster.Class) bool {
	for d, x := range c.Requests {
		if d != cluster.Slots && x > 0 {
			return false
		}
	}
	return c.Share.None() && len(c.Devices) == 0
}

// CompareGangs implements policy.GangOrder: those that are not ready go first. A gang is ready when as many of its pods hold room, have ended well, or wait and ask for nothing as
// its minimum says.
func (l *gangLaw) CompareGangs(a, b *ledger.GangState) int {
	return policy.First(!l.ready(a), !l.ready(b))
}

func (l *gangLaw) ready(g *ledger.GangState) bool {
	ready, _ := g.CountReady()
	if ready >= g.MinPods() {
		return true
	}
	if l.trifles == nil {
		l.trifles = make([]int8, l.view.Snapshot().MaxGangID())
	}
	if l.trifles[g.ID] == 0 {
		l.trifles[g.ID] = 1
		if l.trifling(g) > 0 {
			l.trifles[g.ID] = 2
		}
	}
	return l.trifles[g.ID] == 2 && ready+l.trifling(g) >= g.MinPods()
}

// trifling is how many pods of a gang wait and ask for nothing.
func (l *gangLaw) trifling(g *ledger.GangState) (n int) {
	for i := range g.Sets {
		if g.Sets[i].Leaf {
			for _, id := range g.SetWaiting(int32(i)) {
				if bestEffort(l.view.Snapshot().Pod(id).Class) {
					n++
				}
			}
		}
	}
	return n
}

// CompareGangs implements policy.GangOrder.
func (priorityLaw) CompareGangs(l, r *ledger.GangState) int {
	return cmp.Compare(r.Priority, l.Priority)
}

// ComparePods implements policy.PodOrder.
func (priorityLaw) ComparePods(l, r *cluster.Pod) int { return cmp.Compare(r.Priority, l.Priority) }

// CompareGangs implements policy.GangOrder: the one that has to be admitted first, by when it was made and how long it may wait; those that say nothing of it come last.
func (s *waitVote) CompareGangs(l, r *ledger.GangState) int {
	lw, rw := s.waits(l), s.waits(r)
	if lw <= 0 || rw <= 0 {
		return policy.First(lw > 0, rw > 0)
	}
	return l.Created.Add(lw).Compare(r.Created.Add(rw))
}

// wholeShare is a share of 1, in the unit of shares: a million-millionth.
const wholeShare = 1_000_000_000_000

// part is what part of all of it a holds, in the unit of shares, cut to the unit below: of something that there is nothing of, all if a holds any.
func part(a, all int64) int64 {
	switch {
	case a <= 0:
		return 0
	case all <= 0:
		return wholeShare
	}
	hi, lo := bits.Mul64(uint64(a), wholeShare)
	if hi >= uint64(all) {
		return cluster.MaxSum
	}
	q, _ := bits.Div64(hi, lo, uint64(all))
	return int64(min(q, uint64(cluster.MaxSum)))
}

// dominant is the largest part that a vector is of another, slots apart.
func dominant(of cluster.Resources, all func(d int) int64) (share int64) {
	for d, x := range of {
		if d != cluster.Slots {
			share = max(share, part(x, all(d)))
		}
	}
	return share
}

// CompareLeaves implements policy.LeafOrder: the higher priority first, and then the smaller part that a queue holds of what it deserves.
func (l *proportionLaw) CompareLeaves(a, b *ledger.QueueLedger) int {
	if c := cmp.Compare(b.Priority, a.Priority); c != 0 {
		return c
	}
	return cmp.Compare(l.share(a), l.share(b))
}

func (l *proportionLaw) share(q *ledger.QueueLedger) int64 {
	deserved := l.weighed(q)
	return dominant(q.Allocated, deserved.At)
}

// CheckQueue implements policy.QueueGate: a queue holds no more than it deserves of what is asked for.
func (l *proportionLaw) CheckQueue(g *ledger.GangState, request cluster.Resources, _ bool) policy.Verdict {
	deserved := l.weighed(g.Leaf)
	for i, x := range request {
		if has := g.Leaf.Allocated.At(i); i != cluster.Slots && x > 0 && has+x > deserved.At(i) {
			return l.no(ReasonBeyondDeserved, g.Leaf, i, has+x, deserved.At(i))
		}
	}
	return policy.Verdict{}
}

// CompareLeaves implements policy.LeafOrder: the higher priority first, and then the smaller part that a queue holds of what it deserves; of equal ones the one that deserves something.
// With the tree that is said of the queues at which the ways of the two part.
func (l *capacityLaw) CompareLeaves(a, b *ledger.QueueLedger) int {
	if c := cmp.Compare(b.Priority, a.Priority); c != 0 {
		return c
	}
	if l.tree {
		a, b = fork(a, b)
	}
	as, adeserves := l.share(a)
	bs, bdeserves := l.share(b)
	return cmp.Or(cmp.Compare(as, bs), policy.First(adeserves, bdeserves))
}

// fork returns the queues at which the ways from the top to two queues part.
func fork(a, b *ledger.QueueLedger) (l, r *ledger.QueueLedger) {
	for a.Depth > b.Depth {
		a = a.Parent
	}
	for b.Depth > a.Depth {
		b = b.Parent
	}
	for a.Parent != b.Parent {
		a, b = a.Parent, b.Parent
	}
	return a, b
}

// share is the part that a queue holds of what it deserves, all of it where that is nothing.
func (l *capacityLaw) share(q *ledger.QueueLedger) (share int64, deserves bool) {
	for d := range l.view.Snapshot().Dims.Len() {
		deserves = deserves || d != cluster.Slots && l.said(q, d) > 0
	}
	if !deserves {
		return wholeShare, false
	}
	return dominant(q.Allocated, func(d int) int64 { return l.said(q, d) }), true
}

// CheckQueue implements policy.QueueGate: a queue, and with the tree each one above it, holds no more than it may have of what is asked for.
func (l *capacityLaw) CheckQueue(g *ledger.GangState, request cluster.Resources, _ bool) policy.Verdict {
	for q := g.Leaf; q != nil; q = q.Parent {
		may := l.may(q)
		for i, x := range request {
			if has := q.Allocated.At(i); i != cluster.Slots && x > 0 && has+x > may.At(i) {
				return l.no(ReasonBeyondCapability, q, i, has+x, may.At(i))
			}
		}
		if !l.tree {
			break
		}
	}
	return policy.Verdict{}
}

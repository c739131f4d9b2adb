package votes

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// DeservedFactory and QuotasFactory are proportion and capacity as they order queues, and say who may be given more and who may take from whom, beside what they say of admission. The queue of
// higher priority goes first, and then the one that holds the smaller part of what it deserves.
//
// By proportion what there is for the face is divided between the queues that hold or ask for something, by weight; see [division.fill]. A queue that holds all that it deserves is given
// nothing and takes nothing back; one is given, and takes back, up to what it deserves; and is taken from while it holds more than it deserves of something.
//
// By capacity what a queue deserves is what it says, of what it may have, and no less than what is guaranteed to it. It is given what it may have. It takes back within what it may have, if it stays within what it
// deserves of something that it asks for. From a queue may be taken, down to what is guaranteed to it, who holds something that is asked for: anything where the queue deserves
// nothing of what the pod holds, else while it holds more than it deserves of something that both ask for.
var (
	DeservedFactory = policy.Makes(func(policy.Arguments) (func(*policy.View) *proportionLaw, []string, error) {
		return func(v *policy.View) *proportionLaw { return &proportionLaw{division: division{view: v}} }, nil, nil
	}, ReasonQueueOverused, ReasonOverDeserved, ReasonWithinDeserved, ReasonBeyondDeserved)
	QuotasFactory = policy.Makes(func(args policy.Arguments) (func(*policy.View) *capacityLaw, []string, error) {
		tree := args[HierarchyArgument] == "true"
		return func(v *policy.View) *capacityLaw { return &capacityLaw{division{view: v, tree: tree}} }, nil, nil
	}, ReasonGuaranteed, ReasonNothingInCommon, ReasonBeyondCapability)
)

// division is what queues deserve, computed when somebody asks.
type division struct {
	view     *policy.View
	tree     bool
	numbers  *queueVote
	deserved map[cluster.QueueID]cluster.Resources
	of       string // the face that deserved is of
}

// may is what a queue may have.
func (d *division) may(q *ledger.QueueLedger) cluster.Resources {
	if d.numbers == nil {
		d.numbers = openQueues(d.view, d.tree, false)
	}
	return d.numbers.mayHave(q)
}

// weighed returns what a queue deserves by weight; nothing for one that takes no part.
func (d *division) weighed(q *ledger.QueueLedger) cluster.Resources {
	face, _ := cluster.SplitQueue(q.Name)
	if d.deserved == nil || d.of != face {
		d.of, d.deserved = face, map[cluster.QueueID]cluster.Resources{}
		d.fill(face)
	}
	return d.deserved[q.ID]
}

// ours is what there is for a face: what all nodes have, without what others have a claim on where the cluster is divided between faces.
func (d *division) ours(face string) cluster.Resources {
	out := whole(d.view.Snapshot())
	for _, q := range d.view.Queues() {
		if of, _ := cluster.SplitQueue(q.Name); q.Parent == nil && of != face {
			for i, x := range d.view.FairShare(q.ID) {
				if i < len(out) {
					out[i] = max(0, out[i]-max(0, x))
				}
			}
		}
	}
	return out
}

// mostRounds bounds how often what is left is divided. What is left shrinks by what it was divided among, so that few are needed.
const mostRounds = 1000

// fill divides what there is between the queues that hold or ask for something: round by round each that takes part gets of what is left by its weight, at most what it may have, at most
// what it asks for, and no less than what is guaranteed to it. It leaves when it has all it asks for, or a round gave it nothing more. What a weight gives is cut to the unit below.
func (d *division) fill(face string) {
	type part struct {
		q    *ledger.QueueLedger
		has  cluster.Resources
		done bool
	}
	left := d.ours(face)
	var parts []*part
	for _, q := range d.view.Queues() {
		if of, _ := cluster.SplitQueue(q.Name); of != face || len(q.Children) > 0 || q.Lost || !anything(q.Requested) {
			continue
		}
		has := make(cluster.Resources, len(left))
		parts, d.deserved[q.ID] = append(parts, &part{q: q, has: has}), has
	}
	for range mostRounds {
		sum, given := int64(0), make(cluster.Resources, len(left))
		for _, p := range parts {
			if !p.done {
				sum += weight(p.q)
			}
		}
		if sum == 0 {
			return
		}
		for _, p := range parts {
			if p.done {
				continue
			}
			may, all, more := d.may(p.q), true, false
			for i, was := range p.has {
				x := min(was+share(left[i], weight(p.q), sum), may.At(i), p.q.Requested.At(i))
				x = max(x, p.q.Guarantee.At(i))
				p.has[i] = x
				given[i] += x - was
				all, more = all && (i == cluster.Slots || x >= p.q.Requested.At(i)), more || x != was
			}
			p.done = all || !more
		}
		for i := range left {
			left[i] = max(0, left[i]-given[i])
		}
	}
}

func anything(r cluster.Resources) bool {
	for _, x := range r {
		if x > 0 {
			return true
		}
	}
	return false
}

// weight is a queue's, the same in every dimension.
func weight(q *ledger.QueueLedger) int64 { return max(1, q.Weight.At(cluster.CPU)) }

// share is x times w/sum, cut to the unit below; w is at most sum.
func share(x, w, sum int64) int64 {
	hi, lo := bits.Mul64(uint64(max(0, x)), uint64(w))
	q, _ := bits.Div64(hi, lo, uint64(sum))
	return int64(q)
}

// said is what a queue deserves by its own word.
func (d *division) said(q *ledger.QueueLedger, i int) int64 {
	x := q.Quota.At(i)
	if !d.tree {
		x = min(x, d.may(q).At(i))
	}
	return max(x, q.Guarantee.At(i))
}

func (d *division) no(reason *policy.Reason, q *ledger.QueueLedger, i int, need, have int64) policy.Verdict {
	return policy.Verdict{Code: policy.No, Reason: reason, Object: q.Name, Dim: d.view.Snapshot().Dims.Name(i), Need: need, Have: have}
}

type proportionLaw struct {
	division
	told turn // the last
}

// turn is what was said of a queue's turn, as long as it holds the same.
type turn struct {
	q       *ledger.QueueLedger
	charges int
	v       policy.Verdict
}

// within says whether a queue holds, with so much less, no more than it deserves.
func (l *proportionLaw) within(q *ledger.QueueLedger, less cluster.Resources) bool {
	deserved := l.weighed(q)
	for i, x := range q.Allocated {
		if i != cluster.Slots && x-less.At(i) > deserved.At(i) {
			return false
		}
	}
	return true
}

// CheckTurn implements policy.QueueTurn: a queue is overused that holds all that it deserves of everything.
func (l *proportionLaw) CheckTurn(q *ledger.QueueLedger) policy.Verdict {
	if l.told.q == q && l.told.charges == q.Charges {
		return l.told.v
	}
	l.told = turn{q, q.Charges, l.turn(q)}
	return l.told.v
}

func (l *proportionLaw) turn(q *ledger.QueueLedger) policy.Verdict {
	dims, said := l.view.Snapshot().Dims, []string(nil)
	for i, x := range l.weighed(q) {
		switch {
		case i == cluster.Slots:
		case x > q.Allocated.At(i):
			return policy.Verdict{}
		case x > 0:
			said = append(said, fmt.Sprintf("%s of %s %s", dims.FormatOne(i, q.Allocated.At(i)), dims.FormatOne(i, x), dims.Name(i)))
		}
	}
	return policy.Verdict{Code: policy.No, Reason: ReasonQueueOverused, Object: q.Name, Detail: strings.Join(said, ", ")}
}

// CheckReclaim implements policy.ReclaimGate.
func (l *proportionLaw) CheckReclaim(g *ledger.GangState, request cluster.Resources) policy.Verdict {
	deserved := l.weighed(g.Leaf)
	for i, x := range request {
		if has := g.Leaf.Allocated.At(i); i != cluster.Slots && x > 0 && has+x > deserved.At(i) {
			return l.no(ReasonOverDeserved, g.Leaf, i, has+x, deserved.At(i))
		}
	}
	return policy.Verdict{}
}

// VoteReclaimable implements policy.Reclaimable.
func (l *proportionLaw) VoteReclaimable(_ *ledger.GangState, _ cluster.Resources, c *policy.Candidate) (policy.Vote, policy.Verdict) {
	if l.within(c.Gang.Leaf, c.Freed) {
		return reject(policy.Verdict{Reason: ReasonWithinDeserved, Object: c.Gang.Leaf.Name})
	}
	return policy.Permit, policy.Verdict{}
}

type capacityLaw struct{ division }

// CheckReclaim implements policy.ReclaimGate.
func (l *capacityLaw) CheckReclaim(g *ledger.GangState, request cluster.Resources) policy.Verdict {
	may, owed := l.may(g.Leaf), false
	over, first := policy.Verdict{}, policy.Verdict{}
	for i, x := range request {
		if i == cluster.Slots || x <= 0 {
			continue
		}
		has, deserved := g.Leaf.Allocated.At(i), l.said(g.Leaf, i)
		if has+x > may.At(i) && over.Yes() {
			over = l.no(ReasonOverDeserved, g.Leaf, i, has+x, may.At(i))
		}
		if has+x > deserved && first.Yes() {
			first = l.no(ReasonOverDeserved, g.Leaf, i, has+x, deserved)
		}
		owed = owed || has+x <= deserved
	}
	if !over.Yes() || owed {
		return over
	}
	return first
}

// VoteReclaimable implements policy.Reclaimable.
func (l *capacityLaw) VoteReclaimable(_ *ledger.GangState, request cluster.Resources, c *policy.Candidate) (policy.Vote, policy.Verdict) {
	q, common, named, over := c.Gang.Leaf, false, false, false
	for i, x := range c.Pod.Charge {
		if i == cluster.Slots || x <= 0 {
			continue
		}
		has, both := q.Allocated.At(i)-c.Freed.At(i), request.At(i) > 0
		common, named = common || both, named || l.said(q, i) > 0
		over = over || both && has > l.said(q, i)
		if has-x < q.Guarantee.At(i) {
			return reject(l.no(ReasonGuaranteed, q, i, has-x, q.Guarantee.At(i)))
		}
	}
	switch {
	case !common:
		return reject(policy.Verdict{Reason: ReasonNothingInCommon, Object: q.Name})
	case named && !over:
		return reject(policy.Verdict{Reason: ReasonWithinDeserved, Object: q.Name})
	}
	return policy.Permit, policy.Verdict{}
}

package votes

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// tree is the hierarchy that the queues of a face say by their paths and weights, and what is held at each place of it, as of a number of changes.
//
// A queue holds what its gangs do. It is saturated when it asks for nothing more, or for more of something of which the nodes have no more. A place above holds what its saturated
// children hold, and of the others as much as makes their shares as small as the smallest of these; it is saturated when all below it are. Of two queues the one goes first whose way, at
// the first step at which they part, leads to a place that is not saturated, and then to the smaller share per weight. A place has the weight that the first queue by name that names it says.
type tree struct {
	face    string
	charges int // 1 more than the changes of the face when it was computed
	root    place
	of      map[cluster.QueueID]*place
}

// place is one of the tree.
type place struct {
	name      string
	weight    int64 // in millionths
	above     *place
	depth     int
	children  []*place
	queue     *ledger.QueueLedger // nil for one above queues
	holds     cluster.Resources
	share     int64
	saturated bool
}

// Entwined implements policy.Entwined: what one queue holds moves the share of the place above it, and with that those beside.
func (l *drfLaw) Entwined() bool { return l.hierarchy }

// CompareLeaves implements policy.LeafOrder.
func (l *drfLaw) CompareLeaves(a, b *ledger.QueueLedger) int {
	if !l.hierarchy {
		return 0
	}
	l.grow(a)
	x, y := l.tree.of[a.ID], l.tree.of[b.ID]
	if x == nil || y == nil {
		return 0
	}
	for x.depth > y.depth {
		x = x.above
	}
	for y.depth > x.depth {
		y = y.above
	}
	for x.above != y.above {
		x, y = x.above, y.above
	}
	if x.saturated != y.saturated {
		return policy.First(!x.saturated, !y.saturated)
	}
	lhi, llo := bits.Mul64(uint64(x.share), uint64(y.weight))
	rhi, rlo := bits.Mul64(uint64(y.share), uint64(x.weight))
	return cmp.Or(cmp.Compare(lhi, rhi), cmp.Compare(llo, rlo))
}

// grow computes the tree of a queue's face anew, if something of the face has changed: O(queues × dimensions).
func (l *drfLaw) grow(of *ledger.QueueLedger) {
	face, _ := cluster.SplitQueue(of.Name)
	charges, left := 1, l.all.Clone()
	for _, q := range l.view.Queues() {
		if q.Parent != nil {
			continue
		}
		if its, _ := cluster.SplitQueue(q.Name); its == face {
			charges += q.Charges
		}
		for d := range left {
			left[d] -= q.Allocated.At(d)
		}
	}
	t := &l.tree
	if t.face == face && t.charges == charges {
		return
	}
	if t.face != face || t.of == nil {
		*t = tree{face: face, of: map[cluster.QueueID]*place{}}
		var leaves []*ledger.QueueLedger
		for _, q := range l.view.Queues() {
			if its, _ := cluster.SplitQueue(q.Name); its == face && len(q.Children) == 0 && !q.Lost {
				leaves = append(leaves, q)
			}
		}
		slices.SortFunc(leaves, func(a, b *ledger.QueueLedger) int { return cmp.Compare(a.Name, b.Name) })
		for _, q := range leaves {
			t.of[q.ID] = t.root.take(q)
		}
	}
	t.charges = charges
	l.sum(&t.root, left)
}

// take puts a queue at the end of its path. One without a path is below the root, by its own name and with weight 1.
func (p *place) take(q *ledger.QueueLedger) *place {
	path := q.Path
	if len(path) == 0 {
		_, name := cluster.SplitQueue(q.Name)
		path = []cluster.Step{{Name: name, Weight: millionths}}
	}
	for _, step := range path {
		p = p.child(step)
	}
	end := &place{above: p, depth: p.depth + 1, weight: millionths, queue: q}
	p.children = append(p.children, end)
	return end
}

func (p *place) child(step cluster.Step) *place {
	for _, c := range p.children {
		if c.queue == nil && c.name == step.Name {
			return c
		}
	}
	c := &place{name: step.Name, weight: max(millionths, step.Weight), above: p, depth: p.depth + 1}
	p.children = append(p.children, c)
	return c
}

// sum adds up what is held at a place and below it; left is what the nodes have that nobody holds.
func (l *drfLaw) sum(p *place, left cluster.Resources) {
	if q := p.queue; q != nil {
		p.holds, p.saturated = q.Allocated, true
		for d, x := range q.Requested {
			if d != cluster.Slots && x > q.Allocated.At(d) {
				if p.saturated = left.At(d) <= 0; p.saturated {
					break
				}
			}
		}
		p.share = l.share(p.holds)
		return
	}
	least := int64(cluster.MaxSum)
	p.saturated = true
	for _, c := range p.children {
		if l.sum(c, left); !c.saturated {
			p.saturated, least = false, min(least, c.share)
		}
	}
	p.holds = make(cluster.Resources, len(left))
	for _, c := range p.children {
		for d, x := range c.holds {
			if !c.saturated {
				x = scaled(x, least, c.share)
			}
			p.holds[d] += x
		}
	}
	p.share = l.share(p.holds)
}

// scaled is x times least/share, cut to the unit below; least is at most share, and nothing of nothing is nothing.
func scaled(x, least, share int64) int64 {
	if share <= 0 || x <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(x), uint64(least))
	q, _ := bits.Div64(hi, lo, uint64(share))
	return int64(q)
}

package engine

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/rules"
)

// GangQueue hands out gangs in the order in which they are served: down the queue forest by queue order, each queue
// standing for the best gang below it, and within the leaf by gang order. What a placement changes is looked at anew
// before the next gang is taken, so the order is exact at every step.
//
// Below the top of a face with a configuration of its own a queue stands for the leaf of the best gang below it, and its
// plugins order these leaves. Where the place of one may change with what another holds, all leaves hang at the top, and
// are put in order anew when one of them has changed: O(leaves · log) for each change.
//
// Below each queue there are the queues in their order as it was when the GangQueue began, and a tournament of those that
// have left their place in it since: O(1) for a gang that gets nothing and whose queue asks for the same next, and
// O(depth × log queues) for one that changes something. One GangQueue of a session is in use at a time.
type GangQueue struct {
	s     *Session
	root  *queueNode
	nodes []queueNode // by queue ID; those that hang in the tree have gangs below them
	dirty *queueNode  // leaf whose shares may have changed since the last look
	flat  bool        // the queues of some face are entwined
}

// queueNode is one queue that has gangs below it, or had.
type queueNode struct {
	ledger  *ledger.QueueLedger // nil for the root
	parent  *queueNode
	at      int // in parent.kids
	kids    []*queueNode
	first   int     // kids before it have left their place, or have nobody
	winner  []int32 // per match and kid that has left its place: which kid is before the other; match 1 is the last one played; nil while nobody has
	count   int     // of a leaf: how many gangs it was given
	gangs   gangHeap
	best    *ledger.GangState // whom it stands for; nil for nobody
	charges int               // its ledger's, when it got its place
	moved   bool              // it has left its place among the kids, and plays
	flat    bool              // the queues below it are entwined
	sorted  int               // its ledger's charges, when they were put in order, where they are
}

// NewGangQueue returns a queue over the given gangs; each must have a Leaf. Of each leaf, no more gangs are handed out
// than the running action's depth says; the others are diagnosed. O(gangs + queues), with the logarithm of the queues where
// their order has changed since the last one, and of the gangs where there is a depth.
func (s *Session) NewGangQueue(gangs []*ledger.GangState) *GangQueue {
	q := &GangQueue{s: s, root: &queueNode{}, nodes: ledger.Cleared(&s.engine.slabs.queues, s.Ledger.MaxQueueID()), flat: s.Rules.Entwines()}
	if hints := &s.engine.slabs.places; len(*hints) < len(q.nodes) {
		ledger.Cleared(hints, len(q.nodes))
	}
	leafs := make([]*queueNode, 0, min(len(gangs), len(s.Ledger.Queues())))
	for _, g := range gangs {
		leaf := q.node(g.Leaf)
		if leaf.count++; leaf.count == 1 {
			leafs = append(leafs, leaf)
		}
	}
	room := make([]*ledger.GangState, len(gangs)) // one piece for all leaves, each of which has its part
	for _, leaf := range leafs {
		leaf.gangs, room = gangHeap{rules: s.Rules, list: room[:0:leaf.count]}, room[leaf.count:]
	}
	for _, g := range gangs {
		leaf := &q.nodes[g.Leaf.ID]
		leaf.gangs.list = append(leaf.gangs.list, g)
	}
	if depth := s.engine.profile.Settings.QueueDepth[s.Recorder.Action()]; depth > 0 {
		for _, leaf := range leafs {
			if list := leaf.gangs.list; len(list) > depth {
				slices.SortFunc(list, s.Rules.CompareGangs)
				for _, g := range list[depth:] {
					s.Recorder.Beyond(g, depth)
				}
				leaf.gangs.list = list[:depth]
			}
		}
	}
	q.init(q.root)
	return q
}

// node returns the queue's node, hanging it and its ancestors into the tree.
func (q *GangQueue) node(l *ledger.QueueLedger) *queueNode {
	if l == nil {
		return q.root
	}
	n := &q.nodes[l.ID]
	if n.ledger != nil {
		return n
	}
	up := l.Parent
	if q.flat && up != nil {
		face, _ := cluster.SplitQueue(l.Name)
		if own := q.s.Rules.Orders(face); own != nil && own.Entwined {
			for up.Parent != nil {
				up = up.Parent
			}
			q.node(up).flat = true
		}
	}
	n.ledger, n.parent = l, q.node(up)
	if n.parent.kids == nil {
		siblings := len(q.s.Ledger.Tops())
		if up != nil {
			siblings = len(up.Children)
		}
		n.parent.kids = make([]*queueNode, 0, siblings)
	}
	n.parent.kids = append(n.parent.kids, n)
	return n
}

func (q *GangQueue) init(n *queueNode) {
	for _, k := range n.kids {
		q.init(k)
	}
	heap.Init(&n.gangs)
	if len(n.kids) > 1 {
		// First as they were the last time: hardly any has another place now, and to sort what is sorted costs a comparison each.
		places := q.s.engine.slabs.places
		slices.SortFunc(n.kids, func(l, r *queueNode) int { return cmp.Compare(places[l.ledger.ID], places[r.ledger.ID]) })
		slices.SortFunc(n.kids, q.compare)
		for i, k := range n.kids {
			k.at, places[k.ledger.ID] = i, int32(i)
		}
	}
	if n.flat {
		n.sorted = n.ledger.Charges
	}
	q.look(n)
	n.placed()
}

// placed notes that a queue has the place that is its now.
func (n *queueNode) placed() {
	if n.ledger != nil {
		n.charges = n.ledger.Charges
	}
}

// look finds out anew whom a node stands for.
func (q *GangQueue) look(n *queueNode) {
	n.best = nil
	switch {
	case len(n.gangs.list) > 0:
		n.best = n.gangs.list[0]
	case len(n.kids) > 0:
		if n.flat && n.sorted != n.ledger.Charges {
			q.sort(n)
		}
		for n.first < len(n.kids) && (n.kids[n.first].moved || n.kids[n.first].best == nil) {
			n.first++
		}
		var of *queueNode
		if n.winner != nil {
			of = n.kids[n.winner[1]]
		}
		if of == nil || !of.plays() || n.first < len(n.kids) && q.before(n.kids[n.first], of) {
			if of = nil; n.first < len(n.kids) {
				of = n.kids[n.first]
			}
		}
		if of != nil {
			n.best = of.best
		}
	}
}

// sort puts the kids of a node whose queues are entwined in order anew, those that have nobody last.
func (q *GangQueue) sort(n *queueNode) {
	slices.SortFunc(n.kids, func(l, r *queueNode) int {
		if l.best == nil || r.best == nil {
			return policy.First(l.best != nil, r.best != nil)
		}
		return q.compare(l, r)
	})
	for i, k := range n.kids {
		k.at, k.moved = i, false
		k.placed()
	}
	n.first, n.winner, n.sorted = 0, nil, n.ledger.Charges
}

// plays says whether the node takes part in the tournament of its siblings.
func (n *queueNode) plays() bool { return n.moved && n.best != nil }

// play decides match k among the kids of a node.
func (q *GangQueue) play(n *queueNode, k int) {
	l, r := n.winner[2*k], n.winner[2*k+1]
	n.winner[k] = l
	if a, b := n.kids[l], n.kids[r]; b.plays() && (!a.plays() || q.before(b, a)) {
		n.winner[k] = r
	}
}

// before says whether a queue is served before its sibling.
func (q *GangQueue) before(l, r *queueNode) bool { return q.compare(l, r) < 0 }

// compare orders siblings that both have somebody.
func (q *GangQueue) compare(l, r *queueNode) int {
	if own := q.own(l); own != nil {
		return own.CompareLeaves(l.best.Leaf, r.best.Leaf)
	}
	_, lNext := q.s.Ledger.Next(l.best)
	_, rNext := q.s.Ledger.Next(r.best)
	return q.s.Rules.CompareQueues(l.ledger, r.ledger, lNext, rNext)
}

// own is how the face of a queue that has somebody orders its siblings; nil where plugins of all do: at the top, and of a face without a configuration of its own.
func (q *GangQueue) own(n *queueNode) *policy.Orders {
	if n.ledger.Parent == nil {
		return nil
	}
	return q.s.Rules.Orders(n.best.Key.Face)
}

// Pop returns the next gang, nil when there is none.
func (q *GangQueue) Pop() *ledger.GangState {
	q.settle()
	g := q.root.best
	if g == nil {
		q.s.engine.trying(nil)
		return nil
	}
	n := &q.nodes[g.Leaf.ID]
	heap.Pop(&n.gangs)
	q.dirty = n
	q.s.engine.trying(g)
	return g
}

// Push puts a gang back that was handed out, to be taken again at its turn.
func (q *GangQueue) Push(g *ledger.GangState) {
	q.settle()
	n := &q.nodes[g.Leaf.ID]
	heap.Push(&n.gangs, g)
	q.fix(n)
}

// Stay tells the queue that the gang it handed out last waits on, without its minimum. If its leaf hands out in order, those behind it are told so and not handed out, but for those to
// whom room is promised. O(gangs of the leaf), once.
func (q *GangQueue) Stay(g *ledger.GangState) {
	if !g.Leaf.InOrder || g.Satisfied() {
		return
	}
	n := &q.nodes[g.Leaf.ID]
	n.gangs.list = slices.DeleteFunc(n.gangs.list, func(behind *ledger.GangState) bool {
		if q.s.Ledger.Holds(behind) || behind.Satisfied() {
			return false
		}
		q.s.Recorder.Behind(behind, g)
		return true
	})
	heap.Init(&n.gangs)
}

// settle puts the branch of the last gang in order, after whatever was placed.
func (q *GangQueue) settle() {
	if n := q.dirty; n != nil {
		q.dirty = nil
		q.fix(n)
	}
}

// Changed tells the queue that the shares of a leaf changed by other than the last gang it handed out.
func (q *GangQueue) Changed(leaf *ledger.QueueLedger) {
	q.settle()
	for l := leaf; l != nil; l = l.Parent {
		if n := &q.nodes[l.ID]; n.ledger != nil {
			q.fix(n)
			return
		}
	}
}

// fix finds the places of a queue, and of those above it, anew.
func (q *GangQueue) fix(n *queueNode) {
	for ; ; n = n.parent {
		was := n.best
		q.look(n)
		if n.parent == nil {
			return
		}
		q.place(n, was)
	}
}

// place finds a queue's place among its siblings, when it stood for was before.
func (q *GangQueue) place(n *queueNode, was *ledger.GangState) {
	if n.best == nil && !n.moved || n.best != nil && was != nil && n.charges == n.ledger.Charges && q.alike(n, was) {
		return // nobody in its place, which is passed, or the same place
	}
	up := n.parent
	if up.flat && up.sorted != up.ledger.Charges {
		return // all of them will be put in order
	}
	if up.winner == nil {
		up.winner = make([]int32, 2*len(up.kids))
		for i := range up.kids {
			up.winner[len(up.kids)+i] = int32(i)
		}
		for k := len(up.kids) - 1; k >= 1; k-- {
			up.winner[k] = up.winner[2*k]
		}
	}
	n.moved = true
	n.placed()
	for k := (len(up.kids) + n.at) / 2; k >= 1; k /= 2 {
		q.play(up, k)
	}
}

// alike says whether a queue that held the same has the place that it had when it stood for a: the gangs are of one leaf, where that counts, or ask for the same.
func (q *GangQueue) alike(n *queueNode, a *ledger.GangState) bool {
	b := n.best
	if q.own(n) != nil {
		return a.Leaf == b.Leaf
	}
	_, l := q.s.Ledger.Next(a)
	_, r := q.s.Ledger.Next(b)
	return a == b || slices.Equal(l, r)
}

type gangHeap struct {
	rules *rules.Rules
	list  []*ledger.GangState
}

func (h *gangHeap) Len() int      { return len(h.list) }
func (h *gangHeap) Swap(i, j int) { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *gangHeap) Push(x any)    { h.list = append(h.list, x.(*ledger.GangState)) }
func (h *gangHeap) Pop() any {
	g := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	return g
}
func (h *gangHeap) Less(i, j int) bool { return h.rules.CompareGangs(h.list[i], h.list[j]) < 0 }

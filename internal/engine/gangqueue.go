package engine

import (
	"cmp"
	"container/heap"
	"slices"
)

// GangQueue hands out gangs in the order in which they are served: down the queue forest by queue order, each queue
// standing for the best gang below it, and within the leaf by gang order. What a placement changes is looked at anew
// before the next gang is taken, so the order is exact at every step. Below each queue there is a tournament of queues, in
// which one that changes plays again: O(depth × log queues) for each gang.
type GangQueue struct {
	s     *Session
	root  *queueNode
	nodes []queueNode // by queue ID; those that hang in the tree have gangs below them
	dirty *queueNode  // leaf whose shares may have changed since the last look
}

// queueNode is one queue that has gangs below it, or had.
type queueNode struct {
	ledger *QueueLedger // nil for the root
	parent *queueNode
	at     int // in parent.kids
	kids   []*queueNode
	winner []int32 // per match and kid: which kid is before the other; match 1 is the last one played
	count  int     // of a leaf: how many gangs it was given
	gangs  gangHeap
	best   *GangState // whom it stands for; nil for nobody
}

// NewGangQueue returns a queue over the given gangs; each must have a Leaf. Of each leaf, no more gangs are handed out
// than the running action's depth says; the others are diagnosed. O(gangs), with a depth times its logarithm.
func (s *Session) NewGangQueue(gangs []*GangState) *GangQueue {
	q := &GangQueue{s: s, root: &queueNode{}, nodes: make([]queueNode, len(s.queues.byID))}
	leafs := make([]*queueNode, 0, min(len(gangs), len(s.queues.order)))
	for _, g := range gangs {
		leaf := q.node(g.Leaf)
		if leaf.count++; leaf.count == 1 {
			leafs = append(leafs, leaf)
		}
	}
	room := make([]*GangState, len(gangs)) // one piece for all leaves, each of which has its part
	for _, leaf := range leafs {
		leaf.gangs, room = gangHeap{s: s, list: room[:0:leaf.count]}, room[leaf.count:]
	}
	for _, g := range gangs {
		leaf := &q.nodes[g.Leaf.ID]
		leaf.gangs.list = append(leaf.gangs.list, g)
	}
	if depth := s.engine.profile.Settings.QueueDepth[s.plan.Action]; depth > 0 {
		for _, leaf := range leafs {
			if list := leaf.gangs.list; len(list) > depth {
				slices.SortFunc(list, s.CompareGangs)
				for _, g := range list[depth:] {
					s.beyond(g, depth)
				}
				leaf.gangs.list = list[:depth]
			}
		}
	}
	q.init(q.root)
	return q
}

// beyond notes that an action does not get to a gang in this cycle.
func (s *Session) beyond(g *GangState, depth int) {
	v := Verdict{Code: No, Reason: ReasonQueueDepth, Object: g.Leaf.Name, Have: int64(depth)}
	if s.trace.entry(g).Diagnosis == nil {
		s.Diagnose(g, &Diagnosis{Verdict: v})
		return
	}
	s.Note(g, Attempt{Action: s.plan.Action, Verdict: v})
}

// node returns the queue's node, hanging it and its ancestors into the tree.
func (q *GangQueue) node(l *QueueLedger) *queueNode {
	if l == nil {
		return q.root
	}
	n := &q.nodes[l.ID]
	if n.ledger != nil {
		return n
	}
	n.ledger, n.parent = l, q.node(l.Parent)
	n.at = len(n.parent.kids)
	n.parent.kids = append(n.parent.kids, n)
	return n
}

func (q *GangQueue) init(n *queueNode) {
	for _, k := range n.kids {
		q.init(k)
	}
	heap.Init(&n.gangs)
	if len(n.kids) > 0 {
		n.winner = make([]int32, 2*len(n.kids))
	}
	for i := range n.kids {
		n.winner[len(n.kids)+i] = int32(i)
	}
	for k := len(n.kids) - 1; k >= 1; k-- {
		q.play(n, k)
	}
	n.look()
}

// look finds out anew whom a node stands for.
func (n *queueNode) look() {
	switch {
	case len(n.gangs.list) > 0:
		n.best = n.gangs.list[0]
	case len(n.kids) > 0:
		n.best = n.kids[n.winner[1]].best
	default:
		n.best = nil
	}
}

// play decides match k among the kids of a node.
func (q *GangQueue) play(n *queueNode, k int) {
	l, r := n.winner[2*k], n.winner[2*k+1]
	n.winner[k] = l
	if a, b := n.kids[l], n.kids[r]; b.best != nil && (a.best == nil || q.before(b, a)) {
		n.winner[k] = r
	}
}

// before says whether a queue is served before its sibling.
func (q *GangQueue) before(l, r *queueNode) bool {
	_, lNext := q.s.Next(l.best)
	_, rNext := q.s.Next(r.best)
	for _, o := range q.s.points.queueOrder {
		if c := o.CompareQueues(l.ledger.ID, r.ledger.ID, lNext, rNext); c != 0 {
			return c < 0
		}
	}
	return cmp.Or(cmp.Compare(l.ledger.Created, r.ledger.Created), cmp.Compare(l.ledger.Name, r.ledger.Name)) < 0
}

// Pop returns the next gang, nil when there is none.
func (q *GangQueue) Pop() *GangState {
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
func (q *GangQueue) Push(g *GangState) {
	q.settle()
	n := &q.nodes[g.Leaf.ID]
	heap.Push(&n.gangs, g)
	q.fix(n)
}

// settle puts the branch of the last gang in order, after whatever was placed.
func (q *GangQueue) settle() {
	if n := q.dirty; n != nil {
		q.dirty = nil
		q.fix(n)
	}
}

// Changed tells the queue that the shares of a leaf changed by other than the last gang it handed out.
func (q *GangQueue) Changed(leaf *QueueLedger) {
	q.settle()
	for l := leaf; l != nil; l = l.Parent {
		if n := &q.nodes[l.ID]; n.ledger != nil {
			q.fix(n)
			return
		}
	}
}

// fix lets a queue, and those above it, play again.
func (q *GangQueue) fix(n *queueNode) {
	for ; ; n = n.parent {
		n.look()
		up := n.parent
		if up == nil {
			return
		}
		for k := (len(up.kids) + n.at) / 2; k >= 1; k /= 2 {
			q.play(up, k)
		}
	}
}

type gangHeap struct {
	s    *Session
	list []*GangState
}

func (h *gangHeap) Len() int      { return len(h.list) }
func (h *gangHeap) Swap(i, j int) { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *gangHeap) Push(x any)    { h.list = append(h.list, x.(*GangState)) }
func (h *gangHeap) Pop() any {
	g := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	return g
}
func (h *gangHeap) Less(i, j int) bool { return h.s.CompareGangs(h.list[i], h.list[j]) < 0 }

// CompareGangs orders two gangs of one queue: plugins, then age, UID, key.
func (s *Session) CompareGangs(l, r *GangState) int {
	for _, o := range s.points.gangOrder {
		if c := o.CompareGangs(l, r); c != 0 {
			return c
		}
	}
	if c := cmp.Or(cmp.Compare(l.Created, r.Created), cmp.Compare(l.UID, r.UID)); c != 0 {
		return c
	}
	switch {
	case l.Key == r.Key:
		return 0
	case l.Key.Less(r.Key):
		return -1
	}
	return 1
}

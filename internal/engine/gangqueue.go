package engine

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// GangQueue hands out gangs in the order in which they are served: down the queue forest by queue order, each queue
// standing for the best gang below it, and within the leaf by gang order. What a placement changes is looked at anew
// before the next gang is taken, so the order is exact at every step.
type GangQueue struct {
	s     *Session
	root  *queueNode
	leafs map[cluster.QueueID]*queueNode
	dirty *queueNode // leaf whose shares may have changed since the last look
}

// queueNode is one queue that has gangs below it.
type queueNode struct {
	ledger *QueueLedger // nil for the root
	parent *queueNode
	pos    int // in parent.kids
	kids   kidHeap
	gangs  gangHeap
}

// NewGangQueue returns a queue over the given gangs; each must have a Leaf. Of each leaf, no more gangs are handed out
// than the running action's depth says; the others are diagnosed. O(gangs), with a depth times its logarithm.
func (s *Session) NewGangQueue(gangs []*GangState) *GangQueue {
	q := &GangQueue{s: s, root: &queueNode{}, leafs: map[cluster.QueueID]*queueNode{}}
	var leafs []*queueNode
	for _, g := range gangs {
		leaf := q.node(g.Leaf)
		if leaf.gangs.s == nil {
			leaf.gangs.s = s
			leafs = append(leafs, leaf)
		}
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
	if n := q.leafs[l.ID]; n != nil {
		return n
	}
	n := &queueNode{ledger: l, parent: q.node(l.Parent)}
	q.leafs[l.ID] = n
	n.pos = len(n.parent.kids.list)
	n.parent.kids.list = append(n.parent.kids.list, n)
	return n
}

func (q *GangQueue) init(n *queueNode) {
	n.kids.s = q.s
	for _, k := range n.kids.list {
		q.init(k)
	}
	heap.Init(&n.gangs)
	heap.Init(&n.kids)
}

// Pop returns the next gang, nil when there is none.
func (q *GangQueue) Pop() *GangState {
	q.settle()
	n := q.root
	for len(n.kids.list) > 0 {
		n = n.kids.list[0]
	}
	if len(n.gangs.list) == 0 {
		q.s.engine.trying(nil)
		return nil
	}
	g := heap.Pop(&n.gangs).(*GangState)
	q.dirty = n
	q.s.engine.trying(g)
	return g
}

// Push puts a gang back, to be taken again at its turn.
func (q *GangQueue) Push(g *GangState) {
	q.settle()
	n := q.node(g.Leaf)
	n.gangs.s, n.kids.s = q.s, q.s
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
		if n := q.leafs[l.ID]; n != nil {
			q.fix(n)
			return
		}
	}
}

func (q *GangQueue) fix(n *queueNode) {
	for ; n.parent != nil; n = n.parent {
		kids := &n.parent.kids
		kids.s = q.s
		if len(n.kids.list) == 0 && len(n.gangs.list) == 0 {
			heap.Remove(kids, n.pos)
			delete(q.leafs, n.ledger.ID)
			continue
		}
		if n.pos >= len(kids.list) || kids.list[n.pos] != n {
			heap.Push(kids, n)
			continue
		}
		heap.Fix(kids, n.pos)
	}
}

// best returns the gang a node stands for.
func (n *queueNode) best() *GangState {
	for len(n.kids.list) > 0 {
		n = n.kids.list[0]
	}
	return n.gangs.list[0]
}

type kidHeap struct {
	s    *Session
	list []*queueNode
}

func (h *kidHeap) Len() int { return len(h.list) }
func (h *kidHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].pos, h.list[j].pos = i, j
}

func (h *kidHeap) Push(x any) {
	n := x.(*queueNode)
	n.pos = len(h.list)
	h.list = append(h.list, n)
}

func (h *kidHeap) Pop() any {
	n := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	return n
}

func (h *kidHeap) Less(i, j int) bool {
	l, r := h.list[i], h.list[j]
	_, lNext := h.s.Next(l.best())
	_, rNext := h.s.Next(r.best())
	for _, o := range h.s.points.queueOrder {
		if c := o.CompareQueues(l.ledger.ID, r.ledger.ID, lNext, rNext); c != 0 {
			return c < 0
		}
	}
	return cmp.Or(cmp.Compare(l.ledger.Created, r.ledger.Created), cmp.Compare(l.ledger.Name, r.ledger.Name)) < 0
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

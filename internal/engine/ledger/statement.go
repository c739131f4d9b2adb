package ledger

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Op is one operation of a statement.
type Op struct {
	// Verb is Bind, Nominate, Evict, or one of the verbs below, which exist in statements only.
	Verb Verb
	Pod  *cluster.Pod
	Node cluster.NodeID
	// Groups are the shared devices there that it takes, or gives.
	Groups []string

	from int      // where the pod stood in its set's order
	hold int      // index of the hold that is opened
	prev decision // what the pod was decided to before; its verb is "" for nothing
}

// Verb is what an intent asks for.
type Verb string

// The verbs.
const (
	Bind     Verb = "bind"     // run the pod on the node
	Nominate Verb = "nominate" // keep the room that is being released on the node for the pod
	Evict    Verb = "evict"    // take the pod from the node; with To, its successor has room there
)

// The verbs of statements that no plan has.
const (
	Spare Verb = "spare" // an eviction of the same statement is taken back, and the pod stays where it is
	Move  Verb = "move"  // an evicted pod's successor gets room on another node
	open  Verb = "open"  // the room of a hold becomes free: for whom it is held, or for who has a better right
	shut  Verb = "shut"  // an opened hold is as before
)

// Gives says what the operation does to its node's room, for observers: +1 a pod comes, -1 a pod goes, 0 neither.
func (op Op) Gives() int {
	switch op.Verb {
	case Evict:
		return -1
	case open, shut:
		return 0
	}
	return 1
}

// Statement is a journal of operations on a ledger. Every operation takes effect at once and can be undone: RollbackTo
// undoes, last first, down to a mark; the ledger is then exactly what it was. One statement is open at a time, or
// several that are closed last in, first out.
type Statement struct {
	l   *Ledger
	ops []Op
}

// Mark is a point in a statement to go back to.
type Mark int

// Begin opens a statement.
func (l *Ledger) Begin() *Statement { return &Statement{l: l} }

// Mark returns the current point.
func (st *Statement) Mark() Mark { return Mark(len(st.ops)) }

// Place gives the pod room on the node now. The pod must be waiting, and fit.
func (st *Statement) Place(p *cluster.Pod, n cluster.NodeID) { st.do(Op{Verb: Bind, Pod: p, Node: n}) }

// Nominate promises the pod room on the node that is still being released.
func (st *Statement) Nominate(p *cluster.Pod, n cluster.NodeID) {
	st.do(Op{Verb: Nominate, Pod: p, Node: n})
}

// Evict takes an active pod of the snapshot from its node; the room counts as being released.
func (st *Statement) Evict(p *cluster.Pod) { st.do(Op{Verb: Evict, Pod: p, Node: p.Node}) }

// Spare takes back the eviction of a pod that has not been moved. Its room must still be there.
func (st *Statement) Spare(p *cluster.Pod) { st.do(Op{Verb: Spare, Pod: p, Node: p.Node}) }

// Move gives the successor of an evicted pod room on a node.
func (st *Statement) Move(p *cluster.Pod, n cluster.NodeID) { st.do(Op{Verb: Move, Pod: p, Node: n}) }

func (st *Statement) do(op Op) {
	l, p := st.l, op.Pod
	if op.Verb == open || op.Verb == shut {
		l.turn(&l.holds[op.hold], op.Verb == open)
		st.ops = append(st.ops, op)
		return
	}
	g := l.Gang(p.Gang)
	set := &g.sets[g.leaf(p)]
	op.prev = l.where[p.ID]
	switch {
	case op.Verb == Evict || op.Verb == Spare:
		op.Groups = p.Groups
	case op.Groups == nil:
		op.Groups = l.pick(p, op.Node, op.Verb == Bind)
	}
	l.move(op.Node, p.Class.Requests, p.Class.Share, op.Groups, op.idle(-1), op.later(-1))
	switch op.Verb {
	case Bind, Nominate:
		op.from = set.head
		for set.pods[op.from] != p.ID { // the first, but for gangs that had to be placed largest pod first
			op.from++
		}
		set.pods[set.head], set.pods[op.from] = set.pods[op.from], set.pods[set.head]
		set.head++
	case Evict:
		l.buildHeld(g)
		set.live--
		op.from = set.live
		for set.held[op.from] != p.ID { // the last, but for sets of which a chosen pod goes
			op.from--
		}
		set.held[set.live], set.held[op.from] = set.held[op.from], set.held[set.live]
	case Spare:
		op.from = set.live
		for set.held[op.from] != p.ID {
			op.from++
		}
		set.held[set.live], set.held[op.from] = set.held[op.from], set.held[set.live]
		set.live++
	}
	if op.Verb == Nominate || op.Verb == Move {
		set.nominated++
	}
	gives := int32(op.Gives())
	if op.Verb != Bind && op.Verb != Nominate {
		set.alive += gives
	}
	g.bump(g.leaf(p), gives)
	if g.Leaf != nil {
		l.charge(g.Leaf, l.ChargeOf(op), g.FixedCharge(p), gives > 0)
		if op.Verb == Bind {
			g.Leaf.hold(l.ChargeOf(op), g.FixedCharge(p), true)
		}
	}
	if op.Verb == Spare {
		delete(l.where, p.ID)
	} else {
		l.where[p.ID] = decision{op.Node, op.Verb}
	}
	l.hooks.Done(op)
	st.ops = append(st.ops, op)
}

func (st *Statement) undo(op Op) {
	l, p := st.l, op.Pod
	if op.Verb == open || op.Verb == shut {
		l.turn(&l.holds[op.hold], op.Verb == shut)
		return
	}
	l.hooks.Undone(op)
	g := l.Gang(p.Gang)
	set := &g.sets[g.leaf(p)]
	if op.prev.verb == "" {
		delete(l.where, p.ID)
	} else {
		l.where[p.ID] = op.prev
	}
	gives := int32(op.Gives())
	if op.Verb != Bind && op.Verb != Nominate {
		set.alive -= gives
	}
	if g.Leaf != nil {
		l.charge(g.Leaf, l.ChargeOf(op), g.FixedCharge(p), gives < 0)
		if op.Verb == Bind {
			g.Leaf.hold(l.ChargeOf(op), g.FixedCharge(p), false)
		}
	}
	g.bump(g.leaf(p), -gives)
	if op.Verb == Nominate || op.Verb == Move {
		set.nominated--
	}
	switch op.Verb {
	case Bind, Nominate:
		set.head--
		set.pods[set.head], set.pods[op.from] = set.pods[op.from], set.pods[set.head]
	case Evict:
		set.held[set.live], set.held[op.from] = set.held[op.from], set.held[set.live]
		set.live++
	case Spare:
		set.live--
		set.held[set.live], set.held[op.from] = set.held[op.from], set.held[set.live]
	}
	l.move(op.Node, p.Class.Requests, p.Class.Share, op.Groups, op.idle(1), op.later(1))
}

// idle and later say which way an operation moves its node's ledgers, or its undoing does: a placement uses what is idle, a
// nomination only what will be.
func (op *Op) idle(sign int64) int64 {
	if op.Verb == Bind {
		return sign
	}
	return 0
}

func (op *Op) later(sign int64) int64 {
	if op.Verb == Evict {
		return -sign
	}
	return sign
}

// ChargeOf is what the operation means to the pod's queue.
func (l *Ledger) ChargeOf(op Op) cluster.Resources {
	return op.Pod.Class.ChargeOn(l.snap.Node(op.Node))
}

// addIdle and addLater move a node's sums.
func (l *Ledger) addIdle(n cluster.NodeID, r cluster.Resources, sign int64) {
	idle := l.Idle(n)
	for d, x := range r {
		idle[d] += sign * x
	}
}

func (l *Ledger) addLater(n cluster.NodeID, r cluster.Resources, sign int64) {
	later := l.Later(n)
	for d, x := range r {
		later[d] += sign * x
	}
	l.touched = append(l.touched, n)
}

// RollbackTo undoes everything since the mark, last first. It cannot fail, and leaves the session as it was at the mark.
func (st *Statement) RollbackTo(m Mark) {
	for len(st.ops) > int(m) {
		op := st.ops[len(st.ops)-1]
		st.ops = st.ops[:len(st.ops)-1]
		st.undo(op)
	}
}

// Discard undoes the whole statement.
func (st *Statement) Discard() { st.RollbackTo(0) }

// Cut undoes what happened since the mark and returns it for Redo.
func (st *Statement) Cut(m Mark) []Op {
	ops := slices.Clone(st.ops[m:])
	st.RollbackTo(m)
	return ops
}

// Redo does again what Cut undid; the session must be as it was then.
func (st *Statement) Redo(ops []Op) {
	for _, op := range ops {
		st.do(op)
	}
}

// Suspend undoes the statement, calls f, which must leave the session as it finds it, and does everything again.
func (st *Statement) Suspend(f func()) {
	ops := st.Cut(0)
	f()
	st.Redo(ops)
}

// NominateAll turns every placement since the mark into a nomination on the same node: a gang that cannot have its
// minimum at once must not hold idle room while it waits for the rest.
func (st *Statement) NominateAll(since Mark) {
	ops := append([]Op(nil), st.ops[since:]...)
	st.RollbackTo(since)
	for _, op := range ops {
		if op.Verb == open || op.Verb == shut {
			st.do(op)
		} else {
			st.do(Op{Verb: Nominate, Pod: op.Pod, Node: op.Node, Groups: op.Groups})
		}
	}
}

// Fate is what this run did with a pod: Bind, Nominate, Evict, Move, or "" for nothing.
func (l *Ledger) Fate(p *cluster.Pod) Verb { return l.where[p.ID].verb }

// EvictUnit evicts all pods of a unit, or opens its promises.
func (st *Statement) EvictUnit(u *VictimUnit) {
	for _, k := range u.holds {
		st.do(Op{Verb: open, Node: st.l.holds[k].node, hold: k})
	}
	for _, p := range u.Pods {
		st.Evict(p)
	}
}

// Keep gives a unit of promises its room again, if it is still there, and says whether it was.
func (st *Statement) Keep(u *VictimUnit) bool {
	mark := st.Mark()
	for _, k := range u.holds {
		h := &st.l.holds[k]
		if !st.l.returns(h.node, h.Requests, h.Share, h.groups) {
			st.RollbackTo(mark)
			return false
		}
		st.do(Op{Verb: shut, Node: h.node, hold: k})
	}
	return true
}

// Return takes the eviction of a unit back while the statement has placed nobody: all is as if it had not been taken.
func (st *Statement) Return(u *VictimUnit) {
	for _, k := range u.holds {
		st.do(Op{Verb: shut, Node: st.l.holds[k].node, hold: k})
	}
	for _, p := range u.Pods {
		st.Spare(p)
	}
}

// Waits says whether something since the mark has to wait for a release.
func (st *Statement) Waits(since Mark) bool {
	return slices.ContainsFunc(st.ops[since:], func(op Op) bool { return op.Verb == Nominate })
}

// Ops returns what the statement does, in order; it is the statement's own. Operations on promises give nothing, see [Op.Gives].
func (st *Statement) Ops() []Op { return st.ops }

// Settle closes a statement that stands: it is undone no more. Promises that it opened and that were made to others than the gang are void.
func (st *Statement) Settle(to cluster.Key) {
	l := st.l
	for _, op := range st.ops {
		switch op.Verb {
		case open:
			if h := &l.holds[op.hold]; h.open && h.Gang != to { // taken by right
				l.void = append(l.void, h.ID())
				l.freed++
			}
		case Evict:
			if v := l.where[op.Pod.ID].verb; v == Evict || v == Move {
				l.freed++
			}
		}
	}
	l.decisions++
	st.ops = nil
}

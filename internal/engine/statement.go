package engine

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

// Statement is a journal of operations on a session. Every operation takes effect at once and can be undone: RollbackTo
// undoes, last first, down to a mark; the session is then exactly what it was. One statement is open at a time, or
// several that are closed last in, first out.
type Statement struct {
	s   *Session
	ops []Op
}

// Mark is a point in a statement to go back to.
type Mark int

// Begin opens a statement.
func (s *Session) Begin() *Statement { return &Statement{s: s} }

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
	s, p := st.s, op.Pod
	if op.Verb == open || op.Verb == shut {
		s.turn(&s.holds[op.hold], op.Verb == open)
		st.ops = append(st.ops, op)
		return
	}
	g := s.Gang(p.Gang)
	set := &g.sets[g.leaf(p)]
	op.prev = s.where[p.ID]
	switch {
	case op.Verb == Evict || op.Verb == Spare:
		op.Groups = p.Groups
	case op.Groups == nil:
		op.Groups = s.pick(p, op.Node, op.Verb == Bind)
	}
	s.move(op.Node, p.Class.Requests, p.Class.Share, op.Groups, op.idle(-1), op.later(-1))
	switch op.Verb {
	case Bind, Nominate:
		op.from = set.head
		for set.pods[op.from] != p.ID { // the first, but for gangs that had to be placed largest pod first
			op.from++
		}
		set.pods[set.head], set.pods[op.from] = set.pods[op.from], set.pods[set.head]
		set.head++
	case Evict:
		s.buildHeld(g)
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
		s.charge(g.Leaf, s.chargeOf(op), g.FixedCharge(p), gives > 0)
		if op.Verb == Bind {
			g.Leaf.hold(s.chargeOf(op), g.FixedCharge(p), true)
		}
	}
	if op.Verb == Spare {
		delete(s.where, p.ID)
	} else {
		s.where[p.ID] = decision{op.Node, op.Verb}
	}
	for _, o := range s.points.observers {
		o.Done(op)
	}
	st.ops = append(st.ops, op)
}

func (st *Statement) undo(op Op) {
	s, p := st.s, op.Pod
	if op.Verb == open || op.Verb == shut {
		s.turn(&s.holds[op.hold], op.Verb == shut)
		return
	}
	for i := len(s.points.observers) - 1; i >= 0; i-- {
		s.points.observers[i].Undone(op)
	}
	g := s.Gang(p.Gang)
	set := &g.sets[g.leaf(p)]
	if op.prev.verb == "" {
		delete(s.where, p.ID)
	} else {
		s.where[p.ID] = op.prev
	}
	gives := int32(op.Gives())
	if op.Verb != Bind && op.Verb != Nominate {
		set.alive -= gives
	}
	if g.Leaf != nil {
		s.charge(g.Leaf, s.chargeOf(op), g.FixedCharge(p), gives < 0)
		if op.Verb == Bind {
			g.Leaf.hold(s.chargeOf(op), g.FixedCharge(p), false)
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
	s.move(op.Node, p.Class.Requests, p.Class.Share, op.Groups, op.idle(1), op.later(1))
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

// chargeOf is what the operation means to the pod's queue.
func (s *Session) chargeOf(op Op) cluster.Resources {
	return op.Pod.Class.ChargeOn(s.Snap.Node(op.Node))
}

// addIdle and addLater move a node's sums.
func (s *Session) addIdle(n cluster.NodeID, r cluster.Resources, sign int64) {
	idle := s.Idle(n)
	for d, x := range r {
		idle[d] += sign * x
	}
}

func (s *Session) addLater(n cluster.NodeID, r cluster.Resources, sign int64) {
	later := s.Later(n)
	for d, x := range r {
		later[d] += sign * x
	}
	s.touched = append(s.touched, n)
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

// Broken notes that the pod's eviction breaks a promise made to its owner, named by broken; "" for none.
func (st *Statement) Broken(p *cluster.Pod, broken string) {
	if broken != "" {
		st.s.broken[p.ID] = broken
	}
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

// Accept turns the statement into intents of the running action's plan, in one bundle with whatever the plan holds for
// the same gang already.
func (st *Statement) Accept() {
	s := st.s
	i := 0
	for i < len(st.ops) && st.ops[i].Verb == open {
		i++
	}
	if i == len(st.ops) {
		return
	}
	g := s.Gang(st.ops[i].Pod.Gang)
	at, ok := s.bundles[g.ID]
	if !ok {
		at = s.newBundle(g)
		s.bundles[g.ID] = at
	}
	st.settle(g, at)
}

// AcceptFor turns the statement into a bundle of its own: evictions, and what they make room for. g is the beneficiary;
// for a repair, the gang that is released. The evictions that were taken back leave no trace.
func (st *Statement) AcceptFor(g *GangState, cause *Cause) {
	at := st.s.newBundle(g)
	st.s.plan.Bundles[at].Cause = cause
	st.s.plan.Bundles[at].Starts = false
	st.settle(g, at)
}

func (s *Session) newBundle(g *GangState) int {
	s.plan.Bundles = append(s.plan.Bundles, Bundle{Gang: g.Key, UID: g.UID, Starts: !g.hadRoom})
	return len(s.plan.Bundles) - 1
}

// settle appends what is left of the statement's operations to a bundle.
func (st *Statement) settle(g *GangState, at int) {
	s := st.s
	b := &s.plan.Bundles[at]
	if b.Intents == nil {
		b.Intents = make([]Intent, 0, len(st.ops))
	}
	evicted := map[cluster.PodID]int{} // index of the intent
	for _, op := range st.ops {
		if op.Verb == open || op.Verb == shut {
			if h := &s.holds[op.hold]; op.Verb == open && h.open && h.Gang != g.Key { // taken by right
				s.void = append(s.void, h.ID())
				clear(s.failed)
			}
			continue
		}
		_, again := evicted[op.Pod.ID]
		if v := s.where[op.Pod.ID].verb; op.Verb == Evict && !again && (v == Evict || v == Move) {
			evicted[op.Pod.ID] = len(b.Intents)
			b.Intents = append(b.Intents, s.intent(op, Intent{
				Gang: s.Gang(op.Pod.Gang).Key, Set: op.Pod.SetName(), Core: !s.Gang(op.Pod.Gang).Satisfied(), Budget: s.broken[op.Pod.ID],
			}))
			clear(s.failed)
		}
	}
	for _, op := range st.ops {
		switch op.Verb {
		case Bind, Nominate: // nobody else's: in a statement that evicts, these are the beneficiary's
			in := Intent{}
			if k := s.holdFor(op.Pod); k >= 0 {
				in.Kept = s.holds[k].ID()
			}
			b.Intents = append(b.Intents, s.intent(op, in))
			s.detail(op, &b.Intents[len(b.Intents)-1])
		case Move:
			in := &b.Intents[evicted[op.Pod.ID]]
			in.To, in.ToGroups = s.Snap.Node(op.Node).Name, op.Groups
			s.detail(op, in)
		}
	}
	s.trace.settled(g, b, st.ops)
	s.accepted++
	st.ops = nil
}

// detail lets the plugins add what they chose.
func (s *Session) detail(op Op, in *Intent) {
	for _, d := range s.points.details {
		d.Detail(op, in)
	}
}

func (s *Session) intent(op Op, in Intent) Intent {
	in.Verb, in.Namespace, in.Pod, in.UID = op.Verb, op.Pod.Namespace, op.Pod.Name, op.Pod.UID
	in.Node, in.Groups, in.Share = s.Snap.Node(op.Node).Name, op.Groups, op.Pod.Class.Share
	in.Requests, in.Charge = op.Pod.Class.Requests, s.chargeOf(op)
	in.GPU = in.Charge.At(cluster.GPU)
	if op.Verb == Bind {
		g := s.Snap.Gang(op.Pod.Gang)
		in.Charged = cluster.Charged{Queue: g.Queue, Gang: g.Key, Set: op.Pod.SetName(), Fixed: !g.Preemptible, Share: op.Pod.Class.Share}
	}
	return in
}

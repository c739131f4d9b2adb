package engine

import (
	"github.com/muster-scheduler/muster/internal/cluster"
)

// Op is one operation of a statement.
type Op struct {
	Verb Verb
	Pod  *cluster.Pod
	Node cluster.NodeID

	from int // where the pod stood in its set's order
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

func (st *Statement) do(op Op) {
	s, p := st.s, op.Pod
	g := s.Gang(p.Gang)
	s.take(op.Node, p.Class.Requests, op.Verb, -1)
	set := &g.sets[p.Set]
	op.from = set.head
	for set.pods[op.from] != p.ID { // the first, but for gangs that had to be placed largest pod first
		op.from++
	}
	set.pods[set.head], set.pods[op.from] = set.pods[op.from], set.pods[set.head]
	set.head++
	if op.Verb == Nominate {
		set.nominated++
	}
	g.bump(p.Set, 1)
	if g.Leaf != nil {
		g.Leaf.charge(p.Class.Requests, !g.Preemptible, true)
	}
	s.where[p.ID] = decision{op.Node, op.Verb}
	for _, o := range s.points.observers {
		o.Done(op)
	}
	st.ops = append(st.ops, op)
}

func (st *Statement) undo(op Op) {
	s, p := st.s, op.Pod
	for i := len(s.points.observers) - 1; i >= 0; i-- {
		s.points.observers[i].Undone(op)
	}
	g := s.Gang(p.Gang)
	delete(s.where, p.ID)
	if g.Leaf != nil {
		g.Leaf.charge(p.Class.Requests, !g.Preemptible, false)
	}
	g.bump(p.Set, -1)
	set := &g.sets[p.Set]
	set.head--
	set.pods[set.head], set.pods[op.from] = set.pods[op.from], set.pods[set.head]
	if op.Verb == Nominate {
		set.nominated--
	}
	s.take(op.Node, p.Class.Requests, op.Verb, 1)
}

// take moves a node's ledgers: a placement uses what is idle, a nomination only what will be.
func (s *Session) take(n cluster.NodeID, r cluster.Resources, verb Verb, sign int64) {
	idle, later := s.Idle(n), s.Later(n)
	for d, x := range r {
		later[d] += sign * x
		if verb == Bind {
			idle[d] += sign * x
		}
	}
	s.touched = append(s.touched, n)
}

// RollbackTo undoes everything since the mark. It cannot fail. Room comes back, so gangs that failed may be tried again.
func (st *Statement) RollbackTo(m Mark) {
	if len(st.ops) > int(m) {
		clear(st.s.failed)
	}
	st.rollback(m)
}

// rollback is RollbackTo for an attempt that leaves the session as the attempt found it: what could not be placed then
// cannot be placed now.
func (st *Statement) rollback(m Mark) {
	for len(st.ops) > int(m) {
		op := st.ops[len(st.ops)-1]
		st.ops = st.ops[:len(st.ops)-1]
		st.undo(op)
	}
}

// Discard undoes the whole statement.
func (st *Statement) Discard() { st.RollbackTo(0) }

// NominateAll turns every placement since the mark into a nomination on the same node: a gang that cannot have its
// minimum at once must not hold idle room while it waits for the rest.
func (st *Statement) NominateAll(since Mark) {
	ops := append([]Op(nil), st.ops[since:]...)
	st.rollback(since)
	for _, op := range ops {
		st.Nominate(op.Pod, op.Node)
	}
}

// Accept turns the statement into intents of the running action's plan, in one bundle with whatever the plan holds for
// the same gang already.
func (st *Statement) Accept() {
	s := st.s
	if len(st.ops) == 0 {
		return
	}
	gid := st.ops[0].Pod.Gang
	g := s.Gang(gid)
	i, ok := s.bundles[gid]
	if !ok {
		i = len(s.plan.Bundles)
		s.bundles[gid] = i
		s.plan.Bundles = append(s.plan.Bundles, Bundle{Gang: g.Key, UID: g.UID, Starts: !g.hadRoom})
	}
	b := &s.plan.Bundles[i]
	if b.Intents == nil {
		b.Intents = make([]Intent, 0, len(st.ops))
	}
	for _, op := range st.ops {
		b.Intents = append(b.Intents, Intent{
			Verb: op.Verb, Namespace: op.Pod.Namespace, Pod: op.Pod.Name, UID: op.Pod.UID,
			Node: s.Snap.Node(op.Node).Name, GPU: op.Pod.Class.Requests.At(cluster.GPU),
		})
	}
	s.trace.placed(g, st.ops)
	st.ops = nil
}

package solver

import "github.com/muster-scheduler/muster/internal/engine"

// What a question costs must not grow with the leaves, of which nearly none has to give. So for those who reclaim, a queue that
// is off the taker's way is asked about once, for all leaves below it (engine.SiblingFilter); and who gives first below it is
// found for all takers together, wherever the rules about gangs have nothing against anybody's taking from those who would give
// first (engine.AnyTaker): the ground. A walk has seats of its own on the taker's way, where the rules may tell takers apart, and
// where something has changed since it began; everywhere else it sits on the ground.

// grounded returns who would give next for anybody, below the queues that may be asked, or were before: only what was charged
// since plays again. It is kept as the session stands between searches, so no walk begins with something taken.
func (gs *givers) grounded() *stand {
	if gs.ground == nil {
		gs.ground = &stand{gs: gs, seats: map[*branch]*seat{}, heard: len(gs.s.Charged()), next: gs.anybodys}
	}
	gs.ground.catchUp()
	return gs.ground
}

// anybodys finds out who gives next of a leaf, and whether that is so for everybody.
func (gs *givers) anybodys(s *seat) {
	l := s.b.leaf
	gs.ready(l)
	s.odd = 0
	for _, v := range l.gangs[l.start:] {
		if gs.s.Live(v) == 0 {
			continue
		}
		if !gs.s.AnyTaker(v) {
			s.odd = 1
		}
		u, _ := gs.s.NextUnit(v)
		s.leaf, s.gang, s.unit = l, v, u.Charge
		return
	}
}

// Whether a queue off the taker's way may be asked, as it was when the walk began or since.
const (
	unknown int8 = iota
	asked
	shut
)

// survey gives the queues on the taker's way their places, and asks about those beside it. It is told of the first leaf below
// each, which stands for all.
func (w *walk) survey(st *stand, up *seat, bs []*branch) {
	up.sized(len(bs))
	for i, b := range bs {
		if nearness(w.g.Leaf, b.queue) > b.queue.Depth { // on the way
			s := st.place(up, b, i)
			if b.queue == w.g.Leaf {
				st.build(s, b.kids)
			} else {
				w.survey(st, s, b.kids)
			}
			st.look(s)
			continue
		}
		w.gs.s.Step()
		v := w.mayAsk(b.first().queue)
		if v.Yes() {
			w.status[b] = asked
			st.settle(up, b, i)
			continue
		}
		w.status[b] = shut
		st.place(up, b, i).shut = true
		if v.Reason != engine.ReasonOtherQueue {
			w.shut(closure{below: b, why: v, before: true})
		}
	}
	st.playAll(up)
}

// above says whether the leaves below a queue may be asked.
func (w *walk) above(b *branch) int8 {
	for ; w.status != nil && b != nil; b = b.up {
		if w.status[b] != unknown {
			return w.status[b]
		}
	}
	return unknown
}

// reopen lets the leaves below a queue be asked that were not.
func (w *walk) reopen(b *branch) {
	w.status[b] = asked
	b.each(func(l *leaf) { delete(w.at, l) })
	s := w.stand.seats[b]
	s.shut = false
	w.stand.build(s, b.kids)
	w.stand.note(b)
}

// rest looks at the leaves that may be asked, and were not looked at: of a search in vain, everybody is told of.
func (w *walk) rest() {
	if w.status == nil {
		return
	}
	for _, b := range w.gs.all {
		if b.leaf != nil && w.above(b) == asked {
			w.cursor(b.leaf)
		}
	}
}

// first is the first leaf below.
func (b *branch) first() *leaf {
	for b.leaf == nil {
		b = b.kids[0]
	}
	return b.leaf
}

// each calls f with all leaves below.
func (b *branch) each(f func(*leaf)) {
	if b.leaf != nil {
		f(b.leaf)
	}
	for _, k := range b.kids {
		k.each(f)
	}
}

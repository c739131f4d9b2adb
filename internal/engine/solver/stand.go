package solver

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// stand is who gives next, for one walk: a tournament among the queues below each queue, in the order of givers, each of
// which stands for who gives first below it. A unit that is taken moves the shares of one leaf and of the queues above it,
// and only those play again: O(depth × log queues), however many queues there are.
//
// It follows the shares by the session's list of charges, so it does not matter who moves them.
type stand struct {
	w     *walk
	seats []seat // by branch.index; of a leaf alone its own
	alone *branch
	top   seat
	heard int // how much of what was charged is included
	moved []*branch
}

// seat is a queue's place. Of a leaf, gang is its next giver; of a queue above, that of the first below.
type seat struct {
	b      *branch // nil for the top
	leaf   *leaf
	gang   *engine.GangState // nil for nobody
	unit   cluster.Resources // what gang would give
	kids   []*seat
	at     int     // in kids of the seat above
	winner []int32 // per match and kid: which kid gives first; match 1 is the last one played
}

// pick finds the leaf that gives next, and its giver; nil when nobody has anything left to give.
func (w *walk) pick() (*leaf, *engine.GangState) {
	if w.stand == nil {
		w.stand = w.seated()
	}
	w.stand.catchUp()
	w.stand.look(&w.stand.top)
	return w.stand.top.leaf, w.stand.top.gang
}

// seated gives everybody a place: O(queues that hold something).
func (w *walk) seated() *stand {
	st := &stand{w: w, heard: len(w.gs.s.Charged())}
	if w.right != engine.Preempt {
		st.seats = make([]seat, len(w.gs.all))
		st.build(&st.top, w.gs.top)
	} else if st.alone = w.gs.nodes[w.g.Leaf.ID]; st.alone != nil { // nobody else's queue gives
		st.seats = make([]seat, 1)
		st.build(&st.top, []*branch{st.alone})
	}
	return st
}

// seat is a queue's place; nil where it has none.
func (st *stand) seat(b *branch) *seat {
	switch {
	case b == nil:
		return nil
	case st.w.right != engine.Preempt:
		return &st.seats[b.index]
	case b == st.alone:
		return &st.seats[0]
	}
	return nil
}

func (st *stand) build(up *seat, bs []*branch) {
	n := len(bs)
	up.kids, up.winner = make([]*seat, n), make([]int32, 2*n)
	for i, b := range bs {
		s := st.seat(b)
		s.b, s.at = b, i
		st.build(s, b.kids)
		st.look(s)
		up.kids[i], up.winner[n+i] = s, int32(i)
	}
	for k := n - 1; k >= 1; k-- {
		st.play(up, k)
	}
}

// look finds out anew whom a seat stands for.
func (st *stand) look(s *seat) {
	s.leaf, s.gang, s.unit = nil, nil, nil
	switch {
	case s.b != nil && s.b.leaf != nil:
		if s.gang = st.w.top(s.b.leaf); s.gang != nil {
			u, _ := st.w.unit(s.gang)
			s.leaf, s.unit = s.b.leaf, u.Charge
		}
	case len(s.kids) > 0:
		first := s.kids[s.winner[1]]
		s.leaf, s.gang, s.unit = first.leaf, first.gang, first.unit
	}
}

// play decides match k among those below a seat.
func (st *stand) play(s *seat, k int) {
	l, r := s.winner[2*k], s.winner[2*k+1]
	s.winner[k] = l
	if a, b := s.kids[l], s.kids[r]; b.gang != nil && (a.gang == nil || st.w.gs.s.CompareGivers(b.b.queue, a.b.queue, b.unit, a.unit) < 0) {
		s.winner[k] = r
	}
}

// stale says that a leaf may have another giver.
func (st *stand) stale(l *leaf) {
	if st != nil {
		st.note(l.branch)
	}
}

func (st *stand) note(b *branch) {
	if n := len(st.moved); n == 0 || st.moved[n-1] != b {
		st.moved = append(st.moved, b)
	}
}

// catchUp lets all queues whose shares or givers have changed play again.
func (st *stand) catchUp() {
	charged := st.w.gs.s.Charged()
	for ; st.heard < len(charged); st.heard++ {
		q := charged[st.heard]
		for q != nil && st.w.gs.nodes[q.ID] == nil { // who takes need not hold anything
			q = q.Parent
		}
		if q != nil {
			st.note(st.w.gs.nodes[q.ID])
		}
	}
	for _, b := range st.moved { // each in turn: whatever is still stale then lies on the way of one that follows
		for s := st.seat(b); s != nil; s = st.seat(s.b.up) {
			up := st.seat(s.b.up)
			if up == nil {
				up = &st.top
			}
			st.look(s)
			for k := (len(up.kids) + s.at) / 2; k >= 1; k /= 2 {
				st.play(up, k)
			}
		}
	}
	st.moved = st.moved[:0]
}

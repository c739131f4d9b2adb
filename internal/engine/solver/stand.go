package solver

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// stand is who gives next, for one walk or for anybody: a tournament among the queues below each queue, in the victim order,
// each of which stands for who gives first below it. A unit that is taken moves the shares of one leaf and of the queues above it,
// and only those play again: O(depth × log queues), however many queues there are.
//
// It follows the shares by the session's list of charges, so it does not matter who moves them.
type stand struct {
	queues *victimQueues
	next   func(*seat) // finds out whom a leaf's seat stands for
	base   *stand      // whose seats are used where there are no own ones; nil for none
	seats  map[*branch]*seat
	top    seat
	alone  bool // only one queue gives
	heard  int  // how much of what was charged is included
	moved  []*branch
}

// seat is a queue's place. Of a leaf, gang is its next victim; of a queue above, that of the first below.
type seat struct {
	b      *branch // nil for the top
	odd    int     // on the ground, leaves below it whose next victim may depend on who takes
	leaf   *leaf
	gang   *ledger.GangState // nil for nobody
	unit   cluster.Resources // what gang would give
	kids   []*seat
	at     int     // in kids of the seat above
	winner []int32 // per match and kid: which kid gives first; match 1 is the last one played
}

// pick finds the leaf that gives next, and its victim; nil when nobody has anything left to give.
func (w *walk) pick() (*leaf, *ledger.GangState) {
	if w.stand == nil {
		w.seated()
	}
	w.stand.catchUp()
	w.stand.look(&w.stand.top)
	return w.stand.top.leaf, w.stand.top.gang
}

// seated gives everybody a place: O(queues that hold something), where those beside the beneficiary's way can be asked for all leaves
// below them O(queues beside it).
func (w *walk) seated() {
	st := &stand{queues: w.queues, heard: len(w.queues.s.Ledger.Charged()), seats: map[*branch]*seat{}, next: w.victim}
	w.stand = st
	switch {
	case w.cause == policy.Preempt:
		if alone := w.queues.nodes[w.g.Leaf.ID]; alone != nil { // nobody else's queue gives
			st.alone = true
			st.build(&st.top, []*branch{alone})
		}
	case w.cause == policy.Reclaim && w.queues.whole && w.on == nil && len(w.asked) == 0 && w.queues.s.Rules.BySiblings(w.g):
		st.base = w.queues.grounded()
		w.canvass()
		w.survey(st)
	default:
		st.build(&st.top, w.queues.top)
	}
}

// victim finds out whom a leaf's seat stands for in a walk.
func (w *walk) victim(s *seat) {
	if s.gang = w.top(s.b.leaf); s.gang != nil {
		u, _ := w.unit(s.gang)
		s.leaf, s.unit = s.b.leaf, u.Charge
	}
}

func (s *seat) sized(n int) { s.kids, s.winner = make([]*seat, n), make([]int32, 2*n) }

// place makes a seat of its own for a queue.
func (st *stand) place(up *seat, b *branch, i int) *seat {
	s := &seat{b: b, at: i}
	st.seats[b] = s
	up.kids[i], up.winner[len(up.kids)+i] = s, int32(i)
	return s
}

// build seats all below.
func (st *stand) build(up *seat, bs []*branch) {
	up.sized(len(bs))
	for i, b := range bs {
		s := st.place(up, b, i)
		st.build(s, b.kids)
		st.look(s)
	}
	st.playAll(up)
}

// settle lets a queue sit on the ground, if that is the same for everybody, and otherwise those below it that may.
func (st *stand) settle(up *seat, b *branch, i int) {
	if ground := st.base.on(b); ground.odd == 0 {
		up.kids[i], up.winner[len(up.kids)+i] = ground, int32(i)
		return
	}
	s := st.place(up, b, i)
	s.sized(len(b.kids))
	for k, below := range b.kids {
		st.settle(s, below, k)
	}
	st.playAll(s)
	st.look(s)
}

// on returns a queue's place on the ground, where it has one from now on.
func (st *stand) on(b *branch) *seat {
	s := st.seats[b]
	if s == nil {
		s = &seat{b: b, at: b.at}
		st.seats[b] = s
		s.sized(len(b.kids))
		odd := 0
		for i, k := range b.kids {
			s.kids[i], s.winner[len(s.kids)+i] = st.on(k), int32(i)
			odd += s.kids[i].odd
		}
		s.odd = odd
		st.playAll(s)
		st.look(s)
	}
	return s
}

// join gives siblings places of their own beside those that have one.
func (st *stand) join(up *seat, bs []*branch) {
	kids := slices.Clone(up.kids)
	for _, b := range bs {
		st.seats[b] = &seat{b: b}
		kids = append(kids, st.seats[b])
	}
	slices.SortFunc(kids, func(a, b *seat) int { return bySiblings(a.b, b.b) })
	up.sized(len(kids))
	for i, k := range kids {
		if up.kids[i], up.winner[len(kids)+i] = k, int32(i); st.seats[k.b] == k {
			k.at = i
		}
	}
	st.playAll(up)
}

// own returns a queue's seat, one of its own if it sat on the ground; nil where nobody is asked.
func (st *stand) own(b *branch) *seat {
	if s := st.seats[b]; s != nil || st.base == nil {
		return s
	}
	up := &st.top
	if b.up != nil {
		up = st.own(b.up)
	}
	if up == nil {
		return nil
	}
	at, there := slices.BinarySearchFunc(up.kids, b, func(k *seat, b *branch) int { return bySiblings(k.b, b) })
	if !there {
		return nil
	}
	ground := st.base.seats[b]
	s := &seat{b: b, at: at, kids: slices.Clone(ground.kids), winner: slices.Clone(ground.winner)}
	s.leaf, s.gang, s.unit = ground.leaf, ground.gang, ground.unit
	st.seats[b], up.kids[s.at] = s, s
	return s
}

// look finds out anew whom a seat stands for.
func (st *stand) look(s *seat) {
	s.leaf, s.gang, s.unit = nil, nil, nil
	switch {
	case s.b != nil && s.b.leaf != nil:
		st.next(s)
	case len(s.kids) > 0:
		first := s.kids[s.winner[1]]
		s.leaf, s.gang, s.unit = first.leaf, first.gang, first.unit
	}
}

func (st *stand) playAll(s *seat) {
	for k := len(s.kids) - 1; k >= 1; k-- {
		st.play(s, k)
	}
}

// play decides match k among those below a seat.
func (st *stand) play(s *seat, k int) {
	l, r := s.winner[2*k], s.winner[2*k+1]
	s.winner[k] = l
	if a, b := s.kids[l], s.kids[r]; b.gang != nil && (a.gang == nil || st.queues.s.Rules.CompareVictimQueues(b.b.queue, a.b.queue, b.unit, a.unit) < 0) {
		s.winner[k] = r
	}
}

// stale says that a leaf may have another victim.
func (st *stand) stale(l *leaf) {
	if st != nil {
		st.note(l.branch)
	}
}

// note notes a queue once until it plays again, whatever happens to it: a search that is played back charges the same few queues over and
// over. If two stands note in turn, it may be there twice, which does no harm.
func (st *stand) note(b *branch) {
	if b.noted != st {
		st.moved, b.noted = append(st.moved, b), st
	}
}

// catchUp lets all queues whose shares or victims have changed play again.
func (st *stand) catchUp() {
	charged := st.queues.s.Ledger.Charged()
	for ; st.heard < len(charged); st.heard++ {
		q := charged[st.heard]
		for q != nil && st.queues.nodes[q.ID] == nil { // who takes need not hold anything
			q = q.Parent
		}
		if q != nil {
			st.note(st.queues.nodes[q.ID])
		}
	}
	for _, b := range st.moved { // each in turn: whatever is still stale then lies on the way of one that follows
		if b.noted == st {
			b.noted = nil
		}
		odd := 0
		for s := st.own(b); s != nil; s = st.seats[s.b.up] {
			up := st.seats[s.b.up]
			if s.b.up == nil || st.alone {
				up = &st.top
			}
			odd -= s.odd
			st.look(s)
			odd += s.odd
			if up == nil || len(up.kids) == 0 { // the ground begins here
				break
			}
			up.odd += odd
			for k := (len(up.kids) + s.at) / 2; k >= 1; k /= 2 {
				st.play(up, k)
			}
		}
	}
	st.moved = st.moved[:0]
}

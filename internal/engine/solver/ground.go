package solver

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// What a question costs must not grow with the leaves, of which nearly none has to give. So for those who reclaim, a queue that
// is off the beneficiary's way is asked about once, for all leaves below it (policy.SiblingFilter); and who gives first below it is
// found for all beneficiaries together, wherever the rules about gangs have nothing against anybody's taking from those who would give
// first (policy.AnyBeneficiary): the ground. A walk has seats of its own on the beneficiary's way, where the rules may tell beneficiaries apart, and
// where something has changed since it began; everywhere else it sits on the ground.

// grounded returns who would give next for anybody, below the queues that may be asked, or were before: only what was charged
// since plays again. It is kept as the session stands between searches, so no walk begins with something taken.
func (vq *victimQueues) grounded() *stand {
	if vq.ground == nil {
		vq.ground = &stand{queues: vq, seats: map[*branch]*seat{}, heard: len(vq.s.Ledger.Charged()), next: vq.anybodys}
	}
	vq.ground.catchUp()
	return vq.ground
}

// anybodys finds out who gives next of a leaf, and whether that is so for everybody.
func (vq *victimQueues) anybodys(s *seat) {
	l := s.b.leaf
	vq.ready(l)
	s.odd = 0
	for _, v := range l.gangs[l.start:] {
		if vq.s.Ledger.Live(v) == 0 {
			continue
		}
		if !vq.s.Rules.AnyBeneficiary(v) {
			s.odd = 1
		}
		u, _ := vq.s.Ledger.NextUnit(v)
		s.leaf, s.gang, s.unit = l, v, u.Charge
		return
	}
}

// Whether a queue off the beneficiary's way may be asked, as it was when the walk began or since.
const (
	unknown int8 = iota
	asked
	shut
)

// canvass asks about the queues beside the beneficiary's way, those of a kind in one, and notes those that may be asked. It is told of
// the first leaf below each, which stands for all.
func (w *walk) canvass() {
	w.status = map[*branch]bool{}
	var up *branch
	for _, q := range way(w.g.Leaf) {
		own := w.queues.nodes[q.ID]
		for _, k := range w.queues.broodOf(up).kinds {
			w.ask(k, own)
		}
		if up = own; up == nil {
			return
		}
	}
}

// ask asks about the siblings of a queue on the beneficiary's way, or at which it leaves those who hold something (nil), of a kind.
func (w *walk) ask(k *kind, own *branch) {
	first := k.stands(own)
	if first == nil {
		return
	}
	w.queues.s.Recorder.Step()
	switch v := w.mayAsk(first.first().queue); {
	case v.Yes():
		w.wide = append(w.wide, openKind{k, own})
	case v.Reason == policy.ReasonOtherQueue:
	case len(k.of) > maxBarriers+1 || k.gangs == 0:
		w.shut(closure{kind: k, below: first, but: own, why: v, before: true})
	default: // few enough to be told of one by one
		for _, b := range k.others(own) {
			w.shut(closure{below: b, why: w.mayAsk(b.first().queue), before: true})
		}
	}
}

// openKind is siblings of a kind, all of which may be asked but the one that is on the beneficiary's way, if it is of them.
type openKind struct {
	kind *kind
	own  *branch
}

func (o *openKind) has(b *branch) bool { return b.kind == o.kind && b != o.own }

// nobodyAsked says whether no queue beside the beneficiary's way may be asked.
func (w *walk) nobodyAsked() bool { return len(w.open) == 0 && len(w.wide) == 0 }

// spread opens the queues of the kinds that may be asked, one by one: O(queues). A question whose answer needs only some of them does
// without.
func (w *walk) spread() {
	for _, o := range w.wide {
		for _, b := range o.kind.of {
			if b != o.own {
				w.opened(b)
			}
		}
	}
	w.wide = nil
}

func (w *walk) opened(b *branch) {
	w.status[b] = true
	w.open = append(w.open, b)
}

// survey gives places to the queues on the beneficiary's way, and to those beside it that may be asked.
func (w *walk) survey(st *stand) {
	w.spread()
	beside := map[*branch][]*branch{}
	for _, b := range w.open {
		beside[b.up] = append(beside[b.up], b)
	}
	ups := []*seat{&st.top}
	for _, q := range way(w.g.Leaf) {
		up, own := ups[len(ups)-1], w.queues.nodes[q.ID]
		bs := beside[up.b]
		if own != nil {
			bs = append(bs, own)
		}
		slices.SortFunc(bs, bySiblings)
		up.sized(len(bs))
		for i, b := range bs {
			if b == own {
				ups = append(ups, st.place(up, b, i))
			} else {
				st.settle(up, b, i)
			}
		}
		if own == nil {
			break
		}
	}
	for _, up := range slices.Backward(ups) {
		st.playAll(up)
		st.look(up)
	}
}

// above says whether a leaf off the beneficiary's way may be asked, by the queue beside the way that it is, or is below.
func (w *walk) above(b *branch) int8 {
	if w.status == nil || nearness(w.g.Leaf, b.queue) > b.queue.Depth {
		return unknown
	}
	for ; b != nil; b = b.up {
		if w.status[b] || slices.ContainsFunc(w.wide, func(o openKind) bool { return o.has(b) }) {
			return asked
		}
	}
	return shut
}

// reopen lets siblings be asked that were not.
func (w *walk) reopen(bs []*branch) {
	up := &w.stand.top
	if bs[0].up != nil {
		up = w.stand.seats[bs[0].up]
	}
	w.stand.join(up, bs)
	for _, b := range bs {
		w.opened(b)
		b.each(func(l *leaf) { delete(w.at, l) })
		w.stand.build(w.stand.seats[b], b.kids)
		w.stand.note(b)
	}
}

// rest looks at the leaves that may be asked, and were not looked at: of a search in vain, everybody is told of.
func (w *walk) rest() {
	w.spread()
	for _, b := range w.open {
		b.each(func(l *leaf) { w.cursor(l) })
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

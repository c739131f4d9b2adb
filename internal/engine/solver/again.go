package solver

import (
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// turned is whom a walk has turned away for what queues hold. Each unit is judged at its moment: after something was taken
// from a queue that is nearer to the beneficiary's own, queues farther away may be asked, or asked for more. So whoever
// was turned away is asked again when nobody else is left, and told of at the very end only.
type turned struct {
	near   int // the largest nearness of what was taken since somebody was asked again
	gangs  []refusal
	leaves []closure
}

// refusal is a gang whose next unit was refused.
type refusal struct {
	gang *ledger.GangState
	why  policy.Verdict
}

// closure is a queue that need not give, or no more: a leaf, or all leaves below a queue, or below its siblings of a kind too.
type closure struct {
	leaf   *leaf
	gangs  *crowd  // of a leaf, who is passed over for it
	below  *branch // nil for a leaf
	kind   *kind   // nil for a queue by itself
	but    *branch // of the kind, the one that is on the beneficiary's way
	why    policy.Verdict
	before bool // before any of its gangs was looked at
}

// nearness is how many queues are on the ways of both from the top.
func nearness(a, b *ledger.QueueLedger) int {
	if q := meet(a, b); q != nil {
		return q.Depth + 1
	}
	return 0
}

// way returns the queues from the top to one.
func way(q *ledger.QueueLedger) []*ledger.QueueLedger {
	out := make([]*ledger.QueueLedger, q.Depth+1)
	for ; q != nil; q = q.Parent {
		out[q.Depth] = q
	}
	return out
}

// meet returns the last queue that is on the ways of both from the top, nil for none.
func meet(a, b *ledger.QueueLedger) *ledger.QueueLedger {
	for a != nil && b != nil && a != b {
		if a.Depth >= b.Depth {
			a = a.Parent
		} else {
			b = b.Parent
		}
	}
	if a == nil || b == nil {
		return nil
	}
	return a
}

// mayAsk says whether anything may be taken from a leaf queue. A queue that may be asked once may be asked for the rest of the
// search.
func (w *walk) mayAsk(leaf *ledger.QueueLedger) policy.Verdict {
	if w.asked[leaf] {
		return policy.Verdict{}
	}
	v := w.queues.s.Rules.CheckVictimQueue(w.cause, w.g, w.request, leaf)
	if v.Yes() {
		w.asked[leaf] = true
	}
	return v
}

// unit returns what the gang gives next, where room is needed.
func (w *walk) unit(v *ledger.GangState) (ledger.VictimUnit, bool) {
	if w.on != nil {
		return w.queues.s.Ledger.NextUnitOn(v, w.on, w.of)
	}
	return w.queues.s.Ledger.NextUnit(v)
}

// refuse passes over a gang.
func (w *walk) refuse(v *ledger.GangState, why policy.Verdict) {
	w.turned.gangs = append(w.turned.gangs, refusal{v, why})
}

// shut passes over gangs of leaves that need not give.
func (w *walk) shut(c closure) { w.turned.leaves = append(w.turned.leaves, c) }

// first is the leaf, or one that stands for all.
func (c *closure) first() *leaf {
	if c.below != nil {
		return c.below.first()
	}
	return c.leaf
}

// again lets those be asked again who were turned away before something was taken nearer than they are, and says whether
// there are any. It does so at most once for each level of the queues.
func (w *walk) again() bool {
	near := w.turned.near
	w.turned.near = 0
	if w.cause != policy.Reclaim || near == 0 {
		return false
	}
	was := w.turned
	w.turned = turned{}
	any := false
	for _, c := range was.leaves {
		if q := c.first().queue; nearness(w.g.Leaf, q) >= near || !w.mayAsk(q).Yes() {
			w.turned.leaves = append(w.turned.leaves, c)
			continue
		}
		any = true
		switch {
		case c.kind != nil:
			w.reopen(c.kind.others(c.but))
			continue
		case c.below != nil:
			w.reopen([]*branch{c.below})
			continue
		}
		w.stand.stale(c.leaf)
		if c.before {
			delete(w.at, c.leaf)
		} else {
			w.at[c.leaf].closed = false
		}
	}
	for _, r := range was.gangs {
		if nearness(w.g.Leaf, r.gang.Leaf) >= near {
			w.turned.gangs = append(w.turned.gangs, r)
			continue
		}
		any = true
		w.giveBack(w.queues.byID[r.gang.Leaf.ID], r.gang)
	}
	return any
}

// finish tells of all who are turned away for good.
func (w *walk) finish() {
	w.rest()
	near := 0
	for _, r := range w.turned.gangs {
		w.bar(r.gang, r.why)
		near = max(near, nearness(w.g.Leaf, r.gang.Leaf))
	}
	for _, c := range w.turned.leaves {
		switch {
		case c.kind != nil:
			w.barKind(c.kind, c.but, c.why)
		case c.below != nil:
			if all := c.below.heads(); all.count > 0 {
				w.count(w.barrier(c.why), all.count, all.names)
			}
		default:
			w.barAll(c.gangs, c.why)
		}
		w.hinges = w.hinges || c.before && nearness(w.g.Leaf, c.first().queue) < near
	}
	w.turned = turned{}
}

package solver

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// nearer returns the decision that should be taken in place of one that was found: the same, or one by which the sets of the gang that have to
// be in one domain of a declared topology are in one of a narrower level than need be, of the narrowest for which the victims are lawful too, and
// that does no harm that the first spares. Where nobody need go, the gang is where it is.
//
// It is another search for each level that could have room with everybody gone, narrowest first, down to the one that was found: only of
// who is given something, and of those only where somebody is taken.
func (q *search) nearer() *search {
	t, wide := q.declared()
	if t == nil || q.cause == policy.Consolidation || !q.disturbs() {
		return q
	}
	at := q.levelFound(t)
	if at >= len(t.Levels)-1 {
		return q
	}
	least := q.harm()
	found := q.st.Cut(0)
	defer q.s.Placer.Narrow(nil, nil, 0)
	for level := len(t.Levels) - 1; level > max(wide, at); level-- {
		q.s.Placer.Narrow(q.g, t, level)
		n := &search{Solver: q.Solver, g: q.g, pods: q.pods, request: q.request, st: q.st, cost: q.cost}
		if n.couldFit(n.rooms()) && n.lawfully(t, level, func() bool {
			more := n.harm()
			return (least.kills || !more.kills) && (least.breaks || !more.breaks) && (least.budget || !more.budget)
		}) {
			return n
		}
	}
	q.st.Redo(found)
	return q
}

// declared is the declared topology in which sets of the gang have to be together, with the widest level at which one has to; nil for none.
func (q *search) declared() (t *cluster.Topology, widest int) {
	if !q.s.Placer.Constrained(q.g) {
		return nil, 0
	}
	for set := range q.g.Sets {
		if of, level, must := q.level(int32(set)); must && of.Declared != nil && (t == nil || level < widest) {
			t, widest = of, level
		}
	}
	return t, widest
}

// levelFound is the narrowest level such that each set that has to be together is in one domain of it now, or asks for a narrower one.
func (q *search) levelFound(t *cluster.Topology) int {
	least := len(t.Levels) - 1
	for set := range q.g.Sets {
		of, need, must := q.level(int32(set))
		if !must || of != t {
			continue
		}
		at, some := cluster.DomainID(cluster.RootDomain), false
		q.s.Ledger.Members(q.g, int32(set), func(n cluster.NodeID) {
			if d := t.Narrowest(n); some {
				at = common(t, at, d)
			} else {
				at, some = d, true
			}
		})
		if d := t.Domain(at); some && d != nil {
			least = min(least, max(need, d.Level))
		}
	}
	return least
}

// common is the narrowest domain that two are in.
func common(t *cluster.Topology, a, b cluster.DomainID) cluster.DomainID {
	for a != b && a != cluster.None && b != cluster.None {
		if t.Domain(a).Level >= t.Domain(b).Level {
			a = t.Domain(a).Parent
		} else {
			b = t.Domain(b).Parent
		}
	}
	if a == b {
		return a
	}
	return cluster.None
}

// nearDomains is up to how many domains of a level are tried one by one.
const nearDomains = 64

// lawfully finds victims who may all be taken and do no more harm than allowed, and places the gang: in the victim order wherever they are, or, as
// who is taken first may bar others, those in one domain after another. Without any, nothing is taken.
func (q *search) lawfully(t *cluster.Topology, level int, harmless func() bool) bool {
	q.begin()
	done := func() bool {
		if q.grow() {
			if q.made(); harmless() {
				return true
			}
		}
		q.st.RollbackTo(0)
		q.units, q.marks, q.spared = nil, nil, nil
		return false
	}
	if done() {
		return true
	}
	tried := 0
	var in func(d cluster.DomainID) bool
	in = func(d cluster.DomainID) bool {
		dom := t.Domain(d)
		if dom.Level < level {
			return slices.ContainsFunc(dom.Children, in)
		}
		if tried++; tried > nearDomains || q.probes > maxProbes {
			return false
		}
		q.beginIn(t, dom)
		return done()
	}
	return in(cluster.RootDomain)
}

// beginIn starts a walk over those who hold something in a domain, of which only that is taken, or all of a gang that goes as one.
func (q *search) beginIn(t *cluster.Topology, dom *cluster.Domain) {
	in := func(n cluster.NodeID) bool { return t.DomainOf(n, dom.Level) == dom.ID }
	seen := map[cluster.GangID]bool{}
	var gangs []*ledger.GangState
	add := func(id cluster.GangID) {
		if id == cluster.None || seen[id] {
			return
		}
		seen[id] = true
		if v := q.s.Ledger.Gang(id); v != q.g && v.Leaf != nil && q.s.Rules.Yields(v.Gang) {
			gangs = append(gangs, v)
		}
	}
	var walk func(dom *cluster.Domain)
	walk = func(dom *cluster.Domain) {
		for _, n := range dom.Nodes {
			for _, id := range q.s.Snap.Node(n).Pods {
				if p := q.s.Snap.Pod(id); p.Phase.Active() {
					add(p.Gang)
				}
			}
			q.s.Ledger.EachPromise(n, func(to cluster.GangID, _ cluster.Resources) { add(to) })
		}
		for _, c := range dom.Children {
			walk(t.Domain(c))
		}
	}
	walk(dom)
	q.w = q.everyone().part(gangs).walk(q.cause, q.g, q.request)
	q.asked, q.w.on, q.w.of = q.w.asked, in, func(p *cluster.Pod) bool { return p.Node != cluster.None && in(p.Node) }
}

// harm is what a decision costs others besides the number of pods: whether somebody goes who gets no other place, a gang loses its minimum, or a
// budget is broken.
type harm struct{ kills, breaks, budget bool }

func (q *search) harm() (h harm) {
	for i := range q.units {
		u := &q.units[i]
		for _, p := range u.Pods {
			if q.s.Ledger.Fate(p) == ledger.Evict {
				h.kills, h.breaks, h.budget = true, h.breaks || u.BelowMinimum, h.budget || u.budget != ""
			}
		}
	}
	return h
}

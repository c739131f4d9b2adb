package placer

import (
	"cmp"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// subproblem is something left to do in a search: to find a range for a constraint group, or nodes for pods.
type subproblem struct {
	c    *constraintGroup
	pods []cluster.PodID
	in   nodeRange
}

// rearrangedGroups is rearranged for a gang with constraints: largest constraint groups and pods first, then every way there is,
// within bounds.
func (tr *trial) rearrangedGroups(g *ledger.GangState, pods []cluster.PodID, d *recorder.Diagnosis) *recorder.Diagnosis {
	mark := tr.st.Mark()
	root := tr.constraintGroups(g, pods)
	if tr.largestFirst(root) {
		if tr.placeConstraintGroup(g, root, tr.everywhere()) == nil {
			return nil
		}
		tr.st.RollbackTo(mark)
	}
	q := &backtracker{trial: *tr, g: g, steps: arrangeSteps, alike: tr.Exact(pods) && oneTopology(g)}
	if q.ranges([]subproblem{{c: root, in: tr.everywhere()}}, nil) {
		return nil
	}
	d.Verdict.Partial = q.steps < 0
	return d
}

// oneTopology says whether all constraints of the gang are about the same topology, so that of two ranges one is in the
// other or they have no node in common.
func oneTopology(g *ledger.GangState) bool {
	name := ""
	for i := range g.Sets {
		switch t := g.Sets[i].Near.Topology; {
		case t == "" || t == name:
		case name == "":
			name = t
		default:
			return false
		}
	}
	return true
}

// largestFirst reorders constraint groups and their pods, and says whether that changed anything.
func (pl *Placer) largestFirst(c *constraintGroup) bool {
	before := slices.Clone(c.kids)
	slices.SortStableFunc(c.kids, func(a, b *constraintGroup) int {
		for _, dim := range [...]int{cluster.GPU, cluster.RAM, cluster.CPU} {
			if o := cmp.Compare(pl.sum(b.pods, dim), pl.sum(a.pods, dim)); o != 0 {
				return o
			}
		}
		return 0
	})
	changed := !slices.Equal(before, c.kids)
	own := pl.larger(c.own)
	changed = changed || !slices.Equal(own, c.own)
	c.own = own
	for _, kid := range c.kids {
		changed = pl.largestFirst(kid) || changed
	}
	return changed
}

func (pl *Placer) sum(pods []cluster.PodID, dim int) int64 {
	n := int64(0)
	for _, id := range pods {
		n += pl.snap.Pod(id).Class.Charge.At(dim)
	}
	return n
}

// backtracker tries every way to place a gang with constraints, until there are no steps left: it gives each constraint group a range,
// and when all have one, the pods nodes, those with the smallest ranges first.
type backtracker struct {
	trial // a copy: what points to it would outlive the attempt, and each attempt would be garbage
	g     *ledger.GangState
	steps int
	alike bool // in a range it does not matter which nodes are taken
}

// domainsPerStep is how many domains that are counted through to find a constraint group's ranges count for one step.
const domainsPerStep = 16

func (q *backtracker) ranges(todo, pods []subproblem) bool {
	if len(todo) == 0 {
		pods = slices.Clone(pods)
		slices.SortStableFunc(pods, func(a, b subproblem) int { return cmp.Compare(a.in.size(), b.in.size()) })
		if q.alike {
			return q.all(pods)
		}
		return q.nodes(pods, 0)
	}
	e := todo[0]
	if t := q.snap.Topology(q.g.Sets[e.c.set].Near.Topology); t != nil {
		q.steps -= t.MaxDomainID() / domainsPerStep
	}
	ranges, v := q.narrow(q.g, e.c, e.in)
	if !v.Yes() {
		return false
	}
	for i, r := range ranges {
		if slices.ContainsFunc(ranges[i+1:], func(o nodeRange) bool { return r.inside(o) }) {
			continue // whatever can be done in the narrower can be done in the wider
		}
		if q.steps--; q.steps < 0 {
			return false
		}
		next := make([]subproblem, 0, len(todo)+len(e.c.kids))
		for _, kid := range e.c.kids {
			next = append(next, subproblem{c: kid, in: r})
		}
		next = append(next, todo[1:]...)
		if q.ranges(next, append(slices.Clip(pods), subproblem{pods: e.c.own, in: r})) {
			return true
		}
	}
	return false
}

// inside says whether a range is part of another, as far as their orders tell.
func (in nodeRange) inside(o nodeRange) bool {
	if o.order == in.order {
		return o.lo <= in.lo && in.hi <= o.hi
	}
	return o.order.id == 0
}

// all places pods that are alike.
func (q *backtracker) all(todo []subproblem) bool {
	mark := q.st.Mark()
	for _, e := range todo {
		q.steps -= len(e.pods) / filterSteps
		for _, id := range e.pods {
			if !q.placePod(q.snap.Pod(id), e.in) {
				q.st.RollbackTo(mark)
				return false
			}
		}
	}
	return true
}

// nodes places the first pod on each node in turn, from a position in the range on, and the others after it.
func (q *backtracker) nodes(todo []subproblem, from int32) bool {
	for len(todo) > 0 && len(todo[0].pods) == 0 {
		todo, from = todo[1:], 0
	}
	if len(todo) == 0 {
		return true
	}
	e := todo[0]
	p := q.snap.Pod(e.pods[0])
	cost := 1
	if q.wanted(p) {
		cost = filterSteps
	}
	q.steps -= e.in.size() / passedOver
	mask := q.staticMask(p.Class)
	for i := max(from, e.in.lo); i < e.in.hi; i++ {
		n := e.in.order.nodes[i]
		if !mask.has(n) || !q.ledger.FitsLater(p.Class, n) {
			continue
		}
		if q.steps -= cost; q.steps < 0 {
			return false
		}
		if !q.filtersAllow(p, n) {
			continue
		}
		mark := q.st.Mark()
		if !q.put(p, n) {
			continue
		}
		next := int32(0)
		if len(e.pods) > 1 && q.snap.Pod(e.pods[1]).Class == p.Class && !q.wanted(p) {
			next = i
		}
		rest := append([]subproblem{{pods: e.pods[1:], in: e.in}}, todo[1:]...)
		if q.nodes(rest, next) {
			return true
		}
		q.st.RollbackTo(mark)
	}
	return false
}

package engine

import (
	"cmp"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// errand is something left to do in a search: to find a region for a cohort, or nodes for pods.
type errand struct {
	c    *cohort
	pods []cluster.PodID
	in   Region
}

// rearrangedCohorts is rearranged for a gang with constraints: largest cohorts and pods first, then every way there is,
// within bounds.
func (tr *trial) rearrangedCohorts(g *GangState, pods []cluster.PodID, d *Diagnosis) *Diagnosis {
	mark := tr.st.Mark()
	root := tr.cohorts(g, pods)
	if tr.largestFirst(root) {
		if tr.placeCohort(g, root, tr.everywhere()) == nil {
			return nil
		}
		tr.st.RollbackTo(mark)
	}
	q := &seeker{trial: *tr, g: g, looks: arrangeLooks, alike: tr.Exact(pods) && oneTopology(g)}
	if q.regions([]errand{{c: root, in: tr.everywhere()}}, nil) {
		return nil
	}
	d.Verdict.Partial = q.looks < 0
	return d
}

// oneTopology says whether all constraints of the gang are about the same topology, so that of two regions one is in the
// other or they have no node in common.
func oneTopology(g *GangState) bool {
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

// largestFirst reorders cohorts and their pods, and says whether that changed anything.
func (pl *Placer) largestFirst(c *cohort) bool {
	before := slices.Clone(c.kids)
	slices.SortStableFunc(c.kids, func(a, b *cohort) int {
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

// seeker tries every way to place a gang with constraints, until there are no looks left: it gives each cohort a region,
// and when all have one, the pods nodes, those with the smallest regions first.
type seeker struct {
	trial // a copy: what points to it would outlive the attempt, and each attempt would be garbage
	g     *GangState
	looks int
	alike bool // in a region it does not matter which nodes are taken
}

// domainsPerLook is how many domains that are counted through to find a cohort's regions count for one look.
const domainsPerLook = 16

func (q *seeker) regions(todo, pods []errand) bool {
	if len(todo) == 0 {
		pods = slices.Clone(pods)
		slices.SortStableFunc(pods, func(a, b errand) int { return cmp.Compare(a.in.Size(), b.in.Size()) })
		if q.alike {
			return q.all(pods)
		}
		return q.nodes(pods, 0)
	}
	e := todo[0]
	if t := q.snap.Topology(q.g.Sets[e.c.set].Near.Topology); t != nil {
		q.looks -= t.MaxDomainID() / domainsPerLook
	}
	regions, v := q.narrow(q.g, e.c, e.in)
	if !v.Yes() {
		return false
	}
	for i, r := range regions {
		if slices.ContainsFunc(regions[i+1:], func(o Region) bool { return r.inside(o) }) {
			continue // whatever can be done in the narrower can be done in the wider
		}
		if q.looks--; q.looks < 0 {
			return false
		}
		next := make([]errand, 0, len(todo)+len(e.c.kids))
		for _, kid := range e.c.kids {
			next = append(next, errand{c: kid, in: r})
		}
		next = append(next, todo[1:]...)
		if q.regions(next, append(slices.Clip(pods), errand{pods: e.c.own, in: r})) {
			return true
		}
	}
	return false
}

// inside says whether a region is part of another, as far as their views tell.
func (in Region) inside(o Region) bool {
	if o.v == in.v {
		return o.lo <= in.lo && in.hi <= o.hi
	}
	return o.v.id == 0
}

// all places pods that are alike.
func (q *seeker) all(todo []errand) bool {
	mark := q.st.Mark()
	for _, e := range todo {
		q.looks -= len(e.pods) / filterLooks
		for _, id := range e.pods {
			if !q.placePod(q.snap.Pod(id), e.in) {
				q.st.RollbackTo(mark)
				return false
			}
		}
	}
	return true
}

// nodes places the first pod on each node in turn, from a position in the region on, and the others after it.
func (q *seeker) nodes(todo []errand, from int32) bool {
	for len(todo) > 0 && len(todo[0].pods) == 0 {
		todo, from = todo[1:], 0
	}
	if len(todo) == 0 {
		return true
	}
	e := todo[0]
	p := q.snap.Pod(e.pods[0])
	cost := 1
	if q.wanted(p.Class) {
		cost = filterLooks
	}
	q.looks -= e.in.Size() / passedOver
	mask := q.staticMask(p.Class)
	for i := max(from, e.in.lo); i < e.in.hi; i++ {
		n := e.in.v.nodes[i]
		if !mask.has(n) || !q.ledger.FitsLater(p.Class, n) {
			continue
		}
		if q.looks -= cost; q.looks < 0 {
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
		if len(e.pods) > 1 && q.snap.Pod(e.pods[1]).Class == p.Class && !q.wanted(p.Class) {
			next = i
		}
		rest := append([]errand{{pods: e.pods[1:], in: e.in}}, todo[1:]...)
		if q.nodes(rest, next) {
			return true
		}
		q.st.RollbackTo(mark)
	}
	return false
}

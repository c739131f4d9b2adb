package solver

import (
	"cmp"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// near is what a gang's sets that have to be in one domain would find there, with everybody gone.
type near struct {
	*search
	rooms  []cluster.Resources
	needs  []map[*cluster.Class]int // by set: the pods of it, and of the sets below it
	places map[placesIn][]int       // by domain
}

// placesIn is the places for one kind of pod in the domains of a level.
type placesIn struct {
	class    *cluster.Class
	topology *cluster.Topology
	level    int
}

// couldBeNear says whether each set of the gang that has to be in one domain would have one with places for each kind of
// its pods, each kind for itself, and with such domains for all the sets below it together; where its other sets may do as
// well, each set for itself. O(nodes) for each class and level that differ.
func (q *search) couldBeNear(rooms []cluster.Resources) bool {
	if !q.s.Placer.Constrained(q.g) {
		return true
	}
	n := &near{search: q, rooms: rooms, needs: make([]map[*cluster.Class]int, len(q.g.Sets)), places: map[placesIn][]int{}}
	for _, id := range q.pods {
		p := q.s.Snap.Pod(id)
		for i := p.Set; i != cluster.None; i = q.g.Sets[i].Parent {
			if n.needs[i] == nil {
				n.needs[i] = map[*cluster.Class]int{}
			}
			n.needs[i][p.Class]++
		}
	}
	_, ok := n.homes(0)
	return ok
}

// home is the domains of a level that a set could go to.
type home struct {
	set      int32
	topology *cluster.Topology // nil for the whole cluster, which is one domain
	level    int
	in       map[cluster.DomainID]bool
}

// homes returns the homes of the widest sets from a set down that have to be in one domain; false if one of them has none.
func (n *near) homes(set int32) (out []home, ok bool) {
	if len(n.needs[set]) == 0 {
		return nil, true
	}
	for _, c := range n.g.Sets[set].Children {
		h, ok := n.homes(c)
		if !ok {
			return nil, false
		}
		out = append(out, h...)
	}
	t, level, must := n.level(set)
	if !must {
		all := home{set: set, in: map[cluster.DomainID]bool{cluster.None: true}}
		if n.s.Placer.ChoiceKey(n.g) == "" {
			n.hold(&all, out)
		}
		return out, len(all.in) > 0
	}
	own := home{set, t, level, n.members(set, t, level)}
	if len(own.in) == 0 {
		own.in = map[cluster.DomainID]bool{}
		for d := range t.MaxDomainID() {
			if dom := t.Domain(cluster.DomainID(d)); dom != nil && dom.Level == level {
				own.in[dom.ID] = true
			}
		}
	}
	for c, need := range n.needs[set] { // order: each takes what it cannot use
		have := n.count(c, t, level)
		for d := range own.in { // order: each on its own
			if have[d] < need {
				delete(own.in, d)
			}
		}
	}
	if n.s.Placer.ChoiceKey(n.g) == "" {
		for _, h := range out {
			own.keep(&h)
		}
		n.hold(&own, out)
	}
	return []home{own}, len(own.in) > 0
}

// keep leaves only domains that have a home of a narrower set in them.
func (h *home) keep(below *home) {
	if below.topology != h.topology || below.level < h.level {
		return
	}
	has := map[cluster.DomainID]bool{}
	for d := range below.in { // order: a set
		has[h.topology.Above(d, h.level)] = true
	}
	for d := range h.in { // order: each on its own
		if !has[d] {
			delete(h.in, d)
		}
	}
}

// hold leaves only domains whose narrower ones could hold all the sets at once that have to be in one of those: of each kind of
// pod they have places for as many sets as need the same, or more, whatever need that is.
func (n *near) hold(own *home, below []home) {
	needs := map[placesIn][]int{}
	for _, h := range below {
		if own.topology != nil && (h.topology != own.topology || h.level < own.level) {
			continue
		}
		for c, need := range n.needs[h.set] { // order: sorted below
			key := placesIn{c, h.topology, h.level}
			needs[key] = append(needs[key], need)
		}
	}
	for key, all := range needs { // order: each takes what it cannot use
		have := n.count(key.class, key.topology, key.level)
		slices.SortFunc(all, func(a, b int) int { return cmp.Compare(b, a) })
		for k, need := range all {
			if k+1 < len(all) && all[k+1] == need {
				continue
			}
			n.steps(len(have) / nodesPerStep)
			sets := map[cluster.DomainID]int{}
			for d, places := range have {
				if places >= need {
					sets[own.above(key.topology, cluster.DomainID(d))] += places / need
				}
			}
			for d := range own.in { // order: each on its own
				if sets[d] <= k {
					delete(own.in, d)
				}
			}
		}
	}
}

// above returns the domain in which a narrower one is.
func (h *home) above(t *cluster.Topology, d cluster.DomainID) cluster.DomainID {
	if h.topology == nil {
		return cluster.None
	}
	return t.Above(d, h.level)
}

// count returns how many pods of a class each domain of a level would have places for.
func (n *near) count(c *cluster.Class, t *cluster.Topology, level int) []int {
	key := placesIn{c, t, level}
	have := n.places[key]
	if have == nil {
		have = make([]int, t.MaxDomainID())
		n.steps(len(n.s.Snap.NodeOrder) / nodesPerStep)
		for _, id := range n.s.Snap.NodeOrder {
			if d := t.DomainOf(id, level); d != cluster.None {
				have[d] += n.placesOn(c, id, n.rooms[id], len(n.pods))
			}
		}
		n.places[key] = have
	}
	return have
}

// level returns the topology, and the level of it, of which a set must be in one domain.
func (q *search) level(set int32) (*cluster.Topology, int, bool) {
	near := q.s.Placer.Near(q.g, set)
	t := q.s.Snap.Topology(near.Topology)
	if t == nil || near.Required == "" {
		return nil, 0, false
	}
	level, ok := t.LevelByName(near.Required)
	return t, level, ok
}

// members returns the domains of a level in which the set has pods already: the others have to go there.
func (q *search) members(set int32, t *cluster.Topology, level int) map[cluster.DomainID]bool {
	out := map[cluster.DomainID]bool{}
	q.s.Ledger.Members(q.g, set, func(n cluster.NodeID) {
		if d := t.DomainOf(n, level); d != cluster.None {
			out[d] = true
		}
	})
	return out
}

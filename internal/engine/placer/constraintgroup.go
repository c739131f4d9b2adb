package placer

import (
	"slices"
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// constraintGroup is the pods of a gang that a constraint keeps together: those of one set and of the sets below it. A gang is a
// tree of constraint groups, with the whole gang at the top.
type constraintGroup struct {
	set  int32
	pods []cluster.PodID    // all
	kids []*constraintGroup // what is kept together more closely
	own  []cluster.PodID    // the others

	kinds []policy.Kind   // of all
	near  *policy.Verdict // of the top: see CheckNear; nil until asked for
	asks  string          // what it asks for, see kindsKey; "" until asked for
}

// Constrained says whether the gang asks for its pods, or some of them, to be near each other, and somebody listens.
func (pl *Placer) Constrained(g *ledger.GangState) bool {
	return g.Shape() != "" && len(pl.points.NodeSets) > 0
}

// narrowed is a what-if in which a gang asks for more than it does; see Placer.Narrow.
type narrowed struct {
	gang     *ledger.GangState // nil for none
	topology *cluster.Topology
	level    int
}

// Narrow has the sets of a gang that have to be in one domain of a topology be in one of a level at least, which may be narrower, until it
// is told otherwise; a nil gang ends it. What is asked meanwhile about the gang in that topology is a what-if.
func (pl *Placer) Narrow(g *ledger.GangState, t *cluster.Topology, level int) {
	pl.narrowed = narrowed{g, t, level}
}

// Near is what keeps a set of a gang together: what it asks for, or more, see Narrow.
func (pl *Placer) Near(g *ledger.GangState, set int32) cluster.Constraint {
	near := g.Sets[set].Near
	if w := &pl.narrowed; w.gang == g && near.Topology == w.topology.Name && near.Required != "" {
		if level, ok := w.topology.LevelByName(near.Required); ok && level < w.level {
			near.Required = cluster.TierLevel(w.topology.Levels[w.level].Tier)
		}
	}
	return near
}

// constraintGroups divides pods, which must be in the order of the sets, into the gang's constraint groups.
func (pl *Placer) constraintGroups(g *ledger.GangState, pods []cluster.PodID) *constraintGroup {
	root := &constraintGroup{}
	made := make([]*constraintGroup, len(g.Sets)) // by set
	made[0] = root
	var get func(set int32) *constraintGroup
	get = func(set int32) *constraintGroup {
		if c := made[set]; c != nil {
			return c
		}
		up := get(g.Sets[set].Parent)
		c := up
		if g.Sets[set].Near != (cluster.Constraint{}) {
			c = &constraintGroup{set: set}
			up.kids = append(up.kids, c)
		}
		made[set] = c
		return c
	}
	for _, id := range pods {
		c := get(pl.snap.Pod(id).Set)
		c.own = append(c.own, id)
		for {
			c.pods = append(c.pods, id)
			if c == root {
				break
			}
			c = get(g.Sets[c.set].Parent)
		}
	}
	for _, c := range made {
		if c != nil && c.kinds == nil {
			c.kinds = pl.kinds(c.pods)
		}
	}
	return root
}

// constraintGroupsOf is constraintGroups for who leaves them as they are: a gang is asked about again and again.
func (pl *Placer) constraintGroupsOf(g *ledger.GangState, pods []cluster.PodID) *constraintGroup {
	c := pl.groups[g.ID]
	if c == nil || !slices.Equal(c.pods, pods) {
		c = pl.constraintGroups(g, pods)
		pl.groups[g.ID] = c
	}
	return c
}

// domains lists the domains of a level below (or at) the range, which is a domain of their topology.
func (in nodeRange) domains(level int) []cluster.DomainID {
	t := in.order.topology
	var out []cluster.DomainID
	var walk func(d cluster.DomainID)
	walk = func(d cluster.DomainID) {
		if sp := in.order.intervals[d]; sp.lo == sp.hi {
			return
		}
		dom := t.Domain(d)
		if dom.Level == level {
			out = append(out, d)
			return
		}
		for _, c := range dom.Children {
			walk(c)
		}
	}
	walk(in.domain)
	return out
}

// narrow asks where a constraint group may go.
func (pl *Placer) narrow(g *ledger.GangState, c *constraintGroup, in nodeRange) ([]nodeRange, policy.Verdict) {
	if near := pl.Near(g, c.set); near != (cluster.Constraint{}) {
		q := &query{policy.SetQuery{Gang: g, Set: c.set, Near: near, Pods: c.kinds}, pl, in}
		q.Within = q
		for _, p := range pl.points.NodeSets {
			sets, v := p.It.NodeSets(&q.SetQuery)
			if !v.Yes() {
				v.Plugin = p.Name
				return nil, v
			}
			if sets == nil {
				continue
			}
			out := make([]nodeRange, len(sets))
			for i, set := range sets {
				out[i] = in
				if set.Domain != cluster.None {
					out[i] = pl.within(in, set.Topology).part(set.Domain)
				}
				if set.Gather != cluster.None {
					out[i].gather = gathering{set.Topology, set.Gather}
				}
			}
			return out, policy.Verdict{}
		}
	}
	return []nodeRange{in}, policy.Verdict{}
}

// placeConstraintGroup places a constraint group within a range: in the first of the places it may go to that takes it.
func (tr *trial) placeConstraintGroup(g *ledger.GangState, c *constraintGroup, in nodeRange) *recorder.Diagnosis {
	ranges, v := tr.narrow(g, c, in)
	if !v.Yes() {
		return tr.noPlace(g, c, v, in)
	}
	var why *recorder.Diagnosis
	var waits []ledger.Op // the first way that was found, which has to wait for a release
	mark := tr.st.Mark()
	for i, r := range ranges {
		if waits != nil && (i > atOnceDomains || !r.level(ranges[0])) {
			break
		}
		d := tr.fill(g, c, r)
		switch {
		case d != nil:
			tr.st.RollbackTo(mark)
			if d.Verdict.Reason == policy.ReasonGangNoRoom && d.Verdict.Object == "" && r.domain != cluster.RootDomain && (r.order != in.order || r.domain != in.domain) {
				d.Verdict.Object = r.name()
				tr.tellLeftOut(d, g.Sets[c.set].Near, in)
			}
		case c.set != 0 || tr.mode != asItStands || !tr.st.Waits(mark):
			return nil
		default: // perhaps the gang can start at once in another domain of the level
			if ops := tr.st.Cut(mark); waits == nil {
				waits = ops
			}
			continue
		}
		if why == nil || d.Verdict.Have > why.Verdict.Have {
			why = d
		}
		if tr.aborted() {
			break
		}
	}
	if waits != nil {
		tr.st.Redo(waits)
		return nil
	}
	return why
}

// atOnceDomains is how many domains are tried for a gang that would have to wait in the best one.
const atOnceDomains = 8

// name is what people call the domain that a range is, which must not be the root.
func (in nodeRange) name() string {
	t := in.order.topology
	return t.Levels[t.Domain(in.domain).Level].Name() + " " + t.Path(in.domain) + " of topology " + t.Name
}

// level says whether two ranges are domains of the same level.
func (in nodeRange) level(o nodeRange) bool {
	return in.order == o.order && in.order.topology != nil && in.order.topology.Domain(in.domain).Level == o.order.topology.Domain(o.domain).Level
}

// noPlace is the diagnosis of a constraint group for which there is no place.
func (tr *trial) noPlace(g *ledger.GangState, c *constraintGroup, v policy.Verdict, in nodeRange) *recorder.Diagnosis {
	d := &recorder.Diagnosis{Verdict: v}
	if tr.mode != onRelease && len(c.pods) > 0 {
		d.Pods = tr.snap.Pod(c.pods[0]).Class
		d.Class, d.Nodes = tr.snap.Dims.Format(tr.snap.ChargeWaiting(d.Pods)), len(tr.snap.NodeOrder)
		if v.Reason.Room() {
			tr.tellLeftOut(d, g.Sets[c.set].Near, in)
		}
	}
	return d
}

// tellLeftOut adds to a diagnosis which nodes of a range the constraint leaves out whatever room they have: otherwise nobody would learn of
// a node that lacks a label. O(nodes) once for each constraint and range.
func (tr *trial) tellLeftOut(d *recorder.Diagnosis, near cluster.Constraint, in nodeRange) {
	if tr.mode != asItStands {
		return
	}
	key := leftOutKey{near, in.order.id, in.lo, in.hi}
	t, ok := tr.leftOut[key]
	if !ok {
		own := &tallier{}
		for i, id := range in.order.nodes[in.lo:in.hi] {
			n := tr.snap.Node(id)
			for _, p := range tr.points.NodeSets {
				if v := p.It.LeftOut(near, n); !v.Yes() {
					v.Plugin = p.Name
					own.count(own.kind(&v, i), n.Name)
					break
				}
			}
		}
		t = own.tally
		tr.leftOut[key] = t
	}
	if len(t) > 0 {
		d.Nodes, d.Tally = max(d.Nodes, in.size()), sorted(slices.Concat(d.Tally, t))
	}
}

// leftOutKey names what the nodes of a range say to a constraint.
type leftOutKey struct {
	near   cluster.Constraint
	order  int32
	lo, hi int32
}

// fill places all of a constraint group in the range chosen for it: those first that are kept together more closely.
func (tr *trial) fill(g *ledger.GangState, c *constraintGroup, in nodeRange) *recorder.Diagnosis {
	for _, kid := range c.kids {
		if d := tr.placeKid(g, kid, in); d != nil {
			return d
		}
	}
	return tr.gatherAll(g, c, in)
}

// placeKid places a constraint group in one of the domains that the one above it gathers in, if one takes it, or else anywhere.
func (tr *trial) placeKid(g *ledger.GangState, kid *constraintGroup, in nodeRange) *recorder.Diagnosis {
	if tree, ok := tr.gathers(in); ok {
		tried := map[cluster.DomainID]bool{}
		for {
			d := tr.gatherIn(g, tree, kid.kinds, true, tried)
			if d == cluster.None {
				break
			}
			tried[d] = true
			mark := tr.st.Mark()
			if tr.placeConstraintGroup(g, kid, tree.part(d)) == nil {
				return nil
			}
			tr.st.RollbackTo(mark)
		}
	}
	return tr.placeConstraintGroup(g, kid, in)
}

// gathers returns the part of a range in whose domains pods should gather; false when they need not, or are together.
func (pl *Placer) gathers(in nodeRange) (nodeRange, bool) {
	t := in.gather.topology
	if t == nil {
		return nodeRange{}, false
	}
	tree := pl.within(in, t)
	return tree, t.Domain(tree.domain).Level < in.gather.level
}

// gatherAll places the own pods of a constraint group, in as few domains as possible where they should gather.
func (tr *trial) gatherAll(g *ledger.GangState, c *constraintGroup, in nodeRange) *recorder.Diagnosis {
	tree, ok := tr.gathers(in)
	if !ok {
		return tr.placeAll(c.own, in)
	}
	for i := 0; i < len(c.own); {
		same, d := tr.run(c.own, i, in)
		if d != nil {
			return d
		}
		left := c.own[i : i+same]
		kind := []policy.Kind{{Class: tr.snap.Pod(left[0]).Class}}
		full := map[cluster.DomainID]bool{}
		for len(left) > 0 {
			kind[0].Count = len(left)
			d := tr.gatherIn(g, tree, kind, false, full)
			if d == cluster.None {
				break
			}
			for part := tree.part(d); len(left) > 0 && tr.placePod(tr.snap.Pod(left[0]), part); {
				left = left[1:]
			}
			full[d] = true
		}
		for ; len(left) > 0; left = left[1:] { // nodes outside the tree, where only a wish keeps pods in it
			if p := tr.snap.Pod(left[0]); !tr.placePod(p, in) {
				return tr.noRoom(p, i+same-len(left), len(c.own), in)
			}
		}
		i += same
	}
	return nil
}

// gatherIn returns the next domain for pods to gather in, None for none: one that takes all, those first in which the gang
// has members, then those that it fills best; failing that, unless all must go, the one that takes most.
func (pl *Placer) gatherIn(g *ledger.GangState, tree nodeRange, kinds []policy.Kind, all bool, tried map[cluster.DomainID]bool) cluster.DomainID {
	t := tree.order.topology
	near := map[cluster.DomainID]bool{}
	pl.ledger.Members(g, 0, func(n cluster.NodeID) { near[t.DomainOf(n, tree.gather.level)] = true })
	chosen, best := cluster.DomainID(cluster.None), [4]int{}
	for _, d := range tree.domains(tree.gather.level) {
		if tried[d] {
			continue
		}
		least, takes := ledger.ManyPods, true // of the kind that has fewest places
		for _, k := range kinds {
			n := pl.rankingIn(k.Class, tree.order).places[d]
			least, takes = min(least, n), takes && n >= k.Count
		}
		if least == 0 || all && !takes {
			continue
		}
		score := [4]int{1, 0, least}
		if takes {
			score[0], score[2] = 2, -least
		}
		if near[d] {
			score[1] = 1
		}
		if chosen == cluster.None || slices.Compare(score[:], best[:]) > 0 {
			chosen, best = d, score
		}
	}
	return chosen
}

// hopeless returns why the gang cannot be placed whatever is tried: some constraint group for which there is no place even alone.
func (tr *trial) hopeless(g *ledger.GangState, c *constraintGroup, seen map[string]bool) *recorder.Diagnosis {
	key := tr.kindsKey(g, c)
	if !seen[key] {
		seen[key] = true
		_, v := tr.narrow(g, c, tr.everywhere())
		if !v.Yes() && !v.Reason.Room() {
			return tr.noPlace(g, c, v, tr.everywhere())
		}
		for _, k := range c.kinds {
			if room := tr.ranking(k.Class).room; room < k.Count {
				return tr.noRoom(tr.firstOf(c.pods, k.Class), room, len(c.pods), tr.everywhere())
			}
		}
		if !v.Yes() {
			return tr.noPlace(g, c, v, tr.everywhere())
		}
	}
	for _, kid := range c.kids {
		if d := tr.hopeless(g, kid, seen); d != nil {
			return d
		}
	}
	return nil
}

func (pl *Placer) firstOf(pods []cluster.PodID, c *cluster.Class) *cluster.Pod {
	for _, id := range pods {
		if p := pl.snap.Pod(id); p.Class == c {
			return p
		}
	}
	return nil
}

// CheckNear says whether the constraints of the gang that these pods have to meet can be understood, room apart: O(pods).
func (pl *Placer) CheckNear(g *ledger.GangState, pods []cluster.PodID) policy.Verdict {
	if !pl.Constrained(g) {
		return policy.Verdict{}
	}
	c := pl.constraintGroupsOf(g, pods)
	if c.near == nil {
		v := pl.checkNear(g, c, cluster.Constraint{})
		c.near = &v
	}
	return *c.near
}

// checkNear asks about a constraint group's constraint, unless it is one that is known to be understood, and those below.
func (pl *Placer) checkNear(g *ledger.GangState, c *constraintGroup, known cluster.Constraint) policy.Verdict {
	near := g.Sets[c.set].Near
	if near != (cluster.Constraint{}) && near != known {
		if v := policy.FirstNo(pl.points.NodeSets, func(p policy.NodeSets) policy.Verdict { return p.CheckNear(near) }); !v.Yes() {
			return v
		}
	}
	for _, kid := range c.kids {
		if v := pl.checkNear(g, kid, known); !v.Yes() {
			return v
		}
		known = g.Sets[kid.set].Near
	}
	return policy.Verdict{}
}

// quietly is hopeless for who does not ask what each node says.
func (pl *Placer) quietly(g *ledger.GangState, pods []cluster.PodID) *recorder.Diagnosis {
	tr := trial{Placer: pl, mode: onRelease}
	return tr.hopeless(g, pl.constraintGroupsOf(g, pods), map[string]bool{})
}

// kindsKey names what a constraint group asks for; constraint groups with members ask for where those are.
func (pl *Placer) kindsKey(g *ledger.GangState, c *constraintGroup) string {
	if c.asks == "" {
		near := g.Sets[c.set].Near
		key := append([]byte(nil), near.Topology+"\x00"+near.Required+"\x00"+near.Preferred...)
		for _, k := range c.kinds {
			key = strconv.AppendUint(append(key, 0), k.Class.ID, 36)
			key = strconv.AppendInt(append(key, '*'), int64(k.Count), 36)
		}
		c.asks = string(key)
	}
	key := c.asks
	pl.ledger.Members(g, c.set, func(cluster.NodeID) { key += "m" })
	return key
}

// placeGang places the pods of a gang in their own order; final says that no other arrangement can help.
func (tr *trial) placeGang(g *ledger.GangState, pods []cluster.PodID) (d *recorder.Diagnosis, final bool) {
	if !tr.Constrained(g) {
		return tr.placeAll(pods, tr.everywhere()), false
	}
	root := tr.constraintGroupsOf(g, pods)
	if d := tr.hopeless(g, root, map[string]bool{}); d != nil {
		return d, true
	}
	return tr.placeConstraintGroup(g, root, tr.everywhere()), false
}

// kinds counts pods by class.
func (pl *Placer) kinds(pods []cluster.PodID) []policy.Kind {
	var out []policy.Kind
	for _, id := range pods {
		c := pl.snap.Pod(id).Class
		if n := len(out); n > 0 && out[n-1].Class == c {
			out[n-1].Count++
			continue
		}
		if i := slices.IndexFunc(out, func(k policy.Kind) bool { return k.Class == c }); i >= 0 {
			out[i].Count++
			continue
		}
		out = append(out, policy.Kind{Class: c, Count: 1})
	}
	return out
}

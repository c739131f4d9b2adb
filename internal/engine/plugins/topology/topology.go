// Package topology keeps the pods of a gang, and of each set of it, near each other: in one domain of a required level, and
// of a preferred one if that is possible.
package topology

import (
	"cmp"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "topology"

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Opens(func(v *policy.View) *instance { return &instance{v} },
	ReasonTopologyNoRoom, ReasonTopologyMissing, ReasonTopologyLevel, ReasonNotInTopology, ReasonNotInDomain,
)

type instance struct{ view *policy.View }

// question is one set's demand, resolved.
type question struct {
	*policy.SetQuery
	view      *policy.View
	t         *cluster.Topology
	top       cluster.DomainID
	required  int // level; -1 for none
	preferred int
	places    [][]int // per kind of pods, by domain
	members   map[cluster.DomainID]int
	kept      int // members that are in a domain of the required level
}

// NodeSets implements policy.NodeSets: the domains that have room, those of the preferred level first, then wider ones up to
// the required level, or, without one, up to everything. Of one level, those come first in which the set has members, then
// those that it fills best, widest level first, so that what is free stays in one piece; where the gang's face has scores of its own,
// those of the largest come before. Pods that cannot all be in one
// domain of the preferred level gather in few.
//
// Members of a set that has a required level keep it where they are.
func (i *instance) NodeSets(sq *policy.SetQuery) ([]policy.NodeSet, policy.Verdict) {
	c := sq.Near
	if c.Topology == "" || len(sq.Pods) == 0 {
		return nil, policy.Verdict{}
	}
	q := &question{SetQuery: sq, view: i.view, t: i.view.Snapshot().Topology(c.Topology)}
	if v := q.resolve(c); !v.Yes() {
		return nil, v
	}
	q.top = sq.Within.Top(q.t)
	for _, k := range sq.Pods {
		q.places = append(q.places, sq.Within.Places(q.t, k.Class))
	}
	q.members = map[cluster.DomainID]int{}
	i.view.Members(sq.Gang, sq.Set, func(n cluster.NodeID) {
		d := q.t.Narrowest(n)
		if q.required >= 0 && q.t.Above(d, q.required) != cluster.None {
			q.kept++
		}
		for ; d != cluster.None; d = q.t.Domain(d).Parent {
			q.members[d]++
		}
	})
	return q.candidates()
}

// CheckNear implements policy.NodeSets.
func (i *instance) CheckNear(c cluster.Constraint) policy.Verdict {
	if c.Topology == "" {
		return policy.Verdict{}
	}
	q := question{t: i.view.Snapshot().Topology(c.Topology)}
	return q.resolve(c)
}

// LeftOut implements policy.NodeSets: nodes that lack a label of a level are in no domain. The first label that is lacking is named. Of a declared
// topology those are left out that are in no domain of the required level.
func (i *instance) LeftOut(c cluster.Constraint, n *cluster.Node) policy.Verdict {
	t := i.view.Snapshot().Topology(c.Topology)
	if t == nil || c.Required == "" {
		return policy.Verdict{}
	}
	if t.Declared != nil {
		if level, ok := t.LevelByName(c.Required); ok && t.DomainOf(n.ID, level) == cluster.None {
			return policy.Verdict{Code: policy.No, Reason: ReasonNotInDomain, Object: t.Name, Detail: c.Required}
		}
		return policy.Verdict{}
	}
	if t.Narrowest(n.ID) != cluster.None {
		return policy.Verdict{}
	}
	v := policy.Verdict{Code: policy.No, Reason: ReasonNotInTopology, Object: t.Name}
	for _, l := range t.Levels {
		if _, ok := n.Labels[l.Label]; !ok {
			v.Detail = l.Label
			break
		}
	}
	return v
}

// resolve finds the levels by name.
func (q *question) resolve(c cluster.Constraint) policy.Verdict {
	if q.t == nil {
		return policy.Verdict{Code: policy.No, Reason: ReasonTopologyMissing, Object: c.Topology}
	}
	wrong := func(what string) policy.Verdict {
		names := make([]string, len(q.t.Levels))
		for i, l := range q.t.Levels {
			names[i] = l.Name()
		}
		return policy.Verdict{
			Code: policy.No, Reason: ReasonTopologyLevel, Object: c.Topology,
			Detail: what + "; its levels are " + strings.Join(names, ", "),
		}
	}
	q.required, q.preferred = cluster.None, cluster.None
	for _, l := range [...]struct {
		name string
		at   *int
	}{{c.Required, &q.required}, {c.Preferred, &q.preferred}} {
		if l.name == "" {
			continue
		}
		i, ok := q.t.LevelByName(l.name)
		if !ok {
			return wrong(`has no level "` + l.name + `"`)
		}
		*l.at = i
	}
	if q.required < 0 && q.preferred < 0 {
		return wrong("is named without a level, required or preferred")
	}
	return policy.Verdict{}
}

// candidates lists the domains, best first.
func (q *question) candidates() ([]policy.NodeSet, policy.Verdict) {
	top := q.t.Domain(q.top).Level
	base := max(q.required, top) // of this level, or narrower, it has to be
	narrowest := max(q.preferred, base)
	byLevel := make([][]cluster.DomainID, len(q.t.Levels)+1)
	var walk func(d cluster.DomainID)
	walk = func(d cluster.DomainID) {
		level := q.t.Domain(d).Level
		if !q.fits(d) || level == base && !q.holdsMembers(d) {
			return
		}
		if level >= base {
			byLevel[level+1] = append(byLevel[level+1], d)
		}
		if level < narrowest {
			for _, c := range q.sorted(q.t.Domain(d).Children) {
				walk(c)
			}
		}
	}
	walk(q.top)
	var out []policy.NodeSet
	scores := q.view.DomainScores(q.Gang.Key.Face)
	for _, domains := range slices.Backward(byLevel) {
		slices.SortStableFunc(domains, func(a, b cluster.DomainID) int { return q.members[b] - q.members[a] })
		if len(scores) > 0 && len(domains) > 1 {
			q.rank(domains, scores)
		}
		for _, d := range domains {
			out = append(out, policy.NodeSet{Topology: q.t, Domain: d, Gather: q.preferred})
		}
	}
	switch {
	case q.required < 0: // a mere wish keeps nobody from nodes that belong to no domain
		return append(out, policy.NodeSet{Topology: q.t, Domain: cluster.None, Gather: q.preferred}), policy.Verdict{}
	case len(out) == 0:
		return nil, q.noRoom(base)
	}
	return out, policy.Verdict{}
}

// rank puts domains in the order of their scores, by a face's own plugins.
func (q *question) rank(domains []cluster.DomainID, by []policy.DomainScore) {
	scores := make(map[cluster.DomainID]int64, len(domains))
	for _, d := range domains {
		for _, p := range by {
			scores[d] += p.ScoreDomain(q.SetQuery, q.t, d)
		}
	}
	slices.SortStableFunc(domains, func(a, b cluster.DomainID) int { return cmp.Compare(scores[b], scores[a]) })
}

// holdsMembers says whether a set that has members of its own, and must be together, may go to a domain.
func (q *question) holdsMembers(d cluster.DomainID) bool {
	return q.required < 0 || q.kept == 0 || q.members[q.t.Above(d, q.required)] > 0
}

// fits says whether a domain has places for each kind of pods.
func (q *question) fits(d cluster.DomainID) bool {
	for i, k := range q.Pods {
		if q.places[i][d] < k.Count {
			return false
		}
	}
	return true
}

// sorted returns sibling domains, those that the pods fill best first: where the largest part of what is there is asked for.
func (q *question) sorted(domains []cluster.DomainID) []cluster.DomainID {
	out := slices.Clone(domains)
	slices.SortStableFunc(out, func(a, b cluster.DomainID) int {
		an, ad := q.filling(a)
		bn, bd := q.filling(b)
		return int(bn*ad - an*bd)
	})
	return out
}

// filling is the largest part, over the kinds, of a domain's places that is asked for, as a fraction.
func (q *question) filling(d cluster.DomainID) (n, of int64) {
	n, of = 0, 1
	for i, k := range q.Pods {
		have := int64(q.places[i][d])
		if have == 0 {
			return 1, 0
		}
		if int64(k.Count)*of > n*have {
			n, of = int64(k.Count), have
		}
	}
	return n, of
}

// noRoom says which domain of the level at which the set must be together comes closest.
func (q *question) noRoom(level int) policy.Verdict {
	v := policy.Verdict{Code: policy.No, Reason: ReasonTopologyNoRoom, Object: q.t.Levels[q.required].Name() + " of topology " + q.t.Name}
	if name := q.Gang.Sets[q.Set].Name; name != "" && name != cluster.DefaultSet {
		v.Object += " (set " + name + ")"
	}
	for _, k := range q.Pods {
		v.Need += int64(k.Count)
	}
	var walk func(d cluster.DomainID)
	walk = func(d cluster.DomainID) {
		if dom := q.t.Domain(d); dom.Level < level {
			for _, c := range dom.Children {
				walk(c)
			}
			return
		}
		if !q.holdsMembers(d) {
			return
		}
		n := int64(0)
		for i, k := range q.Pods {
			n += int64(min(k.Count, q.places[i][d]))
		}
		if n > v.Have {
			v.Have, v.Detail = n, q.t.Path(d)
		}
	}
	walk(q.top)
	return v
}

package kueue

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// part is one resource in one flavor: what Kueue counts.
type part struct{ flavor, resource string }

// node is a ClusterQueue or a Cohort in the tree of borrowing.
type node struct {
	about    string // how it is named in notes
	name     string // of its Queue
	queue    *ClusterQueue
	parent   *node
	children []*node
	weight   *Amount

	nominal            map[part]resource.Quantity
	borrowing, lending map[part]resource.Quantity // absent: no bound

	total, shared, extra map[part]resource.Quantity
}

// maxLoop bounds how many names of a loop are told.
const maxLoop = 8

// plant makes the trees of cohorts, and returns their tops and all nodes, parents before what is below them, each by the order in which it
// was read. What is wrong with names, parents and numbers is refused; a tree with a loop is left out.
func (p *planner) plant() (all []*node) {
	cohorts, queues := map[string]*node{}, map[string]*node{}
	var order []*node
	parents := map[*node]string{}
	for i := range p.in.Cohorts {
		c := &p.in.Cohorts[i]
		about := called("Cohort", "", c.Name)
		if cohorts[c.Name] != nil {
			p.refuse(about, "metadata.name", "a second one of that name was read", "leave one out")
			continue
		}
		n := &node{about: about, name: p.options.CohortPrefix + c.Name}
		if c.Spec.FairSharing != nil {
			n.weight = c.Spec.FairSharing.Weight
		}
		parents[n] = p.either(about, "spec.parent", c.Spec.Parent, "spec.parentName", c.Spec.ParentName)
		p.quotas(n, c.Spec.ResourceGroups, parents[n] != "", "spec.parentName")
		cohorts[c.Name] = n
		order = append(order, n)
	}
	for i := range p.in.ClusterQueues {
		q := &p.in.ClusterQueues[i]
		about := called("ClusterQueue", "", q.Name)
		if queues[q.Name] != nil {
			p.refuse(about, "metadata.name", "a second one of that name was read", "leave one out")
			continue
		}
		n := &node{about: about, name: q.Name, queue: q}
		if q.Spec.FairSharing != nil {
			n.weight = q.Spec.FairSharing.Weight
		}
		parents[n] = p.either(about, "spec.cohort", q.Spec.Cohort, "spec.cohortName", q.Spec.CohortName)
		p.quotas(n, q.Spec.ResourceGroups, parents[n] != "", "spec.cohortName")
		queues[q.Name] = n
		order = append(order, n)
	}
	for _, n := range slices.Clone(order) {
		name := parents[n]
		if name == "" {
			continue
		}
		parent := cohorts[name]
		if parent == nil {
			parent = &node{about: called("Cohort", "", name), name: p.options.CohortPrefix + name} // it does not exist: it has no quota and no parent
			cohorts[name] = parent
			order = append(order, parent)
		}
		n.parent = parent
		parent.children = append(parent.children, n)
	}
	p.loops(order)
	taken := map[string]*node{}
	for _, n := range order {
		p.name(n, taken)
		if n.parent == nil {
			all = append(all, n)
		}
	}
	for i := 0; i < len(all); i++ { // breadth first: it grows as it is walked
		all = append(all, all[i].children...)
	}
	return all
}

// either is the value of a field that has another name in each version.
func (p *planner) either(about, oldField, old, newField, now string) string {
	if old != "" && now != "" && old != now {
		p.refuse(about, newField, fmt.Sprintf("is %s, and %s is %s; they are one field", brief(now), oldField, brief(old)), "leave one out")
	}
	if now != "" {
		return now
	}
	return old
}

// loops refuses each loop of cohorts once.
func (p *planner) loops(order []*node) {
	done := map[*node]int{} // the walk that came by
	for walk, n := range order {
		at := n
		for at != nil && done[at] == 0 {
			done[at] = walk + 1
			at = at.parent
		}
		if at == nil || done[at] != walk+1 {
			continue
		}
		names := []string{}
		for here := at.parent; ; here = here.parent {
			if len(names) < maxLoop {
				names = append(names, brief(here.name))
			}
			if here == at {
				break
			}
		}
		p.refuse(at.about, "spec.parentName", "the cohorts form a loop: "+strings.Join(append([]string{brief(at.name)}, names...), " → "), "take one parent out; Kueue admits nothing in such a tree either")
	}
}

// labelValue is what the value of a label may be, which is how work names its queue; and what the name of an object may be.
var labelValue = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// maxName is the longest value of a label, by which work names its queue.
const maxName = 63

func (p *planner) name(n *node, taken map[string]*node) {
	switch other := taken[n.name]; {
	case other != nil:
		p.refuse(n.about, "metadata.name", fmt.Sprintf("a Queue %s is made of %s already", brief(n.name), other.about), "--cohort-prefix gives Queues of cohorts other names")
		return
	case len(n.name) > maxName:
		p.refuse(n.about, "metadata.name", fmt.Sprintf("has %d characters as a Queue; work names its queue by a label, whose value has at most %d", len(n.name), maxName), "make one with a shorter name, and move the LocalQueues to it")
	case !labelValue.MatchString(n.name):
		p.refuse(n.about, "metadata.name", "is no name of an object as a Queue: small letters, digits, hyphens and dots", "")
	}
	taken[n.name] = n
}

// shape is how quantities are written, with exponents that no number of a cluster has left out.
var shape = regexp.MustCompile(`^[+-]?[0-9.]{1,40}(([numkMGTPE]|[KMGTPE]i)|[eE][+-]?[0-9]{1,2})?$`)

// quantity parses an amount; false if it was refused.
func (p *planner) quantity(about, field string, a Amount) (q resource.Quantity, ok bool) {
	if a == "" {
		p.refuse(about, field, "is missing", "")
		return q, false
	}
	var err error
	if !shape.MatchString(string(a)) {
		err = resource.ErrFormatWrong
	} else {
		q, err = resource.ParseQuantity(string(a))
	}
	switch {
	case err != nil:
		p.refuse(about, field, fmt.Sprintf("is %q; it must be a quantity, such as 8, 500m or 64Gi", brief(string(a))), "")
	case q.Sign() < 0:
		p.refuse(about, field, fmt.Sprintf("is %s; it must not be negative", brief(string(a))), "")
	default:
		return q, true
	}
	return resource.Quantity{}, false
}

// quotas reads the numbers of resource groups. Each flavor and each resource may be in one group.
func (p *planner) quotas(n *node, groups []ResourceGroup, hasParent bool, parentField string) {
	n.nominal, n.borrowing, n.lending = map[part]resource.Quantity{}, map[part]resource.Quantity{}, map[part]resource.Quantity{}
	for g := range groups {
		for f := range groups[g].Flavors {
			flavor := &groups[g].Flavors[f]
			for r := range flavor.Resources {
				quota := &flavor.Resources[r]
				at := fmt.Sprintf("spec.resourceGroups[%d].flavors[%d].resources[%d].", g, f, r)
				key := part{flavor.Name, quota.Name}
				switch _, twice := n.nominal[key]; {
				case flavor.Name == "":
					p.refuse(n.about, fmt.Sprintf("spec.resourceGroups[%d].flavors[%d].name", g, f), "is missing", "")
				case quota.Name == "":
					p.refuse(n.about, at+"name", "is missing", "")
				case twice:
					p.refuse(n.about, at+"name", fmt.Sprintf("%s has two quotas in the flavor %s", brief(quota.Name), brief(flavor.Name)), "leave one out")
				}
				if x, ok := p.quantity(n.about, at+"nominalQuota", quota.NominalQuota); ok {
					n.nominal[key] = x
				}
				for _, bound := range []struct {
					field string
					value *Amount
					into  map[part]resource.Quantity
				}{{"borrowingLimit", quota.BorrowingLimit, n.borrowing}, {"lendingLimit", quota.LendingLimit, n.lending}} {
					if bound.value == nil {
						continue
					}
					if !hasParent {
						p.refuse(n.about, at+bound.field, "is set, and "+parentField+" is not: there is nobody to borrow from, or lend to", "leave it out, as Kueue's webhook demands")
					} else if x, ok := p.quantity(n.about, at+bound.field, *bound.value); ok {
						bound.into[key] = x
					}
				}
			}
		}
	}
}

// sum works out the numbers of all nodes, which come parents first. For x = T of KEP-79 with nobody holding anything:
//
//	total(n)  = nominal(n) + Σ total(child)
//	shared(n) = nominal(n) + Σ lend(child)           what is there for who is below n
//	lend(n)   = min(shared(n), lendingLimit(n))
//	extra(n)  = min(borrowingLimit(n), shared(parent) − lend(n) + extra(parent)); 0 at the top
//
// total(n) + extra(n) is the most that n and all below it can hold together.
func sum(all []*node) {
	for _, n := range slices.Backward(all) {
		n.total, n.shared = maps.Clone(n.nominal), maps.Clone(n.nominal)
		if n.total == nil {
			n.total, n.shared = map[part]resource.Quantity{}, map[part]resource.Quantity{}
		}
		for _, c := range n.children {
			for key, x := range c.total {
				n.total[key] = plus(n.total[key], x)
				n.shared[key] = plus(n.shared[key], c.lend(key))
			}
		}
	}
	for _, n := range all {
		n.extra = map[part]resource.Quantity{}
		if n.parent == nil {
			continue
		}
		for key, x := range n.parent.shared {
			if _, defined := n.nominal[key]; n.queue != nil && !defined {
				continue // who does not name a flavor borrows nothing of it
			}
			extra := x.DeepCopy()
			extra.Sub(n.lend(key))
			extra = plus(extra, n.parent.extra[key])
			n.extra[key] = least(extra, n.borrowing, key)
		}
	}
}

func (n *node) lend(key part) resource.Quantity { return least(n.shared[key], n.lending, key) }

func least(x resource.Quantity, bounds map[part]resource.Quantity, key part) resource.Quantity {
	if b, ok := bounds[key]; ok && b.Cmp(x) < 0 {
		return b
	}
	return x
}

func plus(a, b resource.Quantity) resource.Quantity {
	c := a.DeepCopy()
	c.Add(b)
	return c
}

// of sums what m has of a resource over all flavors.
func of(m map[part]resource.Quantity, name string) (x resource.Quantity) {
	for key, v := range m { // order: a sum of exact numbers
		if key.resource == name {
			x.Add(v)
		}
	}
	return x
}

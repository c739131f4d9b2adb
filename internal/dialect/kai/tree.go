package kai

import (
	"fmt"
	"strings"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// broken is the tree of a gang whose own cannot be used: the root, under which there is no place for a pod.
func broken() []cluster.Set { return []cluster.Set{{Parent: cluster.None}} }

// tree turns the flat list of subgroups into a tree of sets: index 0 is the root, i+1 is spec.subGroups[i]. When the
// list is no tree, or asks for something that can never be, it returns a broken tree and the first rule it breaks.
func tree(spec *v2alpha2.PodGroupSpec) ([]cluster.Set, string) {
	if problem := minima("spec", spec.MinMember, spec.MinSubGroup); problem != "" {
		return broken(), problem
	}
	if len(spec.SubGroups) == 0 {
		return flat(spec)
	}
	if n := len(spec.SubGroups); n > cluster.MaxSets {
		return broken(), fmt.Sprintf("spec.subGroups has %d entries; at most %d are allowed", n, cluster.MaxSets)
	}
	sets := make([]cluster.Set, 1+len(spec.SubGroups))
	sets[0] = cluster.Set{Parent: cluster.None, Near: near(&spec.TopologyConstraint)}
	index := make(map[string]int32, len(spec.SubGroups))
	for i := range spec.SubGroups {
		sg := &spec.SubGroups[i]
		field := subGroup(i, sg)
		if sg.Name == "" {
			return broken(), field + ".name is empty; every subgroup needs a name"
		}
		if first, ok := index[sg.Name]; ok {
			return broken(), fmt.Sprintf("%s.name is that of spec.subGroups[%d] too; names must be unique", field, first-1)
		}
		if problem := minima(field, sg.MinMember, sg.MinSubGroup); problem != "" {
			return broken(), problem
		}
		index[sg.Name] = int32(i + 1)
		sets[i+1] = cluster.Set{Name: sg.Name, Leaf: true, Near: near(sg.TopologyConstraint)}
	}
	for i := range spec.SubGroups {
		sg := &spec.SubGroups[i]
		parent := int32(0)
		if sg.Parent != nil && *sg.Parent != "" {
			var ok bool
			if parent, ok = index[strings.ToLower(*sg.Parent)]; !ok {
				return broken(), fmt.Sprintf("%s.parent is %q, which is no subgroup of this PodGroup", subGroup(i, sg), core.Brief(*sg.Parent))
			}
		}
		sets[i+1].Parent = parent
		sets[parent].Children = append(sets[parent].Children, int32(i+1))
		sets[parent].Leaf = false
	}
	if i := cycle(sets); i > 0 {
		return broken(), fmt.Sprintf("%s.parent makes a cycle; following parents must lead to the top", subGroup(int(i-1), &spec.SubGroups[i-1]))
	}
	problem := ""
	if sets[0].Min, problem = needed("spec", spec.MinSubGroup, len(sets[0].Children)); problem != "" {
		return broken(), problem
	}
	for i := range spec.SubGroups {
		sg, set := &spec.SubGroups[i], &sets[i+1]
		if !set.Leaf {
			if set.Min, problem = needed(subGroup(i, sg), sg.MinSubGroup, len(set.Children)); problem != "" {
				return broken(), problem
			}
			continue
		}
		if sg.MinSubGroup != nil {
			return broken(), subGroup(i, sg) + ".minSubGroup is set, but no subgroup names it as parent; a leaf has a minMember"
		}
		if sg.MinMember != nil {
			set.Min = *sg.MinMember
		}
	}
	return sets, ""
}

// near reads a constraint; one without a topology asks nothing.
func near(t *v2alpha2.TopologyConstraint) cluster.Constraint {
	if t == nil || t.Topology == "" {
		return cluster.Constraint{}
	}
	return cluster.Constraint{Topology: queueName(t.Topology), Required: t.RequiredTopologyLevel, Preferred: t.PreferredTopologyLevel}
}

// flat is the tree of a PodGroup without subgroups: one default set, of which minSubGroup (1 unless given) are needed.
func flat(spec *v2alpha2.PodGroupSpec) ([]cluster.Set, string) {
	least := int32(1)
	if spec.MinMember != nil {
		least = *spec.MinMember
	}
	sets := cluster.FlatTree(least)
	sets[0].Near = near(&spec.TopologyConstraint)
	if n := spec.MinSubGroup; n != nil {
		if *n > 1 {
			return broken(), fmt.Sprintf("spec.minSubGroup is %d, but spec.subGroups is empty; so many can never be complete", *n)
		}
		sets[0].Min = *n
	}
	return sets, ""
}

// minima checks the two minimums of one node of the tree by themselves.
func minima(field string, member, sub *int32) string {
	switch {
	case member != nil && sub != nil:
		return field + " has both minMember and minSubGroup; only one is allowed"
	case member != nil && *member < 0:
		return fmt.Sprintf("%s.minMember is %d; it must not be negative", field, *member)
	case sub != nil && *sub < 0:
		return fmt.Sprintf("%s.minSubGroup is %d; it must not be negative", field, *sub)
	}
	return ""
}

// needed returns how many of its children an inner node needs: all of them unless it says less.
func needed(field string, sub *int32, children int) (int32, string) {
	if sub == nil {
		return int32(children), ""
	}
	if int(*sub) > children {
		return 0, fmt.Sprintf("%s.minSubGroup is %d, but it has %d direct subgroups; so many can never be complete", field, *sub, children)
	}
	return *sub, ""
}

// cycle returns the first set from which parents do not lead to the root; 0 for none. Each set is visited once.
func cycle(sets []cluster.Set) int32 {
	reached := make([]bool, len(sets))
	reached[0] = true
	todo := []int32{0}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, c := range sets[i].Children { // a set has one parent, so it is pushed at most once
			reached[c] = true
			todo = append(todo, c)
		}
	}
	for i := range reached {
		if !reached[i] {
			return int32(i)
		}
	}
	return 0
}

func subGroup(i int, sg *v2alpha2.SubGroup) string {
	return fmt.Sprintf("spec.subGroups[%d] (%q)", i, core.Brief(sg.Name))
}

package admission

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// ValidatePodGroup returns what is wrong with the tree of a PodGroup's subgroups, and what it asks for that can never be. old is
// what it replaces, nil for a creation: faults that it has already do not count again, and an inner subgroup with a minMember,
// as old installations have them, is only warned of.
//
// A list that is no tree is refused for that alone: its minimums mean nothing.
func ValidatePodGroup(pg, old *v2alpha2.PodGroup) (wrong field.ErrorList, warnings []string) {
	wrong, warnings = tree(&pg.Spec, old != nil)
	if old == nil {
		return wrong, warnings
	}
	before := map[string]bool{}
	was, _ := tree(&old.Spec, true)
	for _, e := range was {
		before[e.Error()] = true
	}
	return slices.DeleteFunc(wrong, func(e *field.Error) bool { return before[e.Error()] }), warnings
}

func tree(spec *v2alpha2.PodGroupSpec, update bool) (wrong field.ErrorList, warnings []string) {
	root := field.NewPath("spec")
	list := root.Child("subGroups")
	if n := len(spec.SubGroups); n > cluster.MaxSets {
		return field.ErrorList{field.TooMany(list, n, cluster.MaxSets)}, nil
	}
	index := make(map[string]int, len(spec.SubGroups))
	for i := range spec.SubGroups {
		name := spec.SubGroups[i].Name
		if _, doubled := index[name]; doubled {
			wrong = append(wrong, field.Duplicate(list.Index(i).Child("name"), brief(name)))
			continue
		}
		index[name] = i
	}
	children := make([]int, len(spec.SubGroups)) // how many each has
	parents := make([]int, len(spec.SubGroups))
	direct := 0
	for i := range spec.SubGroups {
		parent := spec.SubGroups[i].Parent
		parents[i] = -1
		if parent == nil || *parent == "" {
			direct++
			continue
		}
		p, found := index[*parent]
		if !found {
			wrong = append(wrong, field.NotFound(list.Index(i).Child("parent"), brief(*parent)))
			continue
		}
		parents[i] = p
		children[p]++
	}
	if len(wrong) == 0 {
		if i := circular(parents); i >= 0 {
			wrong = append(wrong, field.Invalid(list.Index(i).Child("parent"), brief(*spec.SubGroups[i].Parent), "makes a loop; following parents must lead to the top"))
		}
	}
	if len(wrong) > 0 {
		return wrong, nil
	}
	both := func(at *field.Path, member, sub *int32) {
		if member != nil && sub != nil {
			wrong = append(wrong, field.Forbidden(at.Child("minSubGroup"), "must not be set together with minMember"))
		}
	}
	most := func(at *field.Path, sub *int32, children int) {
		if sub != nil && int(*sub) > children {
			warnings = append(warnings, fmt.Sprintf("%s: %d exceeds the number of subgroups right below, %d; so many can never be complete", at.Child("minSubGroup"), *sub, children))
		}
	}
	both(root, spec.MinMember, spec.MinSubGroup)
	most(root, spec.MinSubGroup, direct)
	for i := range spec.SubGroups {
		sg, at := &spec.SubGroups[i], list.Index(i)
		both(at, sg.MinMember, sg.MinSubGroup)
		switch {
		case children[i] == 0 && sg.MinSubGroup != nil:
			wrong = append(wrong, field.Forbidden(at.Child("minSubGroup"), "is for subgroups that others name as parent; this one has pods and a minMember"))
		case children[i] == 0 && sg.MinMember == nil:
			wrong = append(wrong, field.Required(at.Child("minMember"), "a subgroup that no other names as parent has pods and needs a minimum of them, 0 for none"))
		case children[i] > 0 && sg.MinMember != nil && update:
			warnings = append(warnings, fmt.Sprintf("%s: has no effect on a subgroup that others name as parent; use minSubGroup", at.Child("minMember")))
		case children[i] > 0 && sg.MinMember != nil:
			wrong = append(wrong, field.Forbidden(at.Child("minMember"), "is for subgroups with pods of their own; this one has subgroups below it, use minSubGroup"))
		}
		if children[i] > 0 {
			most(at, sg.MinSubGroup, children[i])
		}
	}
	const enough = 16 // warnings: the API server drops what is too much
	if len(warnings) > enough {
		warnings = append(warnings[:enough], fmt.Sprintf("and %d more", len(warnings)-enough))
	}
	return wrong, warnings
}

// circular is the first index from which parents do not lead to the top; -1 for none. Each is walked once.
func circular(parents []int) int {
	const unknown, walking, good = 0, 1, 2
	state := make([]int, len(parents))
	for i := range parents {
		var path []int
		at := i
		for at >= 0 && state[at] == unknown {
			state[at] = walking
			path = append(path, at)
			at = parents[at]
		}
		if at >= 0 && state[at] == walking {
			return i
		}
		for _, p := range path {
			state[p] = good
		}
	}
	return -1
}

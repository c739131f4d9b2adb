package workload

import (
	"math"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// tree is the shape of a gang.
type tree struct {
	// minimum is the number of pods that must be placed together.
	minimum int32
	// minSubGroup, if set, is the number of subgroups that must be complete, and is written in the minimum's place.
	minSubGroup *int32
	subGroups   []v2alpha2.SubGroup
	members     Members
	// constraint, if set, replaces that of the annotations.
	constraint *v2alpha2.TopologyConstraint
	// name, if set, is the group's.
	name string
}

// tree derives the shape by whichever way the rule has.
func (h *hints) tree(rule *Rule, definition *Definition) (*tree, error) {
	switch {
	case definition != nil:
		return h.defined(definition)
	case rule.tree != nil:
		return rule.tree(h)
	}
	minimum, err := h.minimum(rule)
	if err != nil {
		return nil, err
	}
	out := &tree{minimum: minimum}
	if rule.Parts != nil {
		out.subGroups, out.members, err = h.parts(rule.Parts, minimum)
	}
	return out, err
}

// leaf is a subgroup with pods.
func leaf(name string, minimum int32, parent string) v2alpha2.SubGroup {
	s := v2alpha2.SubGroup{Name: name, MinMember: &minimum}
	if parent != "" {
		s.Parent = &parent
	}
	return s
}

// inner is a subgroup of subgroups.
func inner(name string, minimum int32) v2alpha2.SubGroup {
	return v2alpha2.SubGroup{Name: name, MinSubGroup: &minimum}
}

// listAt reads a list of objects. What is no object is refused.
func (h *hints) listAt(path string) ([]map[string]any, error) {
	value, found, ok := lookup(h.facts.Content, path)
	if ok && !found {
		return nil, nil
	}
	list, isList := value.([]any)
	if !isList {
		return nil, invalidField(h.facts, path, "must be a list, is %s", shown(value))
	}
	out := make([]map[string]any, 0, len(list))
	for i, e := range list {
		m, isMap := e.(map[string]any)
		if !isMap {
			return nil, invalidField(h.facts, indexed(path, i, ""), "must be an object, is %s", shown(e))
		}
		out = append(out, m)
	}
	return out, nil
}

// number reads an integer of at least low from an element of a list; absent gives otherwise.
func (h *hints) number(m map[string]any, at, field string, low int64, otherwise int32) (int32, error) {
	value, found, ok := lookup(m, field)
	if !ok {
		return 0, invalidField(h.facts, at+field, "a step of this path is not an object")
	}
	if !found {
		return otherwise, nil
	}
	return inRange(h.facts, at+field, value, low)
}

// textAt reads a string from decoded JSON, "" where there is none.
func textAt(m map[string]any, path string) string {
	value, _, _ := lookup(m, path)
	s, _ := value.(string)
	return s
}

// constrained reads a subgroup's topology constraint from annotations; nil where they ask for none.
func (h *hints) constrained(required, preferred string, from ...map[string]string) *v2alpha2.TopologyConstraint {
	c := topology(required, preferred, from...)
	h.warnTopology(c, required, preferred)
	if c.RequiredTopologyLevel == "" && c.PreferredTopologyLevel == "" {
		return nil
	}
	return &c
}

// templateTopology is the constraint that a part's own template asks for; the name of the Topology may be the workload's.
func (h *hints) templateTopology(annotations ...map[string]string) *v2alpha2.TopologyConstraint {
	own := topology(keys.TopologyRequiredAnnotation, keys.TopologyPreferredAnnotation, annotations...)
	if own.RequiredTopologyLevel == "" && own.PreferredTopologyLevel == "" {
		return nil
	}
	if own.Topology == "" {
		own.Topology = h.subject.Annotations[keys.TopologyAnnotation]
	}
	h.warnTopology(own, keys.TopologyRequiredAnnotation, keys.TopologyPreferredAnnotation)
	return &own
}

// sum adds numbers of pods and refuses what no PodGroup can hold.
func (h *hints) sum(field string, numbers ...int64) (int32, error) {
	total := int64(0)
	for _, n := range numbers {
		if total += n; n > math.MaxInt32 || total > math.MaxInt32 {
			return 0, invalidField(h.facts, field, "must add up to at most %d pods", math.MaxInt32)
		}
	}
	return int32(total), nil
}

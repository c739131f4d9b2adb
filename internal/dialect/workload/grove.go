package workload

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// grovePodClique is the label with the name of the pod's PodClique, after which the PodGang names its part.
const grovePodClique = "grove.io/podclique"

// podGangTree follows a Grove PodGang: a leaf for each of its pod groups, below a subgroup for each group of them that has a
// topology constraint of its own.
func podGangTree(h *hints) (*tree, error) {
	const list, above = "spec.podgroups", "spec.topologyConstraintGroupConfigs"
	named := h.subject.Annotations[keys.GroveTopologyAnnotation]
	if named == "" {
		named = h.subject.Annotations[keys.TopologyAnnotation]
	}
	groups, err := h.listAt(list)
	if err != nil {
		return nil, err
	}
	configs, err := h.listAt(above)
	if err != nil {
		return nil, err
	}
	out := &tree{constraint: h.packed(named, h.facts.Content, "spec.")}
	parents := map[string]string{}
	for i, c := range configs {
		at := indexed(above, i, ".")
		name := textAt(c, "name")
		names, _ := c["podGroupNames"].([]any)
		if name == "" || len(names) == 0 {
			return nil, invalidField(h.facts, at+"podGroupNames", "must have a name and name at least 1 pod group")
		}
		for _, n := range names {
			s, _ := n.(string)
			if parents[s] != "" {
				return nil, invalidField(h.facts, at+"podGroupNames", "must name groups that no other does, %q is in %s too", s, parents[s])
			}
			parents[s] = name
		}
		s := inner(name, int32(len(names)))
		s.TopologyConstraint = h.packed(named, c, at)
		out.subGroups = append(out.subGroups, s)
	}
	parts, refs, counts := map[string]bool{}, map[string]string{}, []int64{0}
	for i, g := range groups {
		at := indexed(list, i, ".")
		name := textAt(g, "name")
		if name == "" {
			return nil, invalidField(h.facts, at+"name", "must be there")
		}
		n, err := h.number(g, at, "minReplicas", 1, 0)
		if err == nil && n == 0 {
			err = invalidField(h.facts, at+"minReplicas", "must be an integer of at least 1, is absent")
		}
		if err != nil {
			return nil, err
		}
		parts[name] = true
		counts = append(counts, int64(n))
		s := leaf(name, n, parents[name])
		s.TopologyConstraint = h.packed(named, g, at)
		out.subGroups = append(out.subGroups, s)
		list, _ := g["podReferences"].([]any)
		for _, r := range list {
			ref, _ := r.(map[string]any)
			if pod := textAt(ref, "name"); pod != "" && textAt(ref, "namespace") == h.pod.Namespace {
				refs[pod] = name
			}
		}
	}
	for _, name := range sortedKeys(parents) {
		if !parts[name] {
			return nil, invalidField(h.facts, above, "must name pod groups of this object, %q is none", name)
		}
	}
	out.members = Members{place: func(pod *corev1.Pod) (string, error) {
		// The label is there from the first moment; the references are filled in later.
		if name := pod.Labels[grovePodClique]; parts[name] {
			return name, nil
		}
		if name, ok := refs[pod.Name]; ok {
			return name, nil
		}
		self := FromPod(pod)
		return "", invalidField(&self, "label "+grovePodClique, "must name one of the gang's pod groups (%s), is %q", some(sortedKeys(parts)), pod.Labels[grovePodClique])
	}}
	out.minimum, err = h.sum(list, counts...)
	return out, err
}

// packed is the topology constraint of a part of a PodGang; nil where it has none.
func (h *hints) packed(named string, m map[string]any, at string) *v2alpha2.TopologyConstraint {
	path := "topologyConstraint.packConstraint."
	if at == "spec." {
		path = at + path
	}
	c := &v2alpha2.TopologyConstraint{
		Topology:               named,
		RequiredTopologyLevel:  textAt(m, path+"required"),
		PreferredTopologyLevel: textAt(m, path+"preferred"),
	}
	if c.RequiredTopologyLevel == "" && c.PreferredTopologyLevel == "" {
		return nil
	}
	if named == "" {
		h.warn(h.facts, at+"topologyConstraint", "has no effect without annotation %s", keys.GroveTopologyAnnotation)
	}
	return c
}

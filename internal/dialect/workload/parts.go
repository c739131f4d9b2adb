package workload

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// MaxSegments is the largest number of segments that a gang may be cut into.
const MaxSegments = 10000

// Members says which subgroup the pods of one gang are in. The zero value is that of a gang without subgroups. It is a
// small value that stays true until the workload changes.
type Members struct {
	// place, if set, decides alone.
	place func(pod *corev1.Pod) (string, error)

	parts []string
	label string
	// Segments of the part that is cut, if any.
	cut        string
	indexLabel string
	size       int32
	segments   int32
}

// SubGroup returns the name of the pod's subgroup, "" for a gang without subgroups. The error is an *Invalid and blames the
// pod's labels.
func (m Members) SubGroup(pod *corev1.Pod) (string, error) {
	if m.place != nil {
		return m.place(pod)
	}
	if len(m.parts) == 0 {
		return "", nil
	}
	part := strings.ToLower(pod.Labels[m.label])
	self := FromPod(pod)
	if !slices.Contains(m.parts, part) {
		return "", invalidField(&self, "label "+m.label, "must name one of the workload's replica types (%s), is %q",
			strings.Join(m.parts, ", "), pod.Labels[m.label])
	}
	if part != m.cut {
		return part, nil
	}
	value := pod.Labels[m.indexLabel]
	index, err := strconv.ParseInt(value, 10, 32)
	if err != nil || index < 0 {
		return "", invalidField(&self, "label "+m.indexLabel, "must be an integer of at least 0, is %q", value)
	}
	segment := int32(index) / m.size
	if segment >= m.segments {
		return "", invalidField(&self, "label "+m.indexLabel, "must be less than %d, the workload's replicas of type %s, is %d",
			int64(m.segments)*int64(m.size), part, index)
	}
	return segmentName(part, segment), nil
}

func segmentName(part string, i int32) string { return part + "-" + strconv.Itoa(int(i)) }

// part is one replica type that the workload lists.
type part struct {
	name     string
	path     string
	spec     map[string]any
	replicas int32
}

// byLabel places pods by the value of a label, which must be one of the given names.
func byLabel(label string, names map[string]string) Members {
	return Members{place: func(pod *corev1.Pod) (string, error) {
		if name, ok := names[pod.Labels[label]]; ok {
			return name, nil
		}
		self := FromPod(pod)
		return "", invalidField(&self, "label "+label, "must name one of the workload's parts (%s), is %q",
			some(sortedKeys(names)), pod.Labels[label])
	}}
}

// some lists names for a message, not too many.
func some(names []string) string {
	const most = 8
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// parts derives the subgroups of a gang with the given minimum.
func (h *hints) parts(rule *Parts, minimum int32) ([]v2alpha2.SubGroup, Members, error) {
	listed, err := h.listed(rule)
	if err != nil || len(listed) == 0 {
		return nil, Members{}, err
	}
	members := Members{label: rule.Label}
	var out []v2alpha2.SubGroup
	left := minimum
	for _, p := range listed {
		if p.name != rule.Rest {
			left = max(0, left-p.replicas)
		}
	}
	for _, p := range listed {
		members.parts = append(members.parts, p.name)
		if p.name != rule.Rest {
			n := p.replicas
			out = append(out, v2alpha2.SubGroup{Name: p.name, MinMember: &n})
			continue
		}
		size, err := h.segmentSize(rule, p)
		if err != nil {
			return nil, Members{}, err
		}
		if size == 0 {
			n := left
			out = append(out, v2alpha2.SubGroup{Name: p.name, MinMember: &n})
			continue
		}
		members.cut, members.indexLabel, members.size = p.name, rule.IndexLabel, size
		segments, err := h.segments(rule, p, size, left)
		if err != nil {
			return nil, Members{}, err
		}
		members.segments = int32(len(segments) - 1)
		out = append(out, segments...)
	}
	return out, members, nil
}

// listed finds the rule's parts in the workload, in the rule's order. The replicas of the Rest part are read only where
// they are needed, since elastic workloads may leave them open.
func (h *hints) listed(rule *Parts) ([]part, error) {
	value, found, ok := lookup(h.facts.Content, rule.Path)
	specs, isMap := value.(map[string]any)
	if !ok || found && !isMap {
		return nil, invalidField(h.subject, rule.Path, "must be an object, is %s", shown(value))
	}
	var out []part
	for _, name := range rule.Names {
		for _, key := range sortedKeys(specs) {
			if strings.ToLower(key) != name {
				continue
			}
			p := part{name: name, path: rule.Path + "." + key}
			p.spec, _ = specs[key].(map[string]any)
			if name != rule.Rest {
				n, err := h.replicas(p)
				if err != nil {
					return nil, err
				}
				p.replicas = n
			}
			out = append(out, p)
			break
		}
	}
	return out, nil
}

func (h *hints) replicas(p part) (int32, error) {
	at := p.path + ".replicas"
	value := p.spec["replicas"]
	if value == nil {
		return 1, nil // as the operators have it
	}
	return inRange(h.subject, at, value, 1)
}

// segmentSize is the number of pods per segment: the annotation on the pod, if it is of that part, else on the part's
// template. 0 means that the part is not cut.
func (h *hints) segmentSize(rule *Parts, p part) (int32, error) {
	if rule.IndexLabel == "" {
		return 0, nil
	}
	value := first(keys.SegmentSizeAnnotation, h.templates(rule, p))
	if value == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < 1 {
		return 0, invalidField(h.subject, p.path+".template, annotation "+keys.SegmentSizeAnnotation,
			"must be an integer of at least 1, is %q", value)
	}
	return int32(n), nil
}

// templates are the annotations of the pod, if it is of that part, and of the part's template.
func (h *hints) templates(rule *Parts, p part) []map[string]string {
	template := stringsAt(p.spec, "template.metadata.annotations")
	if strings.ToLower(h.pod.Labels[rule.Label]) == p.name {
		return []map[string]string{h.pod.Annotations, template}
	}
	return []map[string]string{template}
}

// segments cuts a part into a parent and its segments of size pods. Segments that hold only pods beyond the minimum need
// none of them; the last one may be smaller.
func (h *hints) segments(rule *Parts, p part, size, minimum int32) ([]v2alpha2.SubGroup, error) {
	replicas, err := h.replicas(p)
	if err != nil {
		return nil, err
	}
	count := ceil(replicas, size)
	if count > MaxSegments {
		return nil, invalidField(h.subject, p.path+".template, annotation "+keys.SegmentSizeAnnotation,
			"must cut %d replicas into at most %d segments, cuts them into %d", replicas, MaxSegments, count)
	}
	from := append(h.templates(rule, p), h.subject.Annotations)
	constraint := topology(keys.SegmentTopologyRequiredAnnotation, keys.SegmentTopologyPreferredAnnotation, from...)
	h.warnTopology(constraint, keys.SegmentTopologyRequiredAnnotation, keys.SegmentTopologyPreferredAnnotation)
	constrained := constraint.RequiredTopologyLevel != "" || constraint.PreferredTopologyLevel != ""

	parent := p.name
	out := make([]v2alpha2.SubGroup, 0, count+1)
	out = append(out, v2alpha2.SubGroup{Name: parent, MinSubGroup: &count})
	needed := ceil(minimum, size)
	for i := range count {
		n := min(size, replicas-i*size)
		if i >= needed {
			n = 0
		}
		s := v2alpha2.SubGroup{Name: segmentName(parent, i), MinMember: &n, Parent: &parent}
		if constrained {
			s.TopologyConstraint = constraint.DeepCopy()
		}
		out = append(out, s)
	}
	return out, nil
}

func ceil(n, size int32) int32 {
	if n > math.MaxInt32-size {
		return int32((int64(n) + int64(size) - 1) / int64(size))
	}
	return (n + size - 1) / size
}

// String shows the members' rule for debugging.
func (m Members) String() string {
	if len(m.parts) == 0 {
		return "no subgroups"
	}
	return fmt.Sprintf("%s by %s", strings.Join(m.parts, "|"), m.label)
}

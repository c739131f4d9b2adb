package workload

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// Labels and annotations that the LeaderWorkerSet controller puts on pods.
const (
	lwsName        = "leaderworkerset.sigs.k8s.io/name"
	lwsGroupIndex  = "leaderworkerset.sigs.k8s.io/group-index"
	lwsWorkerIndex = "leaderworkerset.sigs.k8s.io/worker-index"
	lwsSize        = "leaderworkerset.sigs.k8s.io/size"
)

// Names of subgroups.
const (
	lwsLeader  = "leader"
	lwsWorkers = "workers"
	lwsSegment = "segment"
)

// lwsGang is one group of a LeaderWorkerSet: a leader and size-1 workers.
type lwsGang struct {
	size int32
	// alone says that the leader must run before there are workers.
	alone bool
	// segment is the number of pods per segment; 0 means that it is not cut.
	segment int32
	// apart says that the leader is in no segment.
	apart bool
}

// lwsTree is the gang of one group. Under the startup policy LeaderReady it is the leader alone until that has a node.
func lwsTree(h *hints) (*tree, error) {
	g, err := h.lwsGang()
	if err != nil {
		return nil, err
	}
	out := &tree{minimum: g.size}
	if g.alone {
		out.minimum = 1
	}
	if g.segment == 0 {
		out.subGroups = append(out.subGroups, leaf(lwsLeader, 1, ""))
		if g.size > 1 {
			out.subGroups = append(out.subGroups, leaf(lwsWorkers, out.minimum-1, ""))
		}
	} else {
		out.subGroups = h.lwsSegments(g)
	}
	out.members = Members{place: func(pod *corev1.Pod) (string, error) { return g.place(pod) }}
	return out, nil
}

func (h *hints) lwsGang() (g lwsGang, err error) {
	const template = "spec.leaderWorkerTemplate."
	if g.size, err = h.number(h.facts.Content, "", template+"size", 1, 1); err != nil {
		return g, err
	}
	// Groups of before an edit keep their size until they are replaced.
	if own := h.pod.Annotations[lwsSize]; own != "" {
		n, err := strconv.ParseInt(own, 10, 32)
		if err != nil || n < 1 {
			return g, invalidField(&h.podAs, "annotation "+lwsSize, "must be an integer of at least 1, is %q", own)
		}
		g.size = int32(n)
	}
	if textAt(h.facts.Content, "spec.startupPolicy") == "LeaderReady" {
		g.alone = !h.lwsLeaderPlaced()
	}
	policy := template + "subGroupPolicy."
	if g.segment, err = h.number(h.facts.Content, "", policy+"subGroupSize", 1, 0); err != nil {
		return g, err
	}
	field := policy + "subGroupSize"
	if g.segment == 0 {
		field = "annotation " + keys.SegmentSizeAnnotation
		value := first(keys.SegmentSizeAnnotation, []map[string]string{
			h.subject.Annotations, stringsAt(h.facts.Content, template+"workerTemplate.metadata.annotations"),
		})
		if value == "" {
			return g, nil
		}
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return g, invalidField(h.facts, field, "must be an integer, is %q", value)
		}
		g.segment = int32(n)
	}
	if g.segment < 2 || g.segment > g.size {
		return g, invalidField(h.facts, field, "must be from 2 to %d, the pods of a group, is %d", g.size, g.segment)
	}
	g.apart = textAt(h.facts.Content, policy+"subGroupPolicyType") == "LeaderExcluded"
	if g.apart && (g.size-1)%g.segment != 0 {
		return g, invalidField(h.facts, field, "must divide %d, the workers of a group, as the leader is in no segment; is %d", g.size-1, g.segment)
	}
	if n := ceil(g.size, g.segment); n > MaxSegments {
		return g, invalidField(h.facts, field, "must cut %d pods into at most %d segments, cuts them into %d", g.size, MaxSegments, n)
	}
	return g, nil
}

// lwsLeaderPlaced says whether the leader of the pod's group has a node, or must have had one because the pod is a worker.
func (h *hints) lwsLeaderPlaced() bool {
	if h.pod.Labels[lwsWorkerIndex] != "0" {
		return true
	}
	if h.pod.Spec.NodeName != "" {
		return true
	}
	leader := labels.SelectorFromSet(labels.Set{
		lwsName: h.pod.Labels[lwsName], lwsGroupIndex: h.pod.Labels[lwsGroupIndex], lwsWorkerIndex: "0",
	})
	return h.settings.peer(h.pod.Namespace, leader, func(p *corev1.Pod) bool { return alive(p) && p.Spec.NodeName != "" })
}

// of is the segment of the i-th pod, whose 0th is the leader.
func (g lwsGang) of(i int32) int32 {
	switch {
	case i == 0:
		return 0
	case (g.size-1)%g.segment == 0:
		return (i - 1) / g.segment
	}
	return i / g.segment
}

// lwsSegments cuts the group into segments of consecutive pods. The first one holds the leader as a part of its own, unless
// that is in none.
func (h *hints) lwsSegments(g lwsGang) []v2alpha2.SubGroup {
	counts := make([]int32, g.of(g.size-1)+1)
	for i := range g.size - 1 {
		counts[g.of(i+1)]++
	}
	constraint := h.constrained(keys.SegmentTopologyRequiredAnnotation, keys.SegmentTopologyPreferredAnnotation,
		h.pod.Annotations, stringsAt(h.facts.Content, "spec.leaderWorkerTemplate.workerTemplate.metadata.annotations"), h.subject.Annotations)
	var out []v2alpha2.SubGroup
	if g.apart {
		out = append(out, leaf(lwsLeader, 1, ""))
	}
	for i, n := range counts {
		if g.alone {
			n = 0
		}
		name := segmentName(lwsSegment, int32(i))
		if i > 0 || g.apart {
			s := leaf(name, n, "")
			s.TopologyConstraint = constraint.DeepCopy()
			out = append(out, s)
			continue
		}
		s := inner(name, 2)
		s.TopologyConstraint = constraint.DeepCopy()
		out = append(out, s, leaf(lwsLeader, 1, name), leaf(lwsWorkers, n, name))
	}
	return out
}

func (g lwsGang) place(pod *corev1.Pod) (string, error) {
	value := pod.Labels[lwsWorkerIndex]
	i, err := strconv.ParseInt(value, 10, 32)
	if err != nil || i < 0 || i >= int64(g.size) {
		self := FromPod(pod)
		return "", invalidField(&self, "label "+lwsWorkerIndex, "must be from 0 to %d, is %q", g.size-1, value)
	}
	switch {
	case i == 0:
		return lwsLeader, nil
	case g.segment == 0:
		return lwsWorkers, nil
	}
	if s := g.of(int32(i)); s > 0 || g.apart {
		return segmentName(lwsSegment, s), nil
	}
	return lwsWorkers, nil
}

package workload

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// fields is a level of a JSON merge patch; nil values delete.
type fields map[string]any

// PodPatch is the JSON merge patch that makes the pod a member of the group, and of the subgroup unless that is "". It is
// nil when the pod says so already. A subgroup label that the pod has from elsewhere is left alone when the group has no
// subgroups. The API server refuses the patch on another pod of the same name (422, metadata.uid).
func PodPatch(pod *corev1.Pod, group, subgroup string) []byte {
	meta := fields{}
	if pod.Annotations[keys.PodGroupAnnotation] != group {
		meta["annotations"] = fields{keys.PodGroupAnnotation: group}
	}
	if subgroup != "" && pod.Labels[keys.SubGroupLabel] != subgroup {
		meta["labels"] = fields{keys.SubGroupLabel: subgroup}
	}
	if len(meta) == 0 {
		return nil
	}
	if pod.UID != "" {
		meta["uid"] = pod.UID
	}
	return encode(fields{"metadata": meta})
}

// UpdatePatch is the JSON merge patch that brings an existing PodGroup to what the workload asks for now, or nil when it is
// there. It changes what the workload decides (minimums, subgroups, priority, preemptibility, delays) and adds labels and
// annotations. What others decide after creation stays: queue, markUnschedulable, schedulingBackoff, the node pool label,
// foreign labels and annotations, and the topology constraint where the workload states none. The patch fails with a
// 422 for metadata.uid on another PodGroup of the same name.
func UpdatePatch(existing, wanted *v2alpha2.PodGroup, nodePoolLabel string) []byte {
	meta, spec := fields{}, fields{}
	if m := missing(existing.Annotations, wanted.Annotations, ""); m != nil {
		meta["annotations"] = m
	}
	if m := missing(existing.Labels, wanted.Labels, nodePoolLabel); m != nil {
		meta["labels"] = m
	}
	is, want := &existing.Spec, &wanted.Spec
	change(spec, "minMember", is.MinMember, want.MinMember, want.MinMember == nil)
	change(spec, "minSubGroup", is.MinSubGroup, want.MinSubGroup, want.MinSubGroup == nil)
	change(spec, "priorityClassName", is.PriorityClassName, want.PriorityClassName, want.PriorityClassName == "")
	change(spec, "preemptibility", is.Preemptibility, want.Preemptibility, want.Preemptibility == "")
	change(spec, "preemptionDelay", is.PreemptionDelay, want.PreemptionDelay, want.PreemptionDelay == nil)
	change(spec, "stalenessGracePeriod", is.StalenessGracePeriod, want.StalenessGracePeriod, want.StalenessGracePeriod == nil)
	change(spec, "subGroups", is.SubGroups, want.SubGroups, len(want.SubGroups) == 0)
	if want.TopologyConstraint != (v2alpha2.TopologyConstraint{}) && is.TopologyConstraint != want.TopologyConstraint {
		t := fields{}
		change(t, "topology", is.TopologyConstraint.Topology, want.TopologyConstraint.Topology,
			want.TopologyConstraint.Topology == "")
		change(t, "requiredTopologyLevel", is.TopologyConstraint.RequiredTopologyLevel,
			want.TopologyConstraint.RequiredTopologyLevel, want.TopologyConstraint.RequiredTopologyLevel == "")
		change(t, "preferredTopologyLevel", is.TopologyConstraint.PreferredTopologyLevel,
			want.TopologyConstraint.PreferredTopologyLevel, want.TopologyConstraint.PreferredTopologyLevel == "")
		spec["topologyConstraint"] = t
	}
	if len(meta) == 0 && len(spec) == 0 {
		return nil
	}
	patch := fields{}
	if existing.UID != "" {
		meta["uid"] = existing.UID
	}
	if len(meta) > 0 {
		patch["metadata"] = meta
	}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	return encode(patch)
}

// missing are the wanted entries that the map does not have, except for one key; nil when there are none.
func missing(is, want map[string]string, except string) map[string]string {
	var out map[string]string
	for k, v := range want {
		if has, ok := is[k]; k == except && k != "" || ok && has == v {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	return out
}

// change puts a field into the patch if it differs; absent deletes it.
func change[T any](patch fields, name string, is, want T, absent bool) {
	switch {
	case apiequality.Semantic.DeepEqual(is, want):
	case absent:
		patch[name] = nil
	default:
		patch[name] = want
	}
}

func encode(patch fields) []byte {
	raw, err := json.Marshal(patch)
	if err != nil {
		panic(fmt.Sprintf("a patch of API fields has no JSON form: %v", err))
	}
	return raw
}

// Opted says whether an object's annotations ask that its pods be left alone.
func Opted(annotations map[string]string) bool {
	return annotations[keys.SkipPodGrouperAnnotation] == "true"
}

// External says whether the pod names a PodGroup that was made by hand: it has the annotation and no owner.
func External(pod *corev1.Pod) bool {
	return len(pod.OwnerReferences) == 0 && pod.Annotations[keys.PodGroupAnnotation] != ""
}

// SameHints says whether two states of a pod are equal in all that Group reads of it, so that they give the same PodGroup.
func SameHints(a, b *corev1.Pod, settings *Settings) bool {
	for _, key := range []string{
		settings.QueueLabel, settings.NodePoolLabel, keys.ProjectLabel, keys.PriorityClassLabel, keys.PreemptibilityLabel,
		keys.User,
	} {
		if a.Labels[key] != b.Labels[key] {
			return false
		}
	}
	for _, key := range []string{
		keys.User, keys.PreemptionDelayAnnotation, keys.StalenessGracePeriodAnnotation, keys.SegmentSizeAnnotation,
		keys.TopologyAnnotation, keys.SegmentTopologyRequiredAnnotation, keys.SegmentTopologyPreferredAnnotation,
	} {
		if a.Annotations[key] != b.Annotations[key] {
			return false
		}
	}
	return SameOwners(a, b)
}

// SameOwners says whether two states of an object have the same owners.
func SameOwners(a, b metav1.Object) bool {
	return slices.EqualFunc(a.GetOwnerReferences(), b.GetOwnerReferences(),
		func(x, y metav1.OwnerReference) bool { return x.UID == y.UID })
}

package workload

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	kubebatch "github.com/muster-scheduler/muster/api/kubebatch/keys"
	volcano "github.com/muster-scheduler/muster/api/volcano/keys"
)

// schedulers says whether an annotation is one that the scheduler alone writes on PodGroups.
func schedulers(annotation string) bool {
	switch annotation {
	case keys.StaleSinceAnnotation, keys.LastStartAnnotation, keys.LastEvictionAnnotation, keys.WhyAnnotation, keys.StartsAnnotation:
		return true
	}
	return false
}

const (
	// mostOfNote is how much is kept of an annotation's text, in bytes. What we read is a name, a number, or a short list; longer is
	// none of these, cut or whole.
	mostOfNote = 4096
	// OtherNotes is how much is kept, in bytes of keys and texts, of the annotations of workloads that nobody reads, but that are copied
	// from them to their PodGroup.
	OtherNotes = 16 << 10
)

// Known says whether Muster reads an annotation of that key on pods, their owners or PodGroups.
func Known(key string) bool {
	switch key {
	case keys.GPUFractionAnnotation, keys.GPUMemoryAnnotation, keys.GPUFractionDevicesAnnotation, keys.GPUFractionContainerAnnotation,
		keys.MPSAnnotation, keys.ReceivedResourceTypeAnnotation, keys.SharedGPUConfigMapAnnotation, keys.ReservedGPUAnnotation,
		keys.RegainedAnnotation, keys.ScalingPodSourceLabel, keys.ScalingShapeAnnotation,
		keys.ChargedAnnotation, keys.ChargedAsAnnotation, keys.DecidedAnnotation, keys.OwnGangAnnotation, keys.BundleLabel, keys.BundleSizeLabel, keys.SelectedForAnnotation, keys.SelectedNodeLabel,
		keys.PodGroupAnnotation, keys.SubGroupLabel, keys.SubgroupsAnnotation, keys.SkipPodGrouperAnnotation, keys.TopOwnerAnnotation, keys.User,
		keys.QueueLabel, keys.ProjectLabel, keys.PriorityClassLabel, keys.PreemptibilityLabel, keys.TaskPriorityLabel, keys.NodePoolLabel,
		keys.BatchMinMemberAnnotation, keys.PreemptionDelayAnnotation, keys.StalenessGracePeriodAnnotation,
		keys.TopologyAnnotation, keys.TopologyRequiredAnnotation, keys.TopologyPreferredAnnotation, keys.TopologyMigratedFromAnnotation,
		keys.SegmentSizeAnnotation, keys.SegmentTopologyRequiredAnnotation, keys.SegmentTopologyPreferredAnnotation,
		keys.GroveTopologyAnnotation, keys.GrovePodGangLabel,
		keys.StaleSinceAnnotation, keys.LastStartAnnotation, keys.LastEvictionAnnotation, keys.WhyAnnotation, keys.StartsAnnotation,
		keys.NUMAPredictedAnnotation, keys.NUMAObservedAnnotation, lwsSize, knativeMinScale,
		volcano.GroupName, volcano.QueueName, volcano.NetworkTopologyMode, volcano.NetworkTopologyHighestTier, kubebatch.GroupMinMember, volcano.TaskSpec, volcano.TaskPriority, volcano.Preemptable, volcano.QueueAllocationGate, volcano.CooldownTime, volcano.SLAWaitingTime, volcano.SLAWaitingTimeOlder,
		volcano.NumaTopologyPolicy, volcano.RevocableZone, volcano.JDBMinAvailable, volcano.JDBMaxUnavailable, volcano.TaskTopologyAffinity, volcano.TaskTopologyAntiAffinity, volcano.TaskTopologyOrder:
		return true
	}
	return false
}

// Notes are what is kept of an object's annotations: those that are known, cut to mostOfNote bytes each, those that ask for slices of
// GPUs, and, up to so many bytes, others that are no longer than that, first by key. The map itself is not changed, and returned when
// all is kept; less says that it is not. Notes of notes are the same.
func Notes(all map[string]string, others int) (kept map[string]string, less bool) {
	if fits(all, others) {
		return all, false
	}
	return cut(all, others), true
}

// cut is what is kept of annotations of which not all are.
func cut(all map[string]string, others int) map[string]string {
	kept := make(map[string]string, len(all))
	slices := OtherNotes
	for _, k := range sortedKeys(all) {
		v := all[k]
		budget := &others
		if strings.HasPrefix(k, keys.MIGResourcePrefix) {
			budget = &slices
		}
		switch {
		case Known(k):
			kept[k] = v
			if len(v) > mostOfNote {
				kept[k] = strings.Clone(v[:mostOfNote])
			}
		case k != corev1.LastAppliedConfigAnnotation && len(v) <= mostOfNote && len(k)+len(v) <= *budget:
			*budget -= len(k) + len(v)
			kept[k] = v
		}
	}
	return kept
}

// fits says whether all annotations are kept: mostly so, and nothing is to be made then.
func fits(all map[string]string, others int) bool {
	slices := OtherNotes
	for k, v := range all { // order: sums
		switch {
		case len(v) > mostOfNote:
			return false
		case Known(k):
		case k == corev1.LastAppliedConfigAnnotation:
			return false
		case strings.HasPrefix(k, keys.MIGResourcePrefix):
			slices -= len(k) + len(v)
		default:
			others -= len(k) + len(v)
		}
	}
	return slices >= 0 && others >= 0
}

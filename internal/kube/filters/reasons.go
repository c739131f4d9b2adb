package filters

import (
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// The reasons that this package says.
var (
	// ReasonFilter: an upstream filter; Detail has its words
	ReasonFilter             = &policy.Reason{Key: "RejectedByFilter", Text: "{detail}", Unblock: policy.UnblockNode}
	ReasonPodAffinity        = &policy.Reason{Key: "PodAffinity", Text: "no pod that the pod's affinity asks for is near", Unblock: policy.UnblockNode}
	ReasonPodAntiAffinity    = &policy.Reason{Key: "PodAntiAffinity", Text: "pod anti-affinity keeps it away from pods that are near", Unblock: policy.UnblockNode}
	ReasonTopologySpread     = &policy.Reason{Key: "TopologySpread", Text: "pods would be spread too unevenly", Unblock: policy.UnblockNode}
	ReasonVolumeClaimMissing = &policy.Reason{Key: "VolumeClaimMissing", Text: "PersistentVolumeClaim {object} does not exist", Unblock: policy.UnblockObject}
	// ReasonVolumeClaimBroken: the claim exists and cannot be used; Detail says why
	ReasonVolumeClaimBroken  = &policy.Reason{Key: "VolumeClaimBroken", Text: "PersistentVolumeClaim {object} {detail}", Unblock: policy.UnblockObject}
	ReasonVolumeNodeConflict = &policy.Reason{Key: "VolumeNodeConflict", Text: "a volume cannot be reached from the node", Unblock: policy.UnblockNode}
	ReasonVolumeNone         = &policy.Reason{Key: "VolumeNone", Text: "no volume for a claim, and none can be made there", Unblock: policy.UnblockNode}
	ReasonVolumeNoSpace      = &policy.Reason{Key: "VolumeNoSpace", Text: "too little storage for a volume that is to be made", Unblock: policy.UnblockNode}
	ReasonVolumeInUse        = &policy.Reason{Key: "VolumeInUse", Text: "a ReadWriteOncePod volume is in use by another pod", Unblock: policy.UnblockObject}
	ReasonVolumeLimit        = &policy.Reason{Key: "VolumeLimit", Text: "the node can attach no more volumes", Unblock: policy.UnblockNode}
)

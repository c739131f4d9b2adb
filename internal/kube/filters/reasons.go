package filters

import (
	"github.com/muster-scheduler/muster/internal/engine"
)

// The reasons that this package says.
var (
	// ReasonFilter: an upstream filter; Detail has its words
	ReasonFilter             = &engine.Reason{Key: "RejectedByFilter", Text: "{detail}", Unblock: engine.UnblockNode}
	ReasonPodAffinity        = &engine.Reason{Key: "PodAffinity", Text: "no pod that the pod's affinity asks for is near", Unblock: engine.UnblockNode}
	ReasonPodAntiAffinity    = &engine.Reason{Key: "PodAntiAffinity", Text: "pod anti-affinity keeps it away from pods that are near", Unblock: engine.UnblockNode}
	ReasonTopologySpread     = &engine.Reason{Key: "TopologySpread", Text: "pods would be spread too unevenly", Unblock: engine.UnblockNode}
	ReasonVolumeClaimMissing = &engine.Reason{Key: "VolumeClaimMissing", Text: "PersistentVolumeClaim {object} does not exist", Unblock: engine.UnblockObject}
	// ReasonVolumeClaimBroken: the claim exists and cannot be used; Detail says why
	ReasonVolumeClaimBroken  = &engine.Reason{Key: "VolumeClaimBroken", Text: "PersistentVolumeClaim {object} {detail}", Unblock: engine.UnblockObject}
	ReasonVolumeNodeConflict = &engine.Reason{Key: "VolumeNodeConflict", Text: "a volume cannot be reached from the node", Unblock: engine.UnblockNode}
	ReasonVolumeNone         = &engine.Reason{Key: "VolumeNone", Text: "no volume for a claim, and none can be made there", Unblock: engine.UnblockNode}
	ReasonVolumeNoSpace      = &engine.Reason{Key: "VolumeNoSpace", Text: "too little storage for a volume that is to be made", Unblock: engine.UnblockNode}
	ReasonVolumeInUse        = &engine.Reason{Key: "VolumeInUse", Text: "a ReadWriteOncePod volume is in use by another pod", Unblock: engine.UnblockObject}
	ReasonVolumeLimit        = &engine.Reason{Key: "VolumeLimit", Text: "the node can attach no more volumes", Unblock: engine.UnblockNode}
)

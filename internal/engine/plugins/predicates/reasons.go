package predicates

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// The reasons that this package says.
var (
	// ReasonNoDeviceMemory: GPU memory is asked for, and the node's is not known
	ReasonNoDeviceMemory = &engine.Reason{Key: "GPUMemoryUnknown", Text: "the node does not say how much memory its GPUs have", Unblock: engine.UnblockNode}
	ReasonNodeNotReady   = &engine.Reason{Key: "NodeNotReady", Text: "node takes no pods: {object}", Unblock: engine.UnblockNode}
	ReasonTaint          = &engine.Reason{Key: "UntoleratedTaint", Text: "untolerated taint {object}", Unblock: engine.UnblockNode}
	ReasonNodeSelector   = &engine.Reason{Key: "NodeSelector", Text: "node selector or required affinity does not match", Unblock: engine.UnblockNode}
	ReasonHostPort       = &engine.Reason{Key: "HostPortTaken", Text: "host port {object} is taken", Unblock: engine.UnblockNode}
	ReasonRestrictedNode = &engine.Reason{Key: "RestrictedNode", Text: "node has no worker label (restricted scheduling)", Unblock: engine.UnblockNode}
	// ReasonSlicing: the node's GPUs are not cut as the pod needs; Object is how they are
	ReasonSlicing = &engine.Reason{Key: "GPUSlicing", Say: func(v engine.Verdict) string {
		if v.Object == cluster.Unsliced.String() {
			return "the GPUs of the node are not cut into slices"
		}
		return v.Fill("the GPUs of the node are cut into slices (strategy {object}), which serve others")
	}, Unblock: engine.UnblockNode}
	ReasonLegacySlices     = &engine.Reason{Key: "LegacySlices", Text: "slices of GPUs by name and by annotation do not go together; the node has pod {object}", Unblock: engine.UnblockNode}
	ReasonTooBigForAnyNode = &engine.Reason{Key: "TooBigForAnyNode", Text: "a pod asks for {need} {dim}; the largest node has {have}", Unblock: engine.UnblockSize}
	ReasonConfigMapMissing = &engine.Reason{Key: "ConfigMapMissing", Text: "ConfigMap {object} does not exist", Unblock: engine.UnblockConfigMap}
	ReasonUnsupported      = &engine.Reason{Key: "UnsupportedFeature", Text: "asks for {object}, which this version does not schedule", Unblock: engine.UnblockFeature}
)

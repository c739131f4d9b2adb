package predicates

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// The reasons that this package says.
var (
	// ReasonNoDeviceMemory: GPU memory is asked for, and the node's is not known
	ReasonNoDeviceMemory = &policy.Reason{Key: "GPUMemoryUnknown", Text: "the node does not say how much memory its GPUs have", Unblock: policy.UnblockNode}
	ReasonNodeNotReady   = &policy.Reason{Key: "NodeNotReady", Text: "node takes no pods: {object}", Unblock: policy.UnblockNode}
	ReasonTaint          = &policy.Reason{Key: "UntoleratedTaint", Text: "untolerated taint {object}", Unblock: policy.UnblockNode}
	ReasonNodeSelector   = &policy.Reason{Key: "NodeSelector", Text: "node selector or required affinity does not match", Unblock: policy.UnblockNode}
	ReasonHostPort       = &policy.Reason{Key: "HostPortTaken", Text: "host port {object} is taken", Unblock: policy.UnblockNode}
	// ReasonNotInSet: the pod keeps to a set of nodes, the object, which does not have this one
	ReasonNotInSet       = &policy.Reason{Key: "NodeNotInShard", Text: "the node is not in shard {object}", Unblock: policy.UnblockNode}
	ReasonRestrictedNode = &policy.Reason{Key: "RestrictedNode", Text: "node has no worker label (restricted scheduling)", Unblock: policy.UnblockNode}
	// ReasonSlicing: the node's GPUs are not cut as the pod needs; Object is how they are
	ReasonSlicing = &policy.Reason{Key: "GPUSlicing", Say: func(v policy.Verdict) string {
		if v.Object == cluster.Unsliced.String() {
			return "the GPUs of the node are not cut into slices"
		}
		return v.Fill("the GPUs of the node are cut into slices (strategy {object}), which serve others")
	}, Unblock: policy.UnblockNode}
	ReasonLegacySlices     = &policy.Reason{Key: "LegacySlices", Text: "slices of GPUs by name and by annotation do not go together; the node has pod {object}", Unblock: policy.UnblockNode}
	ReasonTooBigForAnyNode = &policy.Reason{Key: "TooBigForAnyNode", Text: "a pod asks for {need} {dim}; the largest node has {have}", Unblock: policy.UnblockSize}
	ReasonConfigMapMissing = &policy.Reason{Key: "ConfigMapMissing", Text: "ConfigMap {object} does not exist", Unblock: policy.UnblockConfigMap}
	ReasonUnsupported      = &policy.Reason{Key: "UnsupportedFeature", Text: "asks for {object}, which this version does not schedule", Unblock: policy.UnblockFeature}
)

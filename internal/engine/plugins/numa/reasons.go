package numa

import (
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// The reasons that this package says.
var (
	ReasonZones = &policy.Reason{Key: "NUMAZones", Say: func(v policy.Verdict) string {
		if v.Detail != "" {
			return v.Fill("the node's NUMA zones cannot take the pod under policy {object}, {detail}[ ({partial})]")
		}
		return v.Fill("the node's NUMA zones have too little left for the pod under policy {object}[ ({partial})]")
	}, Unblock: policy.UnblockNode}
	// ReasonZonePolicy is said of a node that does not align by the policy that the pod names.
	ReasonZonePolicy = &policy.Reason{Key: "NUMAPolicy", Text: "the node does not align pods to NUMA zones by policy {object}: {detail}", Unblock: policy.UnblockNode}
)

package nodegroup

import "github.com/muster-scheduler/muster/internal/engine/policy"

// The reasons that this package says.
var (
	ReasonInNoGroup   = &policy.Reason{Key: "NodeInNoGroup", Text: "in no group of nodes: no label {object}", Unblock: policy.UnblockNode}
	ReasonNotForQueue = &policy.Reason{Key: "NodeGroupNotForQueue", Text: "group {object} of nodes is not for queue {detail}", Unblock: policy.UnblockNode}
)

package topology

import (
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// The reasons that this package says.
var (
	ReasonTopologyNoRoom  = &policy.Reason{Key: "TopologyNoRoom", Text: "no {object} has room for the {need} pods that must be together[; {detail} has room for {have}][ ({partial})]", Unblock: policy.UnblockTogether}
	ReasonTopologyMissing = &policy.Reason{Key: "TopologyDoesNotExist", Text: "topology {object:q} does not exist; create it, or correct the topology constraint", Unblock: policy.UnblockConstraint}
	ReasonNotInTopology   = &policy.Reason{Key: "NodeNotInTopology", Text: "not in topology {object}: no label {detail}", Unblock: policy.UnblockNode}
	ReasonNotInDomain     = &policy.Reason{Key: "NodeNotInDomain", Text: "in no domain of topology {object} of at most {detail}", Unblock: policy.UnblockNode}
	ReasonTopologyLevel   = &policy.Reason{Key: "TopologyLevelUnknown", Text: "the topology constraint is wrong: topology {object:q} {detail}", Unblock: policy.UnblockConstraint}
)

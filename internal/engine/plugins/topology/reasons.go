package topology

import (
	"github.com/muster-scheduler/muster/internal/engine"
)

// The reasons that this package says.
var (
	ReasonTopologyNoRoom  = &engine.Reason{Key: "TopologyNoRoom", Text: "no {object} has room for the {need} pods that must be together[; {detail} has room for {have}][ ({partial})]", Unblock: engine.UnblockTogether}
	ReasonTopologyMissing = &engine.Reason{Key: "TopologyDoesNotExist", Text: "topology {object:q} does not exist; create it, or correct the topology constraint", Unblock: engine.UnblockConstraint}
	ReasonTopologyLevel   = &engine.Reason{Key: "TopologyLevelUnknown", Text: "the topology constraint is wrong: topology {object:q} {detail}", Unblock: engine.UnblockConstraint}
)

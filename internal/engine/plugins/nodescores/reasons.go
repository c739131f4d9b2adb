package nodescores

import "github.com/muster-scheduler/muster/internal/engine/policy"

// ReasonReserved is said of a node that has the CPU or the memory, which goes with something else that it has.
var ReasonReserved = &policy.Reason{Key: "ReservedInProportion", Text: "{dim} is kept for pods that ask for {object}", Unblock: policy.UnblockNode}

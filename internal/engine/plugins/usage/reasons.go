package usage

import "github.com/muster-scheduler/muster/internal/engine/policy"

// ReasonNodeBusy is why a node gets nobody while it is busy. The words name the threshold and not what was measured, so that they do not change with every measurement.
var ReasonNodeBusy = &policy.Reason{Key: "NodeBusy", Text: "the node is busy: its measured use of {detail}", Unblock: policy.UnblockNode}

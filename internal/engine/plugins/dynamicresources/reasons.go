package dynamicresources

import (
	"github.com/muster-scheduler/muster/internal/engine"
)

// The reasons that this package says.
var (
	ReasonClaimMissing = &engine.Reason{Key: "ResourceClaimMissing", Text: "ResourceClaim {object} does not exist yet[ {detail}]", Unblock: engine.UnblockObject}
	// ReasonClaimBroken: the allocator cannot work with it; Detail says why
	ReasonClaimBroken        = &engine.Reason{Key: "ResourceClaimBroken", Text: "ResourceClaim {object}: {detail}", Unblock: engine.UnblockObject}
	ReasonClaimElsewhere     = &engine.Reason{Key: "ResourceClaimElsewhere", Text: "the devices of claim[ {object}] cannot be reached from the node", Unblock: engine.UnblockNode}
	ReasonClaimFull          = &engine.Reason{Key: "ResourceClaimFull", Text: "ResourceClaim {object} is used by {have} pods, which is the most", Unblock: engine.UnblockObject}
	ReasonClaimQueue         = &engine.Reason{Key: "ResourceClaimQueue", Text: "ResourceClaim {object} is shared and has GPUs: its queue label must name queue {detail}", Unblock: engine.UnblockObject}
	ReasonDeviceClassMissing = &engine.Reason{Key: "DeviceClassMissing", Text: "DeviceClass {object} does not exist", Unblock: engine.UnblockObject}
	ReasonDevicesNone        = &engine.Reason{Key: "NoDevices", Text: "no driver publishes devices there", Unblock: engine.UnblockNode}
	ReasonDevicesTaken       = &engine.Reason{Key: "InsufficientDevices", Text: "insufficient free devices for its claims[ {detail}]", Partly: "no free devices that satisfy its claims were found ({partial})", Unblock: engine.UnblockNode}
)

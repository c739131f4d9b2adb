package dynamicresources

import (
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// The reasons that this package says.
var (
	ReasonClaimMissing = &policy.Reason{Key: "ResourceClaimMissing", Text: "ResourceClaim {object} does not exist yet[ {detail}]", Unblock: policy.UnblockObject}
	// ReasonClaimBroken: the allocator cannot work with it; Detail says why
	ReasonClaimBroken        = &policy.Reason{Key: "ResourceClaimBroken", Text: "ResourceClaim {object}: {detail}", Unblock: policy.UnblockObject}
	ReasonClaimElsewhere     = &policy.Reason{Key: "ResourceClaimElsewhere", Text: "the devices of claim[ {object}] cannot be reached from the node", Unblock: policy.UnblockNode}
	ReasonClaimFull          = &policy.Reason{Key: "ResourceClaimFull", Text: "ResourceClaim {object} is used by {have} pods, which is the most", Unblock: policy.UnblockObject}
	ReasonClaimQueue         = &policy.Reason{Key: "ResourceClaimQueue", Text: "ResourceClaim {object} is shared and has GPUs: its queue label must name queue {detail}", Unblock: policy.UnblockObject}
	ReasonDeviceClassMissing = &policy.Reason{Key: "DeviceClassMissing", Text: "DeviceClass {object} does not exist", Unblock: policy.UnblockObject}
	ReasonDevicesNone        = &policy.Reason{Key: "NoDevices", Text: "no driver publishes devices there", Unblock: policy.UnblockNode}
	ReasonDevicesTaken       = &policy.Reason{Key: "InsufficientDevices", Text: "insufficient free devices for its claims[ {detail}]", Partly: "no free devices that satisfy its claims were found ({partial})", Unblock: policy.UnblockNode}
)

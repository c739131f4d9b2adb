package minruntime

import (
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// The reasons that this package says.
var (
	ReasonMinRuntime = &policy.Reason{Key: "MinRuntime", Text: "protected by its minimum runtime", Unblock: policy.UnblockTime}
)

package minruntime

import (
	"github.com/muster-scheduler/muster/internal/engine"
)

// The reasons that this package says.
var (
	ReasonMinRuntime = &engine.Reason{Key: "MinRuntime", Text: "protected by its minimum runtime", Unblock: engine.UnblockTime}
)

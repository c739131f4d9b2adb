package minruntime

import (
	"github.com/muster-scheduler/muster/internal/engine"
)

// The reasons that this package says.
var (
	ReasonMinRuntime = &engine.Reason{Key: "MinRuntime", Text: "protected by its minimum runtime", Unblock: engine.UnblockTime}
)

// Reasons are those of this package.
func Reasons() []*engine.Reason {
	return []*engine.Reason{
		ReasonMinRuntime,
	}
}

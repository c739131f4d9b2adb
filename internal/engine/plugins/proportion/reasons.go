package proportion

import (
	"github.com/muster-scheduler/muster/internal/engine"
)

// The reasons that this package says.
var (
	ReasonOverLimit               = &engine.Reason{Key: "OverLimit", Text: "queue {object}: asks for {need} {dim}, {have} left under its limit[; {detail}]", Unblock: engine.UnblockLimit}
	ReasonNonPreemptibleOverQuota = &engine.Reason{Key: "NonPreemptibleOverQuota", Text: "queue {object}: non-preemptible work asks for {need} {dim}, {have} left under its quota[; {detail}]", Unblock: engine.UnblockQuota}
	ReasonOverFairShare           = &engine.Reason{Key: "OverFairShare", Text: "queue {object} would hold {need} {dim}, above its fair share of {have}", Unblock: engine.UnblockShare, Hinders: true}
)

package proportion

import (
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// The reasons that this package says.
var (
	ReasonOverLimit               = &policy.Reason{Key: "OverLimit", Text: "queue {object}: asks for {need} {dim}, {have} left under its limit[; {detail}]", Unblock: policy.UnblockLimit}
	ReasonNonPreemptibleOverQuota = &policy.Reason{Key: "NonPreemptibleOverQuota", Text: "queue {object}: non-preemptible work asks for {need} {dim}, {have} left under its quota[; {detail}]", Unblock: policy.UnblockQuota}
	ReasonOverFairShare           = &policy.Reason{Key: "OverFairShare", Text: "queue {object} would hold {need} {dim}, above its fair share of {have}", Unblock: policy.UnblockShare, Hinders: true}
)

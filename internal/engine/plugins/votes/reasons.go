package votes

import "github.com/muster-scheduler/muster/internal/engine/policy"

// The reasons that this package says.
var (
	ReasonOvercommitted = &policy.Reason{Key: "Overcommitted", Text: "not admitted: its minimum asks for {need} {dim}, and {have} are left of what the cluster lets in at a time; " +
		"it goes on when nodes are added, or others that were let in have ended", Unblock: policy.UnblockAdmission, Untried: true}
	ReasonQueueFull = &policy.Reason{Key: "QueueFull", Text: "not admitted: its minimum asks for {need} {dim}, and {have} are left of what queue {object} may have; " +
		"it goes on when others of the queue have ended, or the queue may have more", Unblock: policy.UnblockAdmission, Untried: true}
)

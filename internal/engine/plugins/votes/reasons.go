package votes

import "github.com/muster-scheduler/muster/internal/engine/policy"

// The reasons that this package says.
var (
	ReasonOvercommitted = &policy.Reason{Key: "Overcommitted", Text: "not admitted: its minimum asks for {need} {dim}, and {have} are left of what the cluster lets in at a time; " +
		"it goes on when nodes are added, or others that were let in have ended", Unblock: policy.UnblockAdmission, Untried: true}
	ReasonQueueFull = &policy.Reason{Key: "QueueFull", Text: "not admitted: its minimum asks for {need} {dim}, and {have} are left of what queue {object} may have; " +
		"it goes on when others of the queue have ended, or the queue may have more", Unblock: policy.UnblockAdmission, Untried: true}
	ReasonNamespaceFull = &policy.Reason{Key: "NamespaceQuotaFull", Text: "not admitted: its minimum asks for {need} {dim}, and {have} are left of ResourceQuota {object}; " +
		"it goes on when others of the namespace have ended, or the quota is raised", Unblock: policy.UnblockNamespace, Untried: true}
	ReasonBeyondDeserved = &policy.Reason{Key: "BeyondDeserved", Text: "queue {object} would hold {need} {dim}, above the {have} that it deserves; " +
		"it goes on when others of the queue have ended, when other queues ask for less, or with a larger weight", Unblock: policy.UnblockShare}
	ReasonBeyondCapability = &policy.Reason{Key: "BeyondCapability", Text: "queue {object} would hold {need} {dim}, above the {have} that it may have beside what is guaranteed to others; " +
		"it goes on when others of the queue have ended, or it may have more", Unblock: policy.UnblockAdmission}
	ReasonLargerShare     = &policy.Reason{Key: "LargerShare", Text: "its gang would hold a smaller part of the cluster then than the one that it is taken for"}
	ReasonAtMinimum       = &policy.Reason{Key: "GangAtMinimum", Text: "it has no more pods than its minimum"}
	ReasonCooldown        = &policy.Reason{Key: "CoolingDown", Text: "it got its node a short time ago; it may go when its cooldown is over", Unblock: policy.UnblockTime}
	ReasonSystem          = &policy.Reason{Key: "SystemPods", Text: "the cluster cannot do without it"}
	ReasonQueueOverused   = &policy.Reason{Key: "QueueOverused", Text: "queue {object} holds all that it deserves[: {detail}]; it goes on when others of the queue have ended, when other queues ask for less, or with a larger weight", Unblock: policy.UnblockShare, Hinders: true}
	ReasonOverDeserved    = &policy.Reason{Key: "OverDeserved", Text: "queue {object} would hold {need} {dim}, above the {have} that it may take back", Unblock: policy.UnblockShare, Hinders: true}
	ReasonWithinDeserved  = &policy.Reason{Key: "WithinDeserved", Text: "queue {object} holds no more than it deserves", Many: "their queues hold no more than they deserve"}
	ReasonGuaranteed      = &policy.Reason{Key: "Guaranteed", Text: "queue {object} would hold less than is guaranteed to it", Many: "their queues would hold less than is guaranteed to them"}
	ReasonNothingInCommon = &policy.Reason{Key: "NothingInCommon", Text: "it holds nothing of what is asked for"}
)

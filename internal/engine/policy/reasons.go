package policy

// The reasons that the engine, its actions and the solver say, and those by which plugins and the solver understand each other.
var (
	ReasonInsufficient   = &Reason{Key: "InsufficientResources", Text: "insufficient {dim}", Unblock: UnblockNode}
	ReasonNoSharedDevice = &Reason{Key: "NoSharedDevice", Text: "no GPU has so much left to share", Unblock: UnblockNode}
	// ReasonGangNoRoom: the object is the domain that comes closest, where pods must be in one
	ReasonGangNoRoom = &Reason{Key: "GangNoRoom", Say: func(v Verdict) string {
		if v.Need == 1 {
			return v.Fill("no node[ of {object}] has room for the pod")
		}
		return v.Fill("room for {have} of the {need} pods that must start together[ in {object}][ ({partial})]")
	}, Unblock: UnblockRoom}
	ReasonQueueMissing = &Reason{Key: "QueueDoesNotExist", Text: "queue {object:q} does not exist", Unblock: UnblockQueue, Untried: true}
	ReasonQueueNotLeaf = &Reason{Key: "QueueNotLeaf", Text: "queue {object:q} has child queues; work belongs in a leaf", Unblock: UnblockLeaf, Untried: true}
	ReasonQueueClosed  = &Reason{Key: "QueueClosed", Text: "queue {object:q}: {detail}", Unblock: UnblockOpen, Untried: true}
	ReasonQueueBroken  = &Reason{Key: "QueueTreeBroken", Text: "queue {object:q}: {detail}", Unblock: UnblockTree, Untried: true}
	ReasonGangInvalid  = &Reason{Key: "InvalidGang", Text: "{detail}", Unblock: UnblockGang, Untried: true}
	// ReasonGroupMissing: the object is a PodGroup that a pod names, with its API groups, the detail the field that names it. No gang has it, only the pod.
	ReasonGroupMissing = &Reason{Key: "PodGroupDoesNotExist", Text: "PodGroup {object}, which {detail} names, does not exist: create it in the pod's namespace, or make the pod anew with the name of one that is there", Unblock: UnblockObject, Untried: true}
	// ReasonGroupNoName: the object is a text of a pod that stands where the name of a PodGroup is expected, the detail the field
	ReasonGroupNoName = &Reason{Key: "NoPodGroupName", Text: "{detail} is {object:q}, which no PodGroup can be called: it is the name alone of a PodGroup of the pod's namespace; make the pod anew with it", Unblock: UnblockObject, Untried: true}
	// ReasonNoAllocate: the configuration of the gang's face has no action that places gangs
	ReasonNoAllocate      = &Reason{Key: "NoAllocate", Text: "the configuration for {detail} has no action that places gangs", Unblock: UnblockSettings, Untried: true}
	ReasonGangNotReady    = &Reason{Key: "GangNotReady", Text: "{have} of {need} pods needed exist[, of {detail}]", Unblock: UnblockPods, Untried: true}
	ReasonGated           = &Reason{Key: "SchedulingGated", Text: "{have} pods have scheduling gates", Unblock: UnblockGates, Untried: true}
	ReasonUnknownSubgroup = &Reason{Key: "UnknownSubgroup", Text: "pod {object} asks for subgroup {detail:q}, which the gang does not have", Unblock: UnblockSubgroup, Untried: true}
	ReasonGaveUp          = &Reason{Key: "BackoffReached", Text: "not tried again: schedulingBackoff is reached", Unblock: UnblockRetry, Untried: true}
	ReasonPostponed       = &Reason{Key: "BindFailedRecently", Text: "the last attempt to place {object} failed; waiting before the next try", Unblock: UnblockBind, Untried: true}
	// ReasonBinding: a gang below its minimum whose other members are on their way
	ReasonBinding   = &Reason{Key: "MembersBinding", Text: "{have} pods of the gang are being bound; it goes on when its minimum is", Unblock: UnblockStart, Untried: true}
	ReasonReleasing = &Reason{Key: "WaitingForRelease", Text: "{have} pods wait for room that is being released[, {detail}]", Unblock: UnblockStart}
	// ReasonNodesEmpty: the cluster (or shard) has no node
	ReasonNodesEmpty      = &Reason{Key: "NoNodes", Text: "there are no nodes", Unblock: UnblockFirst}
	ReasonQueueDepth      = &Reason{Key: "BeyondQueueDepth", Text: "{have} gangs of queue {object} are before it, and no more are looked at in a cycle", Unblock: UnblockDepth}
	ReasonBehind          = &Reason{Key: "BehindInQueue", Text: "{object} is before it, and its queue hands out in order", Unblock: UnblockDepth, Untried: true}
	ReasonNextCycle       = &Reason{Key: "NextCycle", Text: "the searches for those before it took what one cycle may spend; it is asked about in the next", Unblock: UnblockTurn}
	ReasonPreemptionDelay = &Reason{Key: "PreemptionDelay", Text: "its preemption delay is not over", Unblock: UnblockTime}
	// ReasonNotPreemptible: the gang must not be disturbed, or must not disturb
	ReasonNotPreemptible    = &Reason{Key: "NotPreemptible", Text: "non-preemptible", Hinders: true}
	ReasonPodKept           = &Reason{Key: "PodKept", Text: "a pod of it says that it is not evicted for others", Hinders: true}
	ReasonVictimWithinShare = &Reason{Key: "WithinShare", Text: "queue {object} holds no more than its own", Many: "their queues hold no more than their own"}
	ReasonSaturation        = &Reason{Key: "ShareBalance", Text: "queue {object} would be worse off than the queue that takes", Many: "their queues would be worse off than the queue that takes"}
	ReasonHigherPriority    = &Reason{Key: "PriorityNotLower", Text: "its priority is not lower", Unblock: UnblockPriority}
	ReasonNotRecreated      = &Reason{Key: "NobodyRecreates", Text: "nobody would recreate its pods"}
	ReasonReturned          = &Reason{Key: "DisplacedBefore", Text: "it was evicted before while the same gang waited"}
	ReasonEvictionRate      = &Reason{Key: "EvictedTooOften", Text: "evicted {have} times in the last hour", Unblock: UnblockTime}
	ReasonFrozen            = &Reason{Key: "Frozen", Text: "evicted for the same gang again and again; left alone for a while", Unblock: UnblockTime}
	ReasonBudget            = &Reason{Key: "DisruptionBudget", Text: "PodDisruptionBudget {object} allows no more disruptions", Many: "their PodDisruptionBudgets allow no more disruptions", Hinders: true}
	ReasonOtherQueue        = &Reason{Key: "OtherQueue", Text: "in another queue"}
	ReasonBeingBound        = &Reason{Key: "BeingBound", Text: "its pods are being bound", Unblock: UnblockTurn}
	ReasonJustPlaced        = &Reason{Key: "JustPlaced", Text: "got room in this cycle", Unblock: UnblockTurn}
	ReasonNoVictims         = &Reason{Key: "NoVictims", Text: "there is nobody it may displace"}
	ReasonVictimsTooFew     = &Reason{Key: "VictimsDoNotSuffice", Text: "all that may be displaced ({have} gangs) would not make room enough", Partly: "no set of gangs that may be displaced was found that makes room enough ({partial}[; {detail}])"}
	ReasonNothingToMove     = &Reason{Key: "NoRearrangement", Text: "no rearrangement of what runs makes room for it[ ({partial})]"}
	ReasonOthersFirst       = &Reason{Key: "OthersFirst", Text: "{object} waits for the same room and has the right to it", Unblock: UnblockTurn, Hinders: true}
	// ReasonNotStarving, ReasonNotReclaimable and ReasonNoJudge are of faces with plugins of their own
	ReasonNotStarving    = &Reason{Key: "NotStarving", Text: "it lacks nothing that others would be evicted for[: {detail}]"}
	ReasonNotReclaimable = &Reason{Key: "QueueNotReclaimable", Text: "nothing is taken back from queue {object}, which is not reclaimable", Many: "their queues are not reclaimable"}
	ReasonNoJudge        = &Reason{Key: "NobodyPermits", Text: "no plugin of its face's configuration lets it go"}
	ReasonUnbroken       = &Reason{Key: "GangsUnbroken", Text: "it would be left without its minimum, and the configuration of its face breaks no gang"}
	ReasonSwitchedOff    = &Reason{Key: "SwitchedOff", Text: "switched off"}
)

// Reasons are those of this package.
func Reasons() []*Reason {
	return []*Reason{
		ReasonInsufficient, ReasonNoSharedDevice, ReasonGangNoRoom, ReasonQueueMissing, ReasonQueueNotLeaf, ReasonQueueClosed, ReasonQueueBroken, ReasonGangInvalid, ReasonNoAllocate,
		ReasonGangNotReady, ReasonGated, ReasonUnknownSubgroup, ReasonGaveUp, ReasonPostponed, ReasonBinding, ReasonReleasing, ReasonNodesEmpty,
		ReasonQueueDepth, ReasonBehind, ReasonNextCycle, ReasonPreemptionDelay, ReasonNotPreemptible, ReasonPodKept, ReasonVictimWithinShare, ReasonSaturation, ReasonHigherPriority,
		ReasonNotRecreated, ReasonReturned, ReasonEvictionRate, ReasonFrozen, ReasonBudget, ReasonOtherQueue, ReasonBeingBound, ReasonJustPlaced,
		ReasonNoVictims, ReasonVictimsTooFew, ReasonNothingToMove, ReasonOthersFirst, ReasonNotStarving, ReasonNotReclaimable, ReasonNoJudge, ReasonUnbroken, ReasonSwitchedOff, ReasonGroupMissing, ReasonGroupNoName,
	}
}

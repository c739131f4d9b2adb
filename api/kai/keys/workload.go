package keys

// Labels and annotations by which users and the podgrouper say how pods form gangs.
const (
	// QueueLabel, on a workload, its pods, a PodGroup or a shared resource claim, names the queue. It is the default
	// of a configurable key.
	QueueLabel = "kai.scheduler/queue"

	// NodePoolLabel, on nodes, queues, PodGroups, pods and BindRequests, names the shard they belong to. It is the
	// default of a configurable key. Objects without it belong to the shard with an empty value.
	NodePoolLabel = "kai.scheduler/node-pool"

	// ProjectLabel, on a workload or pod, is the older way to name a queue: the queue of this name, or of this name,
	// a dash and the node pool. It counts when QueueLabel is absent.
	ProjectLabel = "project"

	// PriorityClassLabel, on a workload or pod, names the gang's PriorityClass. It wins over the pod's
	// spec.priorityClassName.
	PriorityClassLabel = "priorityClassName"

	// PreemptibilityLabel, on a workload or pod, is preemptible or non-preemptible.
	PreemptibilityLabel = "kai.scheduler/preemptibility"

	// User, as a label and as an annotation of a pod, names who submitted it; the podgrouper copies it to the
	// PodGroup.
	User = "user"

	// PodGroupAnnotation, on a pod, names its PodGroup in the same namespace. Written by the podgrouper, or by the
	// user for a PodGroup made by hand.
	PodGroupAnnotation = "pod-group-name"

	// SubgroupsAnnotation, on a PodGroup of scheduling.k8s.io, which has no subgroups, names them with their minimums: "driver=1,worker=4".
	// The user writes it.
	SubgroupsAnnotation = "muster.dev/subgroups"
	// SubGroupLabel, on a pod, names its subgroup within the PodGroup. Written by the podgrouper, or by the user for
	// a PodGroup made by hand.
	SubGroupLabel = "kai.scheduler/subgroup-name"

	// TaskPriorityLabel, on a pod, is an integer that orders the pods within a gang: higher first, pods without it
	// last.
	TaskPriorityLabel = "kai.scheduler/task-priority"

	// SkipPodGrouperAnnotation, set to "true" on a pod or one of its owners, keeps the podgrouper away from the pod.
	SkipPodGrouperAnnotation = "kai.scheduler/skip-podgrouper"

	// TopOwnerAnnotation, on a PodGroup, describes in YAML the workload it was made for: name, uid, group, version
	// and kind. Written by the podgrouper.
	TopOwnerAnnotation = "kai.scheduler/top-owner-metadata"

	// BatchMinMemberAnnotation, on a Job, JobSet or replicated job template, is the gang's minimum.
	BatchMinMemberAnnotation = "kai.scheduler/batch-min-member"

	// PreemptionDelayAnnotation, on a workload or pod, is a Go duration, not negative, that becomes the gang's
	// preemptionDelay.
	PreemptionDelayAnnotation = "kai.scheduler/preemption-delay"

	// StalenessGracePeriodAnnotation, on a workload or pod, is a Go duration, possibly negative, that becomes the
	// gang's stalenessGracePeriod.
	StalenessGracePeriodAnnotation = "kai.scheduler/staleness-grace-period"
)

// Annotations on a workload, or on the pod templates of kinds that have several, that ask for a place in a topology.
const (
	// TopologyAnnotation names the Topology object.
	TopologyAnnotation = "kai.scheduler/topology"

	// TopologyRequiredAnnotation names the level of which the gang must stay within one domain.
	TopologyRequiredAnnotation = "kai.scheduler/topology-required-placement"

	// TopologyPreferredAnnotation names the level of which the gang should stay within one domain.
	TopologyPreferredAnnotation = "kai.scheduler/topology-preferred-placement"

	// SegmentSizeAnnotation is the number of pods per segment; the gang is cut into subgroups of this size.
	SegmentSizeAnnotation = "kai.scheduler/segment-size"

	// SegmentTopologyRequiredAnnotation names the level of which each segment must stay within one domain.
	SegmentTopologyRequiredAnnotation = "kai.scheduler/segment-topology-required-placement"

	// SegmentTopologyPreferredAnnotation names the level of which each segment should stay within one domain.
	SegmentTopologyPreferredAnnotation = "kai.scheduler/segment-topology-preferred-placement"

	// TopologyMigratedFromAnnotation, on a Topology, says which object of another system it was made from.
	TopologyMigratedFromAnnotation = "kai.scheduler/migrated-from"
)

// Notes that the scheduler keeps on its objects.
const (
	// SelectedNodeLabel, on a BindRequest, repeats the node that was chosen.
	SelectedNodeLabel = "selected-node"

	// StaleSinceAnnotation, on a PodGroup, is the RFC 3339 time since when the started gang is below its minimum.
	StaleSinceAnnotation = "kai.scheduler/stale-podgroup-timestamp"

	// LastStartAnnotation, on a PodGroup, is the RFC 3339 time at which the gang last reached its minimum.
	LastStartAnnotation = "kai.scheduler/last-start-timestamp"

	// WhyAnnotation, on a PodGroup, is why the gang waits and what would change that, as the scheduler wrote it for those who may read no more: a
	// see.Brief. Nothing is decided by it.
	WhyAnnotation = "muster.dev/why"
	// StartsAnnotation, on a PodGroup, is when the gang is forecast to start, as a column has it: "14:20 to 17:00", in UTC.
	// Written with WhyAnnotation, in which more of it stands; it proves nothing either.
	StartsAnnotation = "muster.dev/starts"

	// LastEvictionAnnotation, on a PodGroup, is the RFC 3339 time at which the gang was last evicted.
	LastEvictionAnnotation = "kai.scheduler/last-eviction-timestamp"

	// NUMAPredictedAnnotation, on a pod, is the JSON list of {zone, amount} that the scheduler expects. Written by
	// the binder.
	NUMAPredictedAnnotation = "kai.scheduler/numa-placement-predicted"

	// NUMAObservedAnnotation, on a pod, is the JSON list of {zone, amount} that the kubelet chose. Written by the
	// NUMA placement exporter; it counts more than the prediction.
	NUMAObservedAnnotation = "kai.scheduler/numa-placement-observed"
)

// Annotations of the event that the scheduler writes on a PodGroup whose pods it evicts.
const (
	// EvictedPodsAnnotation is the number of pods that are evicted.
	EvictedPodsAnnotation = "num-evicted-pods"

	// EvictorActionAnnotation is the action that evicts: reclaim, preempt, consolidation, stalegangeviction, or an action of a face's own.
	EvictorActionAnnotation = "evictor-action-type"

	// EvictorPodGroupAnnotation is the PodGroup that benefits.
	EvictorPodGroupAnnotation = "evictor-pod-group-name"

	// EvictorNamespaceAnnotation is that PodGroup's namespace.
	EvictorNamespaceAnnotation = "evictor-pod-group-namespace"
)

// Types and reasons of the conditions that scheduler and binder write on pods.
const (
	// PodBoundCondition says whether the binder bound the pod.
	PodBoundCondition = "PodBound"

	// ReasonBound is PodBoundCondition's reason when it is True.
	ReasonBound = "Bound"

	// ReasonBindingError is PodBoundCondition's reason when it is False; PodScheduled=False may carry it, too.
	ReasonBindingError = "BindingError"

	// RoomHeldCondition says whether room is held for the pod on the node of status.nominatedNodeName. It is ours, not KAI's:
	// who finds the node without the condition has not got it from us.
	RoomHeldCondition = "RoomHeld"

	// ReasonWaitingForRelease is RoomHeldCondition's reason when it is True: others are still leaving the node.
	ReasonWaitingForRelease = "WaitingForRelease"

	// ReasonReleased is RoomHeldCondition's reason when it is False: the room is held no more.
	ReasonReleased = "Released"

	// FrozenCondition, on a PodGroup, says that pods of another gang are not evicted for it for a while, because that went
	// round in circles. It is ours, not KAI's.
	FrozenCondition = "EvictionsFrozen"

	// ReasonRepeated is FrozenCondition's reason.
	ReasonRepeated = "RepeatedEvictions"

	// ReasonUnschedulable is the reason of PodScheduled=False on a pod whose gang finds no room.
	ReasonUnschedulable = "Unschedulable"

	// ReasonPreempted is the reason of DisruptionTarget=True on a pod that the scheduler evicts.
	ReasonPreempted = "PreemptionByScheduler"
)

// Reasons of the events that the components write.
const (
	// EventScheduled: the scheduler chose a node for the pod, and, when it stands alone, bound it.
	EventScheduled = "Scheduled"

	// EventPipelined: the scheduler promised the pod room that is still being released.
	EventPipelined = "Pipelined"

	// EventUnschedulable: the pod or gang finds no room.
	EventUnschedulable = "Unschedulable"

	// EventFailedBinding: the scheduler's choice of a node for the pod could not be written, or the binder gave up on it.
	EventFailedBinding = "FailedBinding"

	// EventEvict: pods of the gang are evicted.
	EventEvict = "Evict"

	// EventStaleGang: the started gang fell below its minimum.
	EventStaleGang = "StaleJob"

	// EventNotReady: the gang has fewer pods than its minimum.
	EventNotReady = "NotReady"

	// EventBound: the pod is bound by the binder.
	EventBound = "Bound"

	// EventBindingError: the binder failed to bind the pod.
	EventBindingError = "BindingError"

	// EventPodGrouperWarning: the podgrouper could not find the pod's gang.
	EventPodGrouperWarning = "PodGrouperWarning"
)

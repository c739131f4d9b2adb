package keys

// Names that Volcano gives.
const (
	// SchedulerName is the scheduler that pods name.
	SchedulerName = "volcano"
	// DefaultQueue is where jobs go that name no queue.
	DefaultQueue = "default"
	// RootQueue is the queue above all.
	RootQueue = "root"
	// Namespace is where Volcano lies, and the Leases of its programs.
	Namespace = "volcano-system"
	// LeaseControllers is the Lease of the program that runs the controllers.
	LeaseControllers = "vc-controller-manager"
	// ControllerConfig is the ConfigMap, beside the Lease, that says what the controllers discover; ControllerConfigKey is its key.
	ControllerConfig    = "volcano-controller-configmap"
	ControllerConfigKey = "volcano-controller.conf"
	// ShardingConfig is the ConfigMap, beside the Lease, that says how nodes are divided between schedulers; ShardingConfigKey is its key.
	ShardingConfig    = "volcano-sharding-configmap"
	ShardingConfigKey = "sharding.yaml"
	// AdmissionConfig is the ConfigMap that says what admission does with pods of resource groups; AdmissionConfigKey is its key.
	AdmissionConfig    = "volcano-admission-configmap"
	AdmissionConfigKey = "volcano-admission.conf"
)

// On pods and what owns them: which gang, in which queue.
const (
	// GroupName is the pod's PodGroup, of its namespace. The scheduler reads no other key.
	GroupName = "scheduling.k8s.io/group-name"
	// GroupMinMember, on what owns bare pods, is how many of them start together.
	GroupMinMember = "scheduling.volcano.sh/group-min-member"
	// QueueName is the queue of bare pods, and, on a namespace, of its PodGroups that name none.
	QueueName = "scheduling.volcano.sh/queue-name"
	// QueueAllocationGate, as an annotation, is "true" on pods that ask for the scheduling gate of this name.
	QueueAllocationGate = "scheduling.volcano.sh/queue-allocation-gate"
)

// On the pods of Jobs.
const (
	// TaskSpec is the task's name (annotation and label).
	TaskSpec = "volcano.sh/task-spec"
	// TaskPriority is the pod's priority among those of its gang, instead of that of its spec (annotation).
	TaskPriority = "volcano.sh/task-priority"
	// TaskIndex is the pod's number in its task (annotation and label).
	TaskIndex = "volcano.sh/task-index"
	// JobName is the Job's name (annotation and label).
	JobName = "volcano.sh/job-name"
	// JobNamespace is the Job's namespace (label).
	JobNamespace = "volcano.sh/job-namespace"
	// JobQueueName is the Job's queue (annotation and label).
	JobQueueName = "volcano.sh/queue-name"
	// PartitionID is the pod's partition (label).
	PartitionID = "volcano.sh/partition-id"
	// JobVersion is the Job's status.version when the pod was made (annotation).
	JobVersion = "volcano.sh/job-version"
	// JobRetryCount is the Job's status.retryCount when the pod was made (annotation).
	JobRetryCount = "volcano.sh/job-retry-count"
	// TemplateUID names what the pod was made of: the Job and the task (annotation).
	TemplateUID = "volcano.sh/template-uid"
	// OutOfSync is "true" on a pod that the controller is about to delete: its end is no event (annotation).
	OutOfSync = "volcano.sh/controller-out-of-sync"
	// JobForwarding is "true" on Jobs, and their pods, whose queue has other clusters.
	JobForwarding = "volcano.sh/job-forwarding"
)

// On Jobs and HyperNodes: what they were made of.
const (
	// CronScheduled is the time that a CronJob's Job was due, as RFC 3339 (annotation).
	CronScheduled = "volcano.sh/cronjob-scheduled-timestamp"
	// CreatedByJobFlow and CreatedByJobTemplate are NAMESPACE.NAME of what a flow's Job was made of (annotation and label).
	CreatedByJobFlow     = "volcano.sh/createdByJobFlow"
	CreatedByJobTemplate = "volcano.sh/createdByJobTemplate"
	// ShardSource is, on a NodeShard, who made it (label): ShardSourceController for the controller, which deletes it once no scheduler has its name.
	ShardSource           = "volcano.sh/node-shard-source"
	ShardSourceController = "sharding-controller"
	// WarmNode is "true" on nodes that are warm (label).
	WarmNode = "node.volcano.sh/warmup"
	// TopologySource is, on a HyperNode, the source that it was discovered by (label).
	TopologySource = "volcano.sh/network-topology-source"
)

// On pods, PodGroups and Jobs: who may be disturbed, where.
const (
	// Preemptable is "true" or "false" (annotation or label).
	Preemptable = "volcano.sh/preemptable"
	// SLAWaitingTime, on a PodGroup, is how long it waits to be admitted at most, in Go's words (1h30m). The older key counts where the newer is not there.
	SLAWaitingTime = "volcano.sh/sla-waiting-time"
	// SLAWaitingTimeOlder is the older key.
	SLAWaitingTimeOlder = "sla-waiting-time"
	// CooldownTime is how long after its start a pod is left alone (annotation or label).
	CooldownTime = "volcano.sh/cooldown-time"
	// RevocableZone is "*" on what may run on nodes that are lent for a time; on such a node it is the zone's name (label).
	RevocableZone = "volcano.sh/revocable-zone"
	// TaskTopologyAffinity names tasks whose pods would rather be on one node, TaskTopologyAntiAffinity those whose pods would rather not: names with
	// commas between those of one group, and semicolons between groups; a group of one name is about the pods of one task among themselves. TaskTopologyOrder names tasks
	// in the order in which their pods are placed. All are of PodGroups.
	TaskTopologyAffinity     = "volcano.sh/task-topology-affinity"
	TaskTopologyAntiAffinity = "volcano.sh/task-topology-anti-affinity"
	TaskTopologyOrder        = "volcano.sh/task-topology-task-order"
	// JDBMinAvailable is how many pods must be left, as a number or in percent.
	JDBMinAvailable = "volcano.sh/jdb-min-available"
	// JDBMaxUnavailable is how many may be missing, as a number or in percent.
	JDBMaxUnavailable = "volcano.sh/jdb-max-unavailable"
	// NumaTopologyPolicy is the task's policy, on its pods.
	NumaTopologyPolicy = "volcano.sh/numa-topology-policy"
	// NetworkTopologyMode is hard or soft, on bare pods.
	NetworkTopologyMode = "volcano.sh/network-topology-mode"
	// NetworkTopologyHighestTier is the highest tier allowed, on bare pods.
	NetworkTopologyHighestTier = "volcano.sh/network-topology-highest-tier"
	// OwnPrefix begins the annotations of owners that go to the PodGroups of their pods.
	OwnPrefix = "volcano.sh/"
	// ResourceGroup names the resource group of a pod's namespace or the pod, for admission.
	ResourceGroup = "volcano.sh/resource-group"
)

// On Queues.
const (
	// Hierarchy is the queue's path, such as root/a/b, for shares by hierarchy.
	Hierarchy = "volcano.sh/hierarchy"
	// HierarchyWeights are the weights along the path, such as 1/2/4.
	HierarchyWeights = "volcano.sh/hierarchy-weights"
	// ClosedByParent is "true" on a queue that was closed with its parent, "false" once it was opened again.
	ClosedByParent = "volcano.sh/closed-by-parent"
)

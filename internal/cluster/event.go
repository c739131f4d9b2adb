package cluster

import "time"

import v1 "k8s.io/api/core/v1"

// Quantity is an amount of one named dimension in base units, as dialects read it from objects.
type Quantity struct {
	Name  string // "cpu", "memory", "gpu", "pods", or a resource name
	Value int64
}

// Event is one change of the observed world. Applying events is the only way to change a Store from outside; the order
// of events about different objects does not matter to the state that results.
type Event interface{ apply(s *Store) bool }

// NodeState is a node as observed: the event that creates or updates it, and the part of Node that the API server says.
type NodeState struct {
	Name   string
	UID    string
	Labels map[string]string // shared with the API object, never written
	Taints []v1.Taint
	// Problem says why the node takes no pods at all: "NotReady", "Unschedulable", "MemoryPressure", "DiskPressure",
	// "PIDPressure", "NetworkUnavailable", NoWorkerLabel; "" when it is fine.
	Problem string
	// GPUMemoryMiB is the memory of each GPU; 0 when unknown.
	GPUMemoryMiB MiB
	// Slicing is how its GPUs are cut into slices.
	Slicing Slicing
	// Allocatable is what pods may take in all; in a Node, a vector.
	Allocatable []Quantity
	// ClaimGPUs is how many GPUs pods get by resource claim, in milli-GPU, over those in Allocatable.
	ClaimGPUs int64
	// ByClaim names the extended resources that are given as devices here, by the structured allocator; of these, Allocatable
	// is an upper bound.
	ByClaim []string
	// Sets are the sets of nodes that it is in, by name; nil for none. Pods may keep to one, or prefer it.
	Sets []string `json:",omitempty"`
}

// NodeGone removes a node. Pods on it keep their node name and take room nowhere.
type NodeGone struct{ Name string }

// PodState is a pod as observed: the event that creates or updates it, and the part of Pod that the API server says. Pods are
// identified by UID.
type PodState struct {
	UID       string
	Namespace string
	Name      string
	// Labels is shared with the API object and never written.
	Labels map[string]string
	// Requests is what it takes of a node's sums, Charge what its queue is charged for it; nil for the same as Requests. In a Pod, its
	// Class has them, and Spec too.
	Requests []Quantity
	Charge   []Quantity
	// Spec is the pod's class, nil for nothing but Requests; its fields Requests and Charge are ignored. It is not written to.
	Spec *ClassSpec
	// Groups are the shared devices that it holds, or that a live BindRequest gives it; of a reservation pod, the one that
	// it is for.
	Groups []string
	// Zones is what it has of the NUMA zones of its node, by what its node has observed, or else by what was predicted.
	Zones []ZoneShare
	// Phase as observed, Releasing for any pod being deleted (the Store turns it into StuckReleasing by DeletedAt).
	Phase    Phase
	NodeName string // spec.nodeName, or the node of a live BindRequest
	Gang     Key    // zero: of no gang
	SetName  string // the pod set it asks for, "" for the default one
	// Ours says whether one of our scheduler names is on the pod; others only take room.
	Ours bool
	// Kept says that it is not evicted, nor moved, for others of its face.
	Kept bool
	// Cooldown is how long after it was Scheduled it is not evicted for others of its face, where somebody sees to that; 0 for not at all. Scheduled is when it got its node,
	// as its object says, and is not known of a pod without a Cooldown.
	Cooldown  time.Duration
	Scheduled Instant
	// Entry says whether its queue has to let it in before it may be placed, where somebody sees to that.
	Entry Entry
	// Priority is its own beside others of its gang, where somebody sees to that.
	Priority int32
	// Utility marks our own reservation and scaling pods, which take room but belong to nobody's usage.
	Utility bool
	Created Instant
	// DeletedAt is when its grace ends or ended (deletionTimestamp); 0 when it is not being deleted.
	DeletedAt Instant
	// Nominated is the node of status.nominatedNodeName, "" for none.
	Nominated string
	// Recreated says that a controller makes a new pod when this one is deleted.
	Recreated bool
	// Returning says that it is going because it was evicted, by whomever, and that a controller makes a new pod then: what it
	// asks for is still asked for.
	Returning bool
	// Charged is the record of what it holds its room by, the zero value for none; it counts while the pod holds room.
	Charged Charged
	// InOtherShard is the UID of the gang that it holds its room for, if that has moved to another shard; "" otherwise. It says only
	// whom to tell.
	InOtherShard string
	// DeviceClaims says which objects stand for Spec.Devices, one for each; Allocations is what a live BindRequest gives them.
	DeviceClaims []DeviceClaim
	Allocations  []ClaimAllocation
}

// PodGone removes a pod.
type PodGone struct{ UID string }

// GangState is a gang as observed: the event that creates or updates it, and the part of Gang that its object says. Gangs are identified
// by Key; another UID under the same Key is another gang that takes its place.
type GangState struct {
	Key Key
	UID string
	// Queue is the leaf queue's name as the gang asks for it; of a remnant, the one that is charged.
	Queue       string
	Priority    int32
	Preemptible bool
	Created     Instant
	// Sets is the tree; Sets[0] is the root. A gang with a broken tree has Sets of the root only and Invalid set.
	Sets []Set
	// Invalid says why the gang cannot be scheduled as it is written ("" when it can): one sentence for its owner.
	Invalid string
	// MarkUnschedulable: write PodScheduled=False on the pods that cannot be placed. Backoff: stop after the first
	// failed attempt until the gang changes.
	MarkUnschedulable bool
	Backoff           bool
	// GaveUp is set by the dialect when Backoff applies and a failed attempt has been recorded on the object.
	GaveUp bool
	// LastStart is when the gang last got its minimum; 0 for never. LastEviction is when pods of it were
	// last evicted, StaleSince since when it has had pods and too few of them. In a Gang, they are what the Store knows.
	LastStart    Instant
	LastEviction Instant
	StaleSince   Instant
	// PreemptionDelay is how long the gang waits, from its creation or last eviction on, before others may be disturbed for
	// it. StaleGrace is how long it may stay below its minimum once it has run: negative for
	// ever; unset for the scheduler's default.
	PreemptionDelay time.Duration
	StaleGrace      Maybe[time.Duration]
	// BeforePods says that it is told why it waits before it has any pods: they are made once it may start.
	BeforePods bool
	// Whole says that it gives all of its pods or none.
	Whole bool
	// Asks is what its minimum asks for, as its object says; nil where that does not say so. It counts where gangs have to be admitted.
	Asks []Quantity
	// AdmitAfter is how long it waits to be admitted before it may be all the same, where somebody sees to that; unset for what is said there.
	AdmitAfter Maybe[time.Duration]
	// Yields says that its owner lets it make way for others, where somebody sees to that, and Budget how many of its pods may be taken from it at a time then; nil for one.
	Yields bool        `json:",omitempty"`
	Budget *GangBudget `json:",omitempty"`
	// Company says which of its pods would rather be on one node, where somebody sees to that; nil for nothing.
	Company *Company `json:",omitempty"`
	// Generation is the object's metadata.generation, so that a changed gang is tried anew.
	Generation int64
}

// GangBudget is how many pods of a gang may be taken at a time: Number of them, or, where that many have to be left, all but those. In percent it is of the pods that it has, rounded up.
type GangBudget struct {
	Number        int32
	Percent, Left bool `json:",omitempty"`
}

// Company is what the pods of a gang would have on a node, by what their SetName calls them. Together are groups of names whose pods would rather be on one node, Apart
// groups whose pods would rather not: of different names of a group, or, of a group of one, among themselves. Order names whose pods come first.
type Company struct {
	Together, Apart [][]string `json:",omitempty"`
	Order           []string   `json:",omitempty"`
}

// MaxCompany is how many names the groups of a Company, and its Order, may have in all.
const MaxCompany = 64

// GangGone removes a gang. Its pods stay, belonging to none; those that hold room are charged as before, see [Charged].
type GangGone struct{ Key Key }

// QueueState is a queue as observed: the event that creates or updates it, and the part of Queue that its object says.
type QueueState struct {
	// Name tells queues of all faces apart; see [QueueName].
	Name     string
	UID      string
	Display  string
	Parent   string // "" for a top-level queue
	Priority int32
	Created  Instant
	// Quota (deserved), Limit and Weight (over-quota weight, in thousandths) name their dimensions; Unlimited is allowed for Quota and
	// Limit. A dimension not named has quota 0, no limit, and weight 0. In a Queue, they are vectors, and Guarantee is.
	Quota  []Quantity
	Limit  []Quantity
	Weight []Quantity
	// Guarantee is what is kept free for it where somebody sees to that; Quota is no less. A dimension that is not named is 0.
	Guarantee []Quantity
	// PreemptMinRuntime and ReclaimMinRuntime are how long its gangs may not be disturbed after their start;
	// unset for what the queues above say.
	PreemptMinRuntime Maybe[time.Duration]
	ReclaimMinRuntime Maybe[time.Duration]
	// BudgetsBlock says that PodDisruptionBudgets of its work must not be violated, not even for what it holds over quota.
	BudgetsBlock bool
	// NotReclaimable says that nothing is taken from it for other queues, where somebody sees to that.
	NotReclaimable bool
	// Closed says in one sentence why nothing new starts in the queue, "" where it does. What runs there stays.
	Closed string
	// Path is its way from the root, which it leaves out, in a hierarchy of its own beside that of parents, where somebody sees to that; nil for none.
	Path []Step `json:",omitempty"`
	// InOrder says that it hands out in order: while a gang of it waits for its minimum, nothing is given to those behind.
	InOrder bool `json:",omitempty"`
	// NodeGroups are the groups of nodes that its work runs on, where somebody sees to that; nil where it says nothing of them.
	NodeGroups *NodeGroups `json:",omitempty"`
}

// NodeGroups are groups of nodes by name: those that a queue requires and prefers, the first most, those that it would rather not have, and those that it refuses.
type NodeGroups struct {
	Required, Preferred, Avoided, Refused []string `json:",omitempty"`
}

// Step is one of a queue's path.
type Step struct {
	Name   string
	Weight int64 // in millionths
}

// UsageState is what queues used of the cluster lately: queue name, dimension, millionths of the cluster. It replaces
// everything known before; nil means that there is no history.
type UsageState struct{ Queues map[string][]Quantity }

// QueueGone removes a queue. Its gangs stay and wait for it.
type QueueGone struct{ Name string }

// ObjectKind is a kind of object the engine carries for filters without understanding it.
type ObjectKind string

// The kinds carried for filters.
const (
	PersistentVolumes      ObjectKind = "PersistentVolume"
	PersistentVolumeClaims ObjectKind = "PersistentVolumeClaim"
	StorageClasses         ObjectKind = "StorageClass"
	CSINodes               ObjectKind = "CSINode"
	CSIDrivers             ObjectKind = "CSIDriver"
	CSIStorageCapacities   ObjectKind = "CSIStorageCapacity"
	Namespaces             ObjectKind = "Namespace"
	ConfigMaps             ObjectKind = "ConfigMap"
	PriorityClasses        ObjectKind = "PriorityClass"
	PodDisruptionBudgets   ObjectKind = "PodDisruptionBudget"
	NodeResourceTopologies ObjectKind = "NodeResourceTopology"             // as *NodeZones
	ResourceQuotas         ObjectKind = "ResourceQuota"                    // as *SpaceQuota
	Numatopologies         ObjectKind = "Numatopology.nodeinfo.volcano.sh" // as *NodeZones
	NodeUses               ObjectKind = "NodeUse"                          // as *NodeUse; no API object makes it
)

// SpaceQuota is a ResourceQuota of a namespace: each amount that it bounds, in the order of its names.
type SpaceQuota struct{ Bounds []QuotaBound }

// QuotaBound bounds what the pods of a namespace ask for of a dimension, in its units: Hard, of which Used is used.
type QuotaBound struct {
	Dim        string
	Hard, Used int64
}

// NodeUse is what of a node was measured to be in use, by those who watch machines. It is carried for the plugin usage, by the node's name.
type NodeUse struct {
	// CPU and Memory are what was in use, in whole percents of the machine, from 0 to 100: the mean over a time that ended at At.
	CPU, Memory int64
	At          Instant
}

// ObjectState sets an object carried for filters. Object is an API object that nobody writes to any more.
type ObjectState struct {
	Kind   ObjectKind
	Key    string // "namespace/name" or "name"
	Object any
}

// ObjectGone removes an object carried for filters.
type ObjectGone struct {
	Kind ObjectKind
	Key  string
}

package cluster

import v1 "k8s.io/api/core/v1"

// Quantity is an amount of one named dimension in base units, as dialects read it from objects.
type Quantity struct {
	Name  string // "cpu", "memory", "gpu", "pods", or a resource name
	Value int64
}

// Event is one change of the observed world. Applying events is the only way to change a Store from outside; the order
// of events about different objects does not matter to the state that results.
type Event interface{ apply(s *Store) bool }

// NodeState is a node as observed: the event that creates or updates it.
type NodeState struct {
	Name         string
	UID          string
	Labels       map[string]string
	Taints       []v1.Taint
	Problem      string // see Node.Problem
	GPUMemoryMiB int64
	Slicing      Slicing
	Allocatable  []Quantity
	ClaimGPUs    int64    // see Node.ClaimGPUs
	ByClaim      []string // see Node.ByClaim
}

// NodeGone removes a node. Pods on it keep their node name and take room nowhere.
type NodeGone struct{ Name string }

// PodState is a pod as observed: the event that creates or updates it. Pods are identified by UID.
type PodState struct {
	UID, Namespace, Name string
	Labels               map[string]string
	Requests             []Quantity
	// Charge is what its queue is charged for it; nil for the same as Requests.
	Charge []Quantity
	// Spec is the pod's class; its fields Requests and Charge are ignored (those above are used).
	Spec ClassSpec
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
	Ours     bool
	Utility  bool
	// Charged is the record of what it holds its room by, the zero value for none; it counts while the pod holds room.
	Charged Charged
	// Abroad is the UID of the gang that it holds its room for, if that has moved to another shard; "" otherwise. It says only
	// whom to tell.
	Abroad  string
	Created int64
	// DeletedAt is when its grace ends or ended (deletionTimestamp), Unix nanoseconds; 0 when it is not being deleted.
	DeletedAt int64
	Nominated string
	// Recreated says that a controller makes a new pod when this one is deleted.
	Recreated bool
	// Returning says that it is going because it was evicted, by whomever, and that a controller makes a new pod then: what it
	// asks for is still asked for.
	Returning bool
	// DeviceClaims says which objects stand for Spec.Devices, one for each; Allocations is what a live BindRequest gives them.
	DeviceClaims []DeviceClaim
	Allocations  []ClaimAllocation
}

// PodGone removes a pod.
type PodGone struct{ UID string }

// GangState is a gang as observed: the event that creates or updates it. Gangs are identified by Key; another UID
// under the same Key is another gang that takes its place.
type GangState struct {
	Key               Key
	UID               string
	Queue             string
	Priority          int32
	Preemptible       bool
	Created           int64
	Sets              []Set
	Invalid           string
	MarkUnschedulable bool
	Backoff           bool
	GaveUp            bool
	LastStart         int64
	LastEviction      int64
	StaleSince        int64
	PreemptionDelay   int64
	StaleGrace        Maybe
	// Generation is the object's metadata.generation, so that a changed gang is tried anew.
	Generation int64
}

// GangGone removes a gang. Its pods stay, belonging to none; those that hold room are charged as before, see [Charged].
type GangGone struct{ Key Key }

// QueueState is a queue as observed. Quota, Limit (Unlimited allowed) and Weight (thousandths) name their dimensions; a
// dimension not named has quota 0, no limit, and weight 0.
type QueueState struct {
	Name, UID, Display, Parent string
	Priority                   int32
	Created                    int64
	Quota, Limit, Weight       []Quantity
	PreemptMinRuntime          Maybe
	ReclaimMinRuntime          Maybe
	BudgetsBlock               bool
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
	NodeResourceTopologies ObjectKind = "NodeResourceTopology" // as *NodeZones
)

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

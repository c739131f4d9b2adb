package kai

import "github.com/muster-scheduler/muster/api/kai/keys"

// Keys of labels and annotations, and their defaults where a flag can change them.
const (
	// DefaultNodePoolKey is the label that puts nodes, queues and PodGroups into a shard.
	DefaultNodePoolKey = keys.NodePoolLabel
	// DefaultPool is what scheduling conditions call the pool of the objects without a node-pool label.
	DefaultPool = keys.DefaultNodePool
	// DefaultSchedulerName is the spec.schedulerName of the pods that are ours.
	DefaultSchedulerName = keys.SchedulerName
	// DefaultReservationApp is the value of AppLabel on pods that hold a device on behalf of pods sharing it.
	DefaultReservationApp = keys.ReservationNamespace
	// ScalingApp is the value of AppLabel on pods that exist to make a cluster autoscaler add a node.
	ScalingApp = keys.ScalingPodApp
	// AppLabel is the pod label by which reservation and scaling pods are known.
	AppLabel = keys.AppLabel

	// PodGroupAnnotation, on a pod, names the PodGroup of the pod's namespace that it belongs to.
	PodGroupAnnotation = keys.PodGroupAnnotation
	// SubGroupLabel, on a pod, names the subgroup it belongs to.
	SubGroupLabel = keys.SubGroupLabel
	// LastStartAnnotation, on a PodGroup, is when it last got its minimum (RFC 3339).
	LastStartAnnotation = keys.LastStartAnnotation
	// LastEvictionAnnotation, on a PodGroup, is when pods of it were last evicted (RFC 3339).
	LastEvictionAnnotation = keys.LastEvictionAnnotation
	// StaleSinceAnnotation, on a PodGroup, is since when it has pods and too few of them (RFC 3339).
	StaleSinceAnnotation = keys.StaleSinceAnnotation
	// BudgetsAnnotation, on a Queue, says what PodDisruptionBudgets do for the queue's work: BudgetsOrder or BudgetsBlock.
	BudgetsAnnotation = keys.BudgetsAnnotation
	// BudgetsOrder and BudgetsBlock are the values of BudgetsAnnotation.
	BudgetsOrder = keys.BudgetsOrder
	BudgetsBlock = keys.BudgetsBlock
	// FractionAnnotation, on a pod, asks for a share of a GPU.
	FractionAnnotation = keys.GPUFractionAnnotation
	// MemoryAnnotation, on a pod, asks for an amount of GPU memory in MiB.
	MemoryAnnotation = keys.GPUMemoryAnnotation
	// MIGPrefix starts the names of the resources that are slices of a GPU.
	MIGPrefix = keys.MIGResourcePrefix

	// SelectedNodeLabel, on a BindRequest, repeats spec.selectedNode.
	SelectedNodeLabel = keys.SelectedNodeLabel
	// BundleLabel, on a BindRequest, is the id shared by all BindRequests that must take effect together or not at all.
	BundleLabel = keys.BundleLabel
	// BundleSizeLabel, on a BindRequest, is the number of BindRequests of its bundle (decimal).
	BundleSizeLabel = keys.BundleSizeLabel
)

// Partition says which objects a shard is responsible for, by one label.
type Partition struct {
	// Key is the label; "" means there are no shards and everything belongs.
	Key string
	// Value is what the label must say; "" means that the label must be absent.
	Value string
}

// Includes says whether an object with these labels belongs to the shard.
func (p Partition) Includes(labels map[string]string) bool {
	if p.Key == "" {
		return true
	}
	v, ok := labels[p.Key]
	if p.Value == "" {
		return !ok
	}
	return ok && v == p.Value
}

// Pool is what the scheduling conditions of PodGroups call this shard: its value, or DefaultPool.
func (p Partition) Pool() string {
	if p.Value == "" {
		return DefaultPool
	}
	return p.Value
}

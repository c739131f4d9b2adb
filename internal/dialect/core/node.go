package core

import (
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// GPUMemoryLabel is the node label that says how much memory each of the node's GPUs has, in MiB. GPU feature discovery
// writes it.
const GPUMemoryLabel = "nvidia.com/gpu.memory"

// bytesPerMiB is both the size of a MiB and the value from which GPUMemoryLabel is taken to be in bytes.
const bytesPerMiB = 1 << 20

// The values of cluster.Node.Problem, by precedence: a node with several has the first.
const (
	NotReady           = "NotReady"
	Unschedulable      = "Unschedulable"
	MemoryPressure     = "MemoryPressure"
	DiskPressure       = "DiskPressure"
	PIDPressure        = "PIDPressure"
	NetworkUnavailable = "NetworkUnavailable"
)

// Node returns the event that makes the model know n as it is.
func Node(n *v1.Node) cluster.NodeState {
	return cluster.NodeState{
		Name: n.Name, UID: string(n.UID), Labels: n.Labels, Taints: n.Spec.Taints,
		Problem: NodeProblem(n), GPUMemoryMiB: GPUMemoryMiB(n.Labels[GPUMemoryLabel]), Allocatable: Amounts(n.Status.Allocatable),
	}
}

// NodeProblem says why n takes no pods at all, "" when it takes some: its Ready condition is not there or not True, it
// is cordoned, or one of the pressure and network conditions is there and not False.
func NodeProblem(n *v1.Node) string {
	ready := false
	var memory, disk, pids, network bool
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		bad := c.Status != v1.ConditionFalse
		switch c.Type {
		case v1.NodeReady:
			ready = c.Status == v1.ConditionTrue
		case v1.NodeMemoryPressure:
			memory = bad
		case v1.NodeDiskPressure:
			disk = bad
		case v1.NodePIDPressure:
			pids = bad
		case v1.NodeNetworkUnavailable:
			network = bad
		}
	}
	switch {
	case !ready:
		return NotReady
	case n.Spec.Unschedulable:
		return Unschedulable
	case memory:
		return MemoryPressure
	case disk:
		return DiskPressure
	case pids:
		return PIDPressure
	case network:
		return NetworkUnavailable
	}
	return ""
}

// GPUMemoryMiB reads the value of GPUMemoryLabel; 0 for a label that is absent or no positive number.
func GPUMemoryMiB(label string) cluster.MiB {
	if label == "" {
		return 0
	}
	x, err := strconv.ParseInt(label, 10, 64)
	if err != nil || x < 0 {
		return 0
	}
	if x >= bytesPerMiB {
		x /= bytesPerMiB
	}
	return cluster.MiB(cluster.Clamp(x))
}

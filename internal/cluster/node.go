package cluster

import "slices"

// NoWorkerLabel is the Problem of a node that carries neither label of workers where nodes are restricted.
const NoWorkerLabel = "NoWorkerLabel"

// Node is one node as the scheduler sees it. It is immutable in a Snapshot.
type Node struct {
	NodeState // as observed; amounts are in the fields below
	ID        NodeID
	// Devices are the GPUs that pods share, by group.
	Devices []SharedDevice
	// Allocatable is what pods may take in all.
	Allocatable Resources
	// Used is the sum of the requests of the pods holding room, Releasing the part of Used that is being given back; both stop
	// at MaxSum.
	Used      Resources
	Releasing Resources
	// Foreign is the part of Used held by pods of other schedulers, our own utility pods apart.
	Foreign Resources
	// Pods are those holding room, in no meaningful order.
	Pods []PodID
	// StaticGen changes whenever labels, taints, problem or allocatable change, and is never reused.
	StaticGen uint64

	used, releasing, foreign sum // exactly
	epoch                    uint64
}

// In says whether the node is in a set of nodes; every node is in that without a name.
func (n *Node) In(set string) bool { return set == "" || slices.Contains(n.Sets, set) }

// Idle returns what is free now: Allocatable − Used. Negative dimensions are room that others overcommitted.
func (n *Node) Idle() Resources {
	idle := make(Resources, max(len(n.Allocatable), len(n.used)))
	n.Free(idle, nil)
	return idle
}

// Later returns what will be free once everything that is being released has gone: Idle + Releasing.
func (n *Node) Later() Resources {
	later := make(Resources, max(len(n.Allocatable), len(n.used)))
	n.Free(nil, later)
	return later
}

// Free writes Idle and Later into vectors of zeros that are long enough; nil for one that is not asked for.
func (n *Node) Free(idle, later Resources) {
	for d := range max(len(idle), len(later)) {
		have, used := n.Allocatable.At(d), n.used.at(d)
		if idle != nil {
			idle[d] = capped(have, -used.read())
		}
		if later != nil {
			later[d] = capped(have, -used.minus(n.releasing.at(d)).read())
		}
	}
}

// tell brings what everybody reads in line with the exact sums.
func (n *Node) tell() {
	n.Used, n.Releasing, n.Foreign = n.used.read(n.Used), n.releasing.read(n.Releasing), n.foreign.read(n.Foreign)
}

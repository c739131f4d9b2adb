// Package votes is how Volcano's plugins vote on who is admitted (overcommit, proportion, capacity and sla), and on whose pods gangs of Volcano's may take from others of
// them (gang, priority, conformance, proportion, capacity and drf), in which order queues, gangs and pods go, and what a queue is given (proportion and capacity). The formulas are those of Volcano's documentation.
//
// Amounts are integers in the model's units. There is one rule of rounding: a product with a factor is cut to the unit below, and the factor, a decimal number, is taken
// in millionths, cut likewise. Shares are in million-millionths, cut likewise.
//
// What is asked for to be admitted is what a gang's minimum asks for; only the dimensions that it asks for are looked at, and slots for pods are not. The cluster is all nodes that are
// known, whether they take pods or not.
package votes

import "github.com/muster-scheduler/muster/internal/cluster"

// total is what all nodes have.
func total(snap *cluster.Snapshot) cluster.Resources {
	out := make(cluster.Resources, snap.Dims.Len())
	for _, id := range snap.NodeOrder {
		out.AddCapped(snap.Node(id).Allocatable)
	}
	return out
}

// whole is what all nodes have, with what is there of GPUs as queues are charged for them: those that pods get by claim, and in slices.
func whole(snap *cluster.Snapshot) cluster.Resources {
	out := total(snap)
	for _, id := range snap.NodeOrder {
		out[cluster.GPU] += snap.Node(id).ClaimGPUs
	}
	out[cluster.GPU] += snap.Dims.SlicedGPUs(out)
	return out
}

// short returns the first dimension that is asked for and in which it is more than there is.
func short(asks cluster.Resources, left func(d int) int64) (d int, ok bool) {
	for d, x := range asks {
		if x > 0 && x > left(d) {
			return d, true
		}
	}
	return 0, false
}

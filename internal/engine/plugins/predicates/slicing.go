package predicates

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// servesSlicing says whether the way the node's GPUs are cut serves pods of the class. Whether enough of them is free is not
// asked here.
func (i *instance) servesSlicing(c *cluster.Class, n *cluster.Node) bool {
	if c.CPUOnly() {
		return true
	}
	switch n.Slicing {
	case cluster.Unsliced:
		return !i.asksSlices(c)
	case cluster.SlicedSingle:
		return !i.asksSlices(c) && c.Share.None()
	case cluster.SlicedMixed:
		return i.asksSlices(c)
	}
	return true
}

// asksSlices says whether pods of the class ask for slices of GPUs by name.
func (i *instance) asksSlices(c *cluster.Class) bool {
	for _, s := range i.slices {
		if c.Requests.At(s.Dim) > 0 {
			return true
		}
	}
	return false
}

// checkLegacy keeps pods that ask for slices of GPUs by name away from those that have theirs by annotation, and the other way
// round: somebody else cuts the GPUs of a node for the latter.
func (i *instance) checkLegacy(c *cluster.Class, n *cluster.Node) policy.Verdict {
	if !i.mindsLegacy(c) {
		return policy.Verdict{}
	}
	snap := i.view.Snapshot()
	first := ""
	look := func(p *cluster.Pod) {
		if i.mindsLegacy(p.Class) && p.Class.LegacySlices != c.LegacySlices && (first == "" || p.FullName() < first) {
			first = p.FullName()
		}
	}
	for _, id := range n.Pods {
		if q := snap.Pod(id); i.view.NodeOf(q) == n.ID {
			look(q)
		}
	}
	for _, q := range i.came[n.ID] {
		look(q)
	}
	if first == "" {
		return policy.Verdict{}
	}
	return policy.Verdict{Code: policy.No, Reason: ReasonLegacySlices, Object: first}
}

// mindsLegacy says whether pods of the class have slices of one kind or the other, where there are both.
func (i *instance) mindsLegacy(c *cluster.Class) bool {
	return i.legacy && (c.LegacySlices || i.asksSlices(c))
}

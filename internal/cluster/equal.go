package cluster

import (
	"maps"
	"slices"
)

// The functions below say whether two events about one object say the same, but for amounts, which the Store compares as vectors. They
// are all the code that goes over the fields of an event one by one: what a model says is copied whole. A test proves by reflection that
// they forget none.

func (a *NodeState) equal(b *NodeState) bool {
	return a.Name == b.Name && a.UID == b.UID && a.Problem == b.Problem && a.GPUMemoryMiB == b.GPUMemoryMiB && a.Slicing == b.Slicing &&
		a.ClaimGPUs == b.ClaimGPUs && slices.Equal(a.ByClaim, b.ByClaim) && maps.Equal(a.Labels, b.Labels) && same(a.Taints, b.Taints)
}

func (a *PodState) equal(b *PodState) bool {
	return a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name && a.Phase == b.Phase && a.NodeName == b.NodeName &&
		a.Gang == b.Gang && a.SetName == b.SetName && a.Ours == b.Ours && a.Utility == b.Utility && a.Created == b.Created &&
		a.DeletedAt == b.DeletedAt && a.Nominated == b.Nominated && a.Recreated == b.Recreated && a.Returning == b.Returning &&
		a.Charged == b.Charged && a.Abroad == b.Abroad && slices.Equal(a.Groups, b.Groups) && slices.EqualFunc(a.Zones, b.Zones, ZoneShare.equal) &&
		maps.Equal(a.Labels, b.Labels) && slices.Equal(a.DeviceClaims, b.DeviceClaims) &&
		len(a.Allocations) == len(b.Allocations) && (len(a.Allocations) == 0 || same(a.Allocations, b.Allocations))
}

func (a *GangState) equal(b *GangState) bool {
	return a.Key == b.Key && a.UID == b.UID && a.Queue == b.Queue && a.Priority == b.Priority && a.Preemptible == b.Preemptible &&
		a.Created == b.Created && a.Invalid == b.Invalid && a.MarkUnschedulable == b.MarkUnschedulable && a.Backoff == b.Backoff &&
		a.GaveUp == b.GaveUp && a.LastStart == b.LastStart && a.LastEviction == b.LastEviction && a.StaleSince == b.StaleSince &&
		a.PreemptionDelay == b.PreemptionDelay && a.StaleGrace == b.StaleGrace && a.Generation == b.Generation && slices.EqualFunc(a.Sets, b.Sets, Set.equal)
}

func (s Set) equal(o Set) bool {
	return s.Name == o.Name && s.Parent == o.Parent && s.Leaf == o.Leaf && s.Min == o.Min && s.Near == o.Near && slices.Equal(s.Children, o.Children)
}

func (a *QueueState) equal(b *QueueState) bool {
	return a.Name == b.Name && a.UID == b.UID && a.Display == b.Display && a.Parent == b.Parent && a.Priority == b.Priority && a.Created == b.Created &&
		a.PreemptMinRuntime == b.PreemptMinRuntime && a.ReclaimMinRuntime == b.ReclaimMinRuntime && a.BudgetsBlock == b.BudgetsBlock
}

// equal leaves out when the promise runs out, and who made it: it is made anew in each cycle, and is the same.
func (a *HoldState) equal(b *HoldState) bool {
	return a.Gang == b.Gang && a.Pod == b.Pod && a.Moved == b.Moved && a.Set == b.Set && a.Node == b.Node && a.Share == b.Share &&
		same(a.Claims, b.Claims) && slices.EqualFunc(a.Zones, b.Zones, ZoneShare.equal)
}

func (a *TopologyState) equal(b *TopologyState) bool {
	return a.Name == b.Name && a.UID == b.UID && slices.Equal(a.Levels, b.Levels)
}

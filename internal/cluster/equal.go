package cluster

import (
	"maps"
	"slices"
)

// The functions below say whether two events about one object say the same, but for amounts, which the Store compares as vectors. They
// are all the code that goes over the fields of an event one by one: what a model says is copied whole. A test proves by reflection that
// they forget none.

func (e *NodeState) equal(b *NodeState) bool {
	return e.Name == b.Name && e.UID == b.UID && e.Problem == b.Problem && e.GPUMemoryMiB == b.GPUMemoryMiB && e.Slicing == b.Slicing &&
		e.ClaimGPUs == b.ClaimGPUs && slices.Equal(e.ByClaim, b.ByClaim) && slices.Equal(e.Sets, b.Sets) && maps.Equal(e.Labels, b.Labels) && same(e.Taints, b.Taints)
}

func (e *PodState) equal(b *PodState) bool {
	return e.UID == b.UID && e.Namespace == b.Namespace && e.Name == b.Name && e.Phase == b.Phase && e.NodeName == b.NodeName &&
		e.Gang == b.Gang && e.SetName == b.SetName && e.Ours == b.Ours && e.Kept == b.Kept && e.Entry == b.Entry && e.Cooldown == b.Cooldown && e.Scheduled == b.Scheduled && e.Priority == b.Priority && e.Utility == b.Utility && e.Created == b.Created &&
		e.DeletedAt == b.DeletedAt && e.Nominated == b.Nominated && e.Recreated == b.Recreated && e.Returning == b.Returning &&
		e.Charged == b.Charged && e.InOtherShard == b.InOtherShard && slices.Equal(e.Groups, b.Groups) && slices.EqualFunc(e.Zones, b.Zones, ZoneShare.equal) &&
		maps.Equal(e.Labels, b.Labels) && slices.Equal(e.DeviceClaims, b.DeviceClaims) &&
		len(e.Allocations) == len(b.Allocations) && (len(e.Allocations) == 0 || same(e.Allocations, b.Allocations))
}

func (e *GangState) equal(b *GangState) bool {
	return e.Key == b.Key && e.UID == b.UID && e.Queue == b.Queue && e.Priority == b.Priority && e.Preemptible == b.Preemptible &&
		e.Created == b.Created && e.Invalid == b.Invalid && e.MarkUnschedulable == b.MarkUnschedulable && e.Backoff == b.Backoff &&
		e.GaveUp == b.GaveUp && e.LastStart == b.LastStart && e.LastEviction == b.LastEviction && e.StaleSince == b.StaleSince &&
		e.PreemptionDelay == b.PreemptionDelay && e.StaleGrace == b.StaleGrace && e.BeforePods == b.BeforePods && e.Whole == b.Whole && e.AdmitAfter == b.AdmitAfter &&
		e.Yields == b.Yields && e.Budget.equal(b.Budget) && e.Company.equal(b.Company) && (e.Asks == nil) == (b.Asks == nil) && slices.Equal(e.Asks, b.Asks) && e.Generation == b.Generation && slices.EqualFunc(e.Sets, b.Sets, Set.equal)
}

func (b *GangBudget) equal(o *GangBudget) bool {
	return b == o || b != nil && o != nil && *b == *o
}

func (c *Company) equal(o *Company) bool {
	if c == nil || o == nil {
		return c == o
	}
	return slices.EqualFunc(c.Together, o.Together, slices.Equal[[]string]) && slices.EqualFunc(c.Apart, o.Apart, slices.Equal[[]string]) && slices.Equal(c.Order, o.Order)
}

func (s Set) equal(o Set) bool {
	return s.Name == o.Name && s.Parent == o.Parent && s.Leaf == o.Leaf && s.Min == o.Min && s.Pods == o.Pods && s.Rest == o.Rest && s.Near == o.Near && s.Whole == o.Whole && s.UID == o.UID && slices.Equal(s.Children, o.Children)
}

func (e *QueueState) equal(b *QueueState) bool {
	return e.Name == b.Name && e.UID == b.UID && e.Display == b.Display && e.Parent == b.Parent && e.Priority == b.Priority && e.Created == b.Created &&
		e.PreemptMinRuntime == b.PreemptMinRuntime && e.ReclaimMinRuntime == b.ReclaimMinRuntime && e.BudgetsBlock == b.BudgetsBlock && e.NotReclaimable == b.NotReclaimable && e.Closed == b.Closed && e.InOrder == b.InOrder &&
		slices.Equal(e.Path, b.Path) && e.NodeGroups.equal(b.NodeGroups)
}

func (g *NodeGroups) equal(o *NodeGroups) bool {
	if g == nil || o == nil {
		return g == o
	}
	return slices.Equal(g.Required, o.Required) && slices.Equal(g.Preferred, o.Preferred) && slices.Equal(g.Avoided, o.Avoided) && slices.Equal(g.Refused, o.Refused)
}

// equal leaves out when the promise runs out, and who made it: it is made anew in each cycle, and is the same.
func (h *HoldState) equal(b *HoldState) bool {
	return h.Gang == b.Gang && h.Pod == b.Pod && h.Moved == b.Moved && h.Set == b.Set && h.Node == b.Node && h.Share == b.Share &&
		same(h.Claims, b.Claims) && slices.EqualFunc(h.Zones, b.Zones, ZoneShare.equal)
}

func (e *TopologyState) equal(b *TopologyState) bool {
	return e.Name == b.Name && e.UID == b.UID && slices.Equal(e.Levels, b.Levels) && e.sameDeclared(b)
}

func (e *TopologyState) sameDeclared(b *TopologyState) bool {
	return (e.Declared == nil) == (b.Declared == nil) && maps.EqualFunc(e.Declared, b.Declared, slices.Equal[[]string])
}

package volcano

import (
	"slices"
	"strconv"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	topology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
)

// allocatedHyperNode is an annotation of PodGroups of which Muster has no constant, since nothing reads it.
const allocatedHyperNode = "volcano.sh/job-allocated-hypernode"

// ofTopology are the differences that are seen from HyperNodes, and from who asks for them.
func ofTopology() []difference {
	asks := func(is func(*Objects, *scheduling.NetworkTopologySpec) bool) func(*Objects, *found) {
		return func(o *Objects, f *found) {
			for i := range o.Groups {
				g := &o.Groups[i]
				all := []*scheduling.NetworkTopologySpec{g.Spec.NetworkTopology}
				for k := range g.Spec.SubGroupPolicy {
					all = append(all, g.Spec.SubGroupPolicy[k].NetworkTopology)
				}
				if slices.ContainsFunc(all, func(t *scheduling.NetworkTopologySpec) bool { return t != nil && is(o, t) }) {
					f.add("", "PodGroup", g.Namespace, g.Name)
				}
			}
		}
	}
	return []difference{
		{row: "topology-without-tier", find: asks(func(o *Objects, t *scheduling.NetworkTopologySpec) bool {
			return t.Mode != scheduling.SoftNetworkTopologyMode && !o.tiered(t)
		})},
		{row: "topology-holds", find: asks(func(o *Objects, t *scheduling.NetworkTopologySpec) bool {
			return t.Mode == scheduling.SoftNetworkTopologyMode || o.tiered(t)
		})},
		{row: "topology-annotation", find: func(o *Objects, f *found) {
			for i := range o.Groups {
				if g := &o.Groups[i]; g.Annotations[allocatedHyperNode] != "" {
					f.add("", "PodGroup", g.Namespace, g.Name)
				}
			}
		}},
		{row: "pod-topology", find: func(o *Objects, f *found) {
			for i := range o.Pods {
				p := &o.Pods[i]
				mode, tier := p.Annotations[keys.NetworkTopologyMode], p.Annotations[keys.NetworkTopologyHighestTier]
				_, err := strconv.Atoi(tier)
				if mode != "" && mode != string(scheduling.HardNetworkTopologyMode) && mode != string(scheduling.SoftNetworkTopologyMode) || tier != "" && err != nil {
					f.add("", "Pod", p.Namespace, p.Name)
				}
			}
		}},
		{row: "one-tree", find: sharedNodes},
		{row: "hypernode-members", find: strangeMembers},
		{row: "node-shards", find: func(o *Objects, f *found) {
			for i := range o.Shards {
				f.add("", "NodeShard", "", o.Shards[i].Name)
			}
		}},
	}
}

// tiered says that a topology names a tier that there is.
func (o *Objects) tiered(t *scheduling.NetworkTopologySpec) bool {
	return t.HighestTierAllowed != nil || t.HighestTierName != "" && slices.ContainsFunc(o.HyperNodes, func(h topology.HyperNode) bool { return h.Spec.TierName == t.HighestTierName })
}

// sharedNodes finds HyperNodes of one tier that name the same node.
func sharedNodes(o *Objects, f *found) {
	type place struct {
		tier int
		node string
	}
	first := map[place]string{}
	for i := range o.HyperNodes {
		h := &o.HyperNodes[i]
		for _, m := range h.Spec.Members {
			if m.Type != topology.MemberTypeNode || m.Selector.ExactMatch == nil {
				continue
			}
			at := place{h.Spec.Tier, m.Selector.ExactMatch.Name}
			if other, there := first[at]; there && other != h.Name {
				f.add("", "HyperNode", "", other)
				f.add("", "HyperNode", "", h.Name)
			} else {
				first[at] = h.Name
			}
		}
	}
}

// longPattern is the longest pattern of a member that selects anything.
const longPattern = 4096

// strangeMembers finds HyperNodes with a member that counts none.
func strangeMembers(o *Objects, f *found) {
	tier := map[string]int{}
	for i := range o.HyperNodes {
		tier[o.HyperNodes[i].Name] = o.HyperNodes[i].Spec.Tier
	}
	for i := range o.HyperNodes {
		h := &o.HyperNodes[i]
		if slices.ContainsFunc(h.Spec.Members, func(m topology.MemberSpec) bool {
			long := m.Selector.RegexMatch != nil && len(m.Selector.RegexMatch.Pattern) > longPattern
			if m.Type != topology.MemberTypeHyperNode || m.Selector.ExactMatch == nil {
				return long
			}
			below, there := tier[m.Selector.ExactMatch.Name]
			return long || there && below >= h.Spec.Tier
		}) {
			f.add("", "HyperNode", "", h.Name)
		}
	}
}

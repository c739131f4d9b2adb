package hypernodes

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	topo "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// TopologyName is what the model calls the tree of HyperNodes. No API object can have the name.
const TopologyName = "volcano:HyperNodes"

// maxTiers is how many tiers count: more than any network has.
const maxTiers = 32

// Topology returns the event that makes the model know the tree, and what is wrong with each HyperNode.
//
// Its levels are the tiers that there are, and above them one that has every node, a tier wider than the widest: there is always a HyperNode that holds the whole
// cluster. The domain of a node at a tier is the HyperNode of that tier which has it; where none has, it is that of the next lower tier, so that "of at most tier n" is one
// level. A node that two HyperNodes of one tier have is in the first by name. Then the nodes of a HyperNode of a lower tier may be in several parts, and whoever must be in it
// is in one of them: each part lies within one HyperNode of the tier, so that what is required holds.
func (t *Tree) Topology() (cluster.TopologyState, map[string]string) {
	members, wrong := t.Members()
	tell := func(h *topo.HyperNode, text string) { wrong[h.Name] = cmp.Or(wrong[h.Name], text) }
	all := Ascending(t.Hypers)
	var tiers []int // the lowest first
	widest := 0     // without any HyperNode the whole cluster is of tier 1
	for _, h := range all {
		if widest = max(widest, min(h.Spec.Tier, math.MaxInt-1)); len(tiers) == 0 || tiers[len(tiers)-1] != h.Spec.Tier {
			tiers = append(tiers, h.Spec.Tier)
		}
	}
	tiers = tiers[:min(len(tiers), maxTiers)]
	declared := map[string][]string{} // the lowest tier first, until it is turned round
	names := make([]string, len(tiers))
	for _, h := range all {
		i, counts := slices.BinarySearch(tiers, h.Spec.Tier)
		if !counts {
			tell(h, fmt.Sprintf("spec.tier is %d; of more than %d tiers the lowest count", h.Spec.Tier, maxTiers))
			continue
		}
		if name := h.Spec.TierName; names[i] == "" {
			names[i] = name
		} else if name != "" && name != names[i] {
			names[i] = "-" // no name for all of them
		}
		for _, node := range slices.Sorted(maps.Keys(members[h.Name])) {
			at := declared[node]
			if at == nil {
				at = make([]string, len(tiers))
				declared[node] = at
			}
			if at[i] != "" {
				tell(h, fmt.Sprintf("node %s is in HyperNode %s of tier %d already, and counts there", node, at[i], h.Spec.Tier))
				continue
			}
			at[i] = h.Name
		}
	}
	for node, at := range declared { // order: each on its own
		for i := 1; i < len(at); i++ {
			at[i] = cmp.Or(at[i], at[i-1])
		}
		slices.Reverse(at)
		end := len(at)
		for at[end-1] == "" {
			end--
		}
		declared[node] = at[:end]
	}
	t.divided(declared, members, tell)
	t.missing(tell)
	st := cluster.TopologyState{Name: TopologyName, Levels: []cluster.Level{{Label: cluster.TierLevel(widest + 1), Tier: widest + 1}}, Declared: declared}
	for i, tier := range slices.Backward(tiers) {
		l := cluster.Level{Label: cluster.TierLevel(tier), Tier: tier}
		if names[i] != "-" {
			l.Alias = names[i]
		}
		st.Levels = append(st.Levels, l)
	}
	return st, wrong
}

// divided tells of HyperNodes whose nodes are in several HyperNodes of a higher tier, or some in one and some in none.
func (t *Tree) divided(declared map[string][]string, members map[string]map[string]bool, tell func(*topo.HyperNode, string)) {
	for _, h := range Ascending(t.Hypers) {
		above, first := "", ""
		for _, node := range slices.Sorted(maps.Keys(members[h.Name])) {
			at := declared[node]
			i := slices.Index(at, h.Name)
			if i < 0 {
				continue // it counts in another
			}
			if path := strings.Join(at[:i], "/"); first == "" {
				above, first = path, node
			} else if path != above {
				tell(h, fmt.Sprintf("its nodes %s and %s are in different HyperNodes of higher tiers: pods that must be in it are in one part of it", first, node))
				break
			}
		}
	}
}

// missing tells of members that are named and not there, where nothing worse is to be told.
func (t *Tree) missing(tell func(*topo.HyperNode, string)) {
	for _, h := range t.Hypers { // order: each on its own
		for k := range h.Spec.Members {
			m := &h.Spec.Members[k]
			if m.Selector.ExactMatch == nil {
				continue
			}
			name := m.Selector.ExactMatch.Name
			there := t.Hypers[name] != nil
			if m.Type == topo.MemberTypeNode {
				_, there = t.Nodes[name]
			}
			if !there {
				tell(h, fmt.Sprintf("spec.members[%d]: there is no %s %s", k, m.Type, brief(name)))
			}
		}
	}
}

// Tiers returns the tier that each tier name stands for, the highest if there are several.
func (t *Tree) Tiers() map[string]int {
	out := map[string]int{}
	for _, h := range t.Hypers { // order: the highest
		if name := h.Spec.TierName; name != "" {
			if have, known := out[name]; !known || h.Spec.Tier > have {
				out[name] = h.Spec.Tier
			}
		}
	}
	return out
}

// brief is a text that a tenant wrote, as it is told.
func brief(text string) string {
	const most = 80
	if len(text) > most {
		return fmt.Sprintf("%q…", text[:most])
	}
	return fmt.Sprintf("%q", text)
}

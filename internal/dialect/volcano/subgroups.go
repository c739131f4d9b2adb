package volcano

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/hypernodes"
)

// Subgroups says which subgroup a pod of a PodGroup is in. The zero value has none.
type Subgroups struct{ policies []policy }

type policy struct {
	name   string
	labels labels.Selector // nil: it selects none, since it cannot be read
	keys   []string
}

// Subgroup is some pods of a PodGroup that start together: those for which the policy of that index made it.
type Subgroup struct {
	Policy int
	Name   string
}

// Pods is what the tree of a gang hangs on of its pods: their subgroups, in order and each once, and the tasks that have pods in one.
type Pods struct {
	Subgroups []Subgroup
	Tasks     map[string]bool
}

// SubgroupsOf reads the policies of a PodGroup.
func SubgroupsOf(pg *v1beta1.PodGroup) (s Subgroups) {
	for i := range pg.Spec.SubGroupPolicy {
		p := &pg.Spec.SubGroupPolicy[i]
		one := policy{name: p.Name, keys: p.MatchLabelKeys, labels: labels.Everything()}
		if p.LabelSelector != nil {
			of, err := metav1.LabelSelectorAsSelector(p.LabelSelector)
			if one.labels = of; err != nil {
				one.labels = nil
			}
		}
		s.policies = append(s.policies, one)
	}
	return s
}

// Of returns the subgroup of a pod with these labels: by the first policy that selects it and all of whose keys have values; false for none. It is called as its
// policy and the values: "workers-3".
func (s *Subgroups) Of(of map[string]string) (Subgroup, bool) {
	for i := range s.policies {
		p := &s.policies[i]
		if p.labels == nil || len(p.keys) == 0 || !p.labels.Matches(labels.Set(of)) {
			continue
		}
		values := make([]string, len(p.keys))
		for k, key := range p.keys {
			values[k] = of[key]
		}
		if !slices.Contains(values, "") {
			return Subgroup{i, p.name + "-" + strings.Join(values, "-")}, true
		}
	}
	return Subgroup{}, false
}

// Task is the task that a pod says it is of, "" for none.
func Task(p *corev1.Pod) string { return cmp.Or(p.Annotations[keys.TaskSpec], p.Labels[keys.TaskSpec]) }

// grouped is tree for a PodGroup with subGroupPolicy: each policy is a set of subgroups, of which minSubGroups are needed, each whole; and the gang needs minMember pods of
// them all, of subgroups only those that are whole. Subgroups that no pod has asked for yet are there without pods. The minimum of a task that a policy is called after is what
// the policy needs of pods; that of another task is a leaf beside, unless pods of it are in subgroups: then it does not count (Unheeded).
func grouped(spec *v1beta1.PodGroupSpec, tier func(string) (int, bool), pods *Pods) ([]cluster.Set, string) {
	broken := []cluster.Set{{Parent: cluster.None}}
	sets := []cluster.Set{{Parent: cluster.None}}
	add := func(s cluster.Set) int32 {
		i := int32(len(sets))
		sets = append(sets, s)
		sets[s.Parent].Children = append(sets[s.Parent].Children, i)
		return i
	}
	sum := taskSum(spec)
	if int64(spec.MinMember) < sum {
		sum = 0
	}
	least, used := int64(0), map[string]bool{}
	for i := range spec.SubGroupPolicy {
		p := &spec.SubGroupPolicy[i]
		size, groups := int32(1), int32(0)
		if p.SubGroupSize != nil {
			size = *p.SubGroupSize
		}
		if p.MinSubGroups != nil {
			groups = *p.MinSubGroups
		}
		if p.LabelSelector != nil {
			if _, err := metav1.LabelSelectorAsSelector(p.LabelSelector); err != nil {
				return broken, fmt.Sprintf("spec.subGroupPolicy[%d].labelSelector: %.200s", i, err.Error())
			}
		}
		switch {
		case size < 1:
			return broken, fmt.Sprintf("spec.subGroupPolicy[%d].subGroupSize is %d; it must be at least 1", i, size)
		case groups < 0:
			return broken, fmt.Sprintf("spec.subGroupPolicy[%d].minSubGroups is %d; it must not be negative", i, groups)
		case int(groups) > cluster.MaxSets-len(sets)-2, len(pods.Subgroups) > cluster.MaxSets:
			return broken, fmt.Sprintf("spec.subGroupPolicy makes more subgroups than the %d that a gang may have", cluster.MaxSets)
		}
		inner := cluster.Set{Name: p.Name, Min: groups}
		needs := int64(size) * int64(groups)
		if n := int64(spec.MinTaskMember[p.Name]); sum > 0 && n > needs && !used[p.Name] {
			inner.Pods, needs = int32(n), n
		}
		used[p.Name] = true
		least += needs
		at := add(inner)
		near := nearby(p.NetworkTopology, tier)
		have := int32(0)
		for _, g := range pods.Subgroups {
			if g.Policy == i {
				add(cluster.Set{Name: g.Name, Parent: at, Leaf: true, Min: size, Near: near})
				have++
			}
		}
		for ; have < max(groups, 1); have++ { // its pods are to come
			add(cluster.Set{Name: fmt.Sprintf("%s (to come: %d)", p.Name, have), Parent: at, Leaf: true, Min: size, Near: near})
		}
	}
	for _, name := range sortedTasks(spec) {
		if n := spec.MinTaskMember[name]; sum > 0 && !used[name] && !pods.Tasks[name] {
			add(cluster.Set{Name: name, Leaf: true, Min: n})
			least += int64(n)
		}
	}
	rest := cluster.DefaultSet
	for slices.ContainsFunc(sets, func(s cluster.Set) bool { return s.Name == rest }) {
		rest += "-"
	}
	add(cluster.Set{Name: rest, Leaf: true, Rest: true})
	if len(sets) > cluster.MaxSets {
		return broken, fmt.Sprintf("spec.subGroupPolicy makes more subgroups than the %d that a gang may have", cluster.MaxSets)
	}
	if sets[0].Min = int32(len(sets[0].Children)); int64(spec.MinMember) > least {
		sets[0].Pods = spec.MinMember
	}
	return sets, ""
}

// nearby is what a network topology asks for. Hard without a tier that is known asks for nothing, as in Volcano (Unheeded).
func nearby(n *v1beta1.NetworkTopologySpec, tier func(string) (int, bool)) cluster.Constraint {
	if n == nil {
		return cluster.Constraint{}
	}
	c := cluster.Constraint{Topology: hypernodes.TopologyName, Preferred: cluster.Narrowest}
	if n.Mode == v1beta1.SoftNetworkTopologyMode {
		return c
	}
	at, known := highest(n, tier)
	if !known {
		return cluster.Constraint{}
	}
	c.Required = cluster.TierLevel(at)
	return c
}

// highest is the highest tier that is allowed: by number, else by name.
func highest(n *v1beta1.NetworkTopologySpec, tier func(string) (int, bool)) (int, bool) {
	if n.HighestTierAllowed != nil {
		return int(*n.HighestTierAllowed), true
	}
	if n.HighestTierName == "" {
		return 0, false
	}
	return tier(n.HighestTierName)
}

// unheededTopology says what of a hard network topology asks for nothing; "" for nothing.
func unheededTopology(n *v1beta1.NetworkTopologySpec, field string, tier func(string) (int, bool)) string {
	if n == nil || n.Mode == v1beta1.SoftNetworkTopologyMode {
		return ""
	}
	if _, known := highest(n, tier); known {
		return ""
	}
	if n.HighestTierName == "" {
		return field + " is hard and names no tier: its pods may go anywhere"
	}
	return fmt.Sprintf("%s.highestTierName is %s, which no HyperNode has as its tierName: its pods may go anywhere", field, brief(n.HighestTierName))
}

// NeedsNetwork says whether a PodGroup asks for HyperNodes.
func NeedsNetwork(pg *v1beta1.PodGroup) bool {
	return pg.Spec.NetworkTopology != nil || slices.ContainsFunc(pg.Spec.SubGroupPolicy, func(p v1beta1.SubGroupPolicySpec) bool { return p.NetworkTopology != nil })
}

package dialect

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	vctopology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/hypernodes"
)

// node takes in a node of the cluster: those of other shards are none of the tree's.
func (f *volcanoFace) node(name string, n *v1.Node, ours bool) {
	if len(f.schedulers) == 0 {
		return
	}
	if !ours {
		n = &v1.Node{}
		n.Name = name
	}
	f.moved = f.hypers.NodeSeen(n, !ours) || f.moved
}

// tier is what the name of a tier stands for.
func (f *volcanoFace) tier(name string) (int, bool) {
	n, known := f.tiers[name]
	return n, known
}

// asks remembers whether a PodGroup asks for HyperNodes; nil is one that is gone. While any does, there is a tree.
func (f *volcanoFace) asks(key types.NamespacedName, pg *v1beta1.PodGroup) {
	was := len(f.asking)
	if pg != nil && volcano.NeedsNetwork(pg) {
		f.asking[key] = true
	} else {
		delete(f.asking, key)
	}
	f.moved = f.moved || (was == 0) != (len(f.asking) == 0)
}

// readHyperNode takes in a HyperNode.
func (t *Translator) readHyperNode(key types.NamespacedName, h *vctopology.HyperNode) {
	gone := h == nil
	if gone {
		h = &vctopology.HyperNode{}
		h.Name = key.Name
		t.problem(VolcanoHyperNodes, key, "")
	} else if have := t.volcano.hypers.Hypers[key.Name]; have != nil && equality.Semantic.DeepEqual(have.Spec, h.Spec) {
		return // its status is written as nodes come and go
	}
	t.volcano.hypers.HyperSeen(h, gone)
	t.volcano.moved = true
}

// recheckHyperNodes makes the event of the tree anew after something it is made of changed, and those of gangs that call a tier by a name which means another now.
func (t *Translator) recheckHyperNodes(apply func(cluster.Event)) {
	f := &t.volcano
	if !f.moved {
		return
	}
	t.one(VolcanoHyperNodes, types.NamespacedName{}, func() {
		f.moved = false
		if len(f.hypers.Hypers) == 0 && len(f.asking) == 0 {
			if f.known {
				apply(cluster.TopologyGone{Name: hypernodes.TopologyName})
			}
			f.known = false
		} else {
			st, wrong := f.hypers.Topology()
			for name := range f.hypers.Hypers { // order: each on its own
				t.problem(VolcanoHyperNodes, types.NamespacedName{Name: name}, wrong[name])
			}
			f.known = true
			apply(st)
		}
		tiers := f.hypers.Tiers()
		if maps.Equal(tiers, f.tiers) {
			return
		}
		f.tiers = tiers
		for key := range f.asking { // order: each gang on its own
			apply(t.volcanoGang(key, f.groups[key]))
		}
	})
}

// regroup takes in the policies of a PodGroup, nil for one that is gone: if they are others than before, so are the subgroups of its pods.
func (t *Translator) regroup(key types.NamespacedName, pg *v1beta1.PodGroup) {
	f := &t.volcano
	var now *volcano.Subgroups
	if pg != nil && len(pg.Spec.SubGroupPolicy) > 0 {
		now = new(volcano.SubgroupsOf(pg))
	}
	was := f.subgroups[key]
	if now == nil && was == nil {
		return
	}
	if f.subgroups[key] = now; now == nil {
		delete(f.subgroups, key)
	}
	f.regrouped[key] = struct{}{}
	for _, p := range f.members[key] { // order: a set
		t.dirty[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = struct{}{}
	}
}

// member keeps which pods are in which PodGroup; nil for none.
func (f *volcanoFace) member(old, p *v1.Pod) {
	group := func(p *v1.Pod) types.NamespacedName {
		if p == nil || !f.ours(p) {
			return types.NamespacedName{}
		}
		k := volcano.Membership(p)
		return types.NamespacedName{Namespace: k.Namespace, Name: k.Name}
	}
	was, is := group(old), group(p)
	if was.Name != "" && (was != is || old.UID != p.UID) {
		if delete(f.members[was], old.UID); len(f.members[was]) == 0 {
			delete(f.members, was)
		}
		f.regrouped[was] = struct{}{}
	}
	if is.Name == "" {
		return
	}
	if f.members[is] == nil {
		f.members[is] = map[types.UID]*v1.Pod{}
	}
	if f.members[is][p.UID] = p; old == nil || was != is || old.UID != p.UID || !maps.Equal(old.Labels, p.Labels) {
		f.regrouped[is] = struct{}{}
	}
}

// subgroup puts a pod's event into its subgroup, if it has one.
func (f *volcanoFace) subgroup(st *cluster.PodState, p *v1.Pod) {
	if s := f.subgroups[types.NamespacedName{Namespace: st.Gang.Namespace, Name: st.Gang.Name}]; s != nil {
		if g, ok := s.Of(p.Labels); ok {
			st.SetName = g.Name
		}
	}
}

// pods is what the tree of a PodGroup hangs on of its pods: O(their number), where it has policies.
func (f *volcanoFace) pods(key types.NamespacedName) *volcano.Pods {
	out := &volcano.Pods{}
	s := f.subgroups[key]
	if s == nil {
		return out
	}
	seen := map[volcano.Subgroup]bool{}
	out.Tasks = map[string]bool{}
	for _, p := range f.members[key] { // order: sorted below
		if g, ok := s.Of(p.Labels); ok {
			out.Tasks[volcano.Task(p)] = true
			seen[g] = true
		}
	}
	out.Subgroups = slices.SortedFunc(maps.Keys(seen), func(a, b volcano.Subgroup) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// recheckSubgroups makes anew the events of gangs whose pods came, went or changed, where their subgroups follow from that.
func (t *Translator) recheckSubgroups(apply func(cluster.Event)) {
	for key := range t.volcano.regrouped { // order: each gang on its own
		if pg := t.volcano.groups[key]; pg != nil && t.volcano.subgroups[key] != nil {
			t.one(VolcanoPodGroups, key, func() { apply(t.volcanoGang(key, pg)) })
		}
	}
	clear(t.volcano.regrouped)
}

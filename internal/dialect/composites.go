package dialect

import (
	"fmt"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/upstream"
	"github.com/muster-scheduler/muster/internal/entry"
)

// Trees of Kubernetes' own groups: CompositePodGroups, and the PodGroups below them. A tree is one gang, of the name of its root. Which tree a PodGroup is in follows from the names of
// parents alone, whatever came first.

// parentOf is the composite of that name, in the namespace of key; ok is false for nil, which is no parent.
func parentOf(key types.NamespacedName, name *string) (parent types.NamespacedName, ok bool) {
	if name == nil {
		return parent, false
	}
	return types.NamespacedName{Namespace: key.Namespace, Name: *name}, true
}

// upstreamPlace finds where a group is; there is false if there is no such group. It costs a look at each level.
func (t *Translator) upstreamPlace(group types.NamespacedName) (place upstreamPlace, there bool) {
	pg := t.upstream.groups[group]
	if pg == nil {
		return place, false
	}
	place = upstreamPlace{ours: t.partition.Includes(pg.Labels), going: pg.DeletionTimestamp != nil, subgroups: upstream.SubgroupsOf(pg)}
	const field = "spec.parentCompositePodGroupName: "
	at, up := parentOf(group, pg.Spec.ParentCompositePodGroupName)
	if !up {
		return place, true
	}
	going := place.going
	seen := make([]types.NamespacedName, 0, upstream.MaxDepth)
	for level := 1; ; level++ {
		c := t.upstream.composites[at]
		if c == nil {
			place.lacks, place.problem = at, fmt.Sprintf(field+"there is no CompositePodGroup %s; the group waits for it", at.Name)
			return place, true
		}
		going = going || c.DeletionTimestamp != nil
		next, up := parentOf(at, c.Spec.ParentCompositePodGroupName)
		if !up && level < upstream.MaxDepth {
			place.root, place.ours, place.going = at, t.partition.Includes(c.Labels), going
			return place, true
		}
		for _, s := range seen {
			if s == at {
				place.problem = fmt.Sprintf(field+"CompositePodGroup %s is below itself; following parents must lead to a root", at.Name)
				return place, true
			}
		}
		if level > upstream.MaxDepth || !up {
			place.problem = fmt.Sprintf(field+"the group is more than %d levels below its root; no more are allowed", upstream.MaxDepth-1)
			return place, true
		}
		seen = append(seen, at)
		at = next
	}
}

func (t *Translator) belowOf(parent types.NamespacedName) *upstreamBelow {
	return entry.Or(t.upstream.below, parent, func() *upstreamBelow {
		return &upstreamBelow{map[types.NamespacedName]struct{}{}, map[types.NamespacedName]struct{}{}}
	})
}

func (t *Translator) forsake(parent types.NamespacedName) {
	if b := t.upstream.below[parent]; len(b.groups)+len(b.composites) == 0 {
		delete(t.upstream.below, parent)
	}
}

// hangGroup notes that a group is below the composite that it names, or is not any more.
func (t *Translator) hangGroup(key types.NamespacedName, pg *schedulingv1beta1.PodGroup, there bool) {
	parent, ok := parentOf(key, pg.Spec.ParentCompositePodGroupName)
	if !ok {
		return
	}
	if b := t.belowOf(parent); there {
		b.groups[key] = struct{}{}
	} else {
		delete(b.groups, key)
		t.forsake(parent)
	}
}

func (t *Translator) hangComposite(key types.NamespacedName, c *schedulingv1alpha3.CompositePodGroup, there bool) {
	parent, ok := parentOf(key, c.Spec.ParentCompositePodGroupName)
	if !ok {
		return
	}
	if b := t.belowOf(parent); there {
		b.composites[key] = struct{}{}
	} else {
		delete(b.composites, key)
		t.forsake(parent)
	}
}

// readComposite takes in a composite. All groups below it may be in another place now.
func (t *Translator) readComposite(key types.NamespacedName, c *schedulingv1alpha3.CompositePodGroup) {
	if old := t.upstream.composites[key]; old != nil {
		t.hangComposite(key, old, false)
	}
	if c == nil {
		delete(t.upstream.composites, key)
	} else {
		t.upstream.composites[key] = c
		t.hangComposite(key, c, true)
	}
	t.upstream.treesDirty[key] = struct{}{}
	seen := map[types.NamespacedName]struct{}{}
	var mark func(at types.NamespacedName, level int)
	mark = func(at types.NamespacedName, level int) {
		b := t.upstream.below[at]
		if _, again := seen[at]; again || b == nil || level > upstream.MaxDepth+1 { // whoever is further down looks no further up either
			return
		}
		seen[at] = struct{}{}
		for group := range b.groups { // order: a set
			t.upstream.groupsDirty[group] = struct{}{}
		}
		for composite := range b.composites { // order: a set
			mark(composite, level+1)
		}
	}
	mark(key, 1)
}

// branch is what is there of a tree from a composite on, which is on that level, the root on the first.
func (t *Translator) branch(at types.NamespacedName, level int) *upstream.Branch {
	out := &upstream.Branch{Of: t.upstream.composites[at]}
	b := t.upstream.below[at]
	if b == nil || level >= upstream.MaxDepth {
		return out
	}
	for group := range b.groups { // order: sorted by whoever makes sets of it
		out.Groups = append(out.Groups, t.upstream.groups[group])
	}
	for composite := range b.composites { // order: the same
		if at := t.branch(composite, level+1); len(at.Groups)+len(at.Branches) > 0 { // else it is nothing yet
			out.Branches = append(out.Branches, at)
		}
	}
	return out
}

// treeQueue is the queue of a tree: that of its root's label, or, without one, of the label of the first pod that named a group of it.
func (t *Translator) treeQueue(root types.NamespacedName, tree *upstream.Branch) string {
	labels := t.upstream.composites[root].Labels
	if labels[t.queueLabel] != "" {
		return upstream.Queue(labels, t.queueLabel)
	}
	var eldest types.NamespacedName
	tree.Each(func(pg *schedulingv1beta1.PodGroup) {
		if m := t.upstream.members[KeyOf(pg)]; m != nil && (eldest.Name == "" || t.elder(m.eldest, eldest)) {
			eldest = m.eldest
		}
	})
	if eldest.Name != "" {
		labels = t.pods[eldest].Labels
	}
	return upstream.Queue(labels, t.queueLabel)
}

// tellTree tells of the gang that a tree is, or that there is none of that root.
func (t *Translator) tellTree(root types.NamespacedName, apply func(cluster.Event)) {
	c := t.upstream.composites[root]
	is, theirs := c != nil && c.Spec.ParentCompositePodGroupName == nil, ""
	if is && !t.partition.Includes(c.Labels) {
		is, theirs = false, string(c.UID)
	}
	gang := upstream.CompositeKey(root.Namespace, root.Name)
	t.gang(gang, is, theirs)
	if !is {
		delete(t.upstream.trees, root)
		t.lieNear(gang, nil, apply)
		t.problem(CompositePodGroups, root, "")
		apply(cluster.GangGone{Key: gang})
		return
	}
	tree := t.branch(root, 1)
	queue := t.treeQueue(root, tree)
	if told, was := t.upstream.trees[root]; !was || told != queue {
		tree.Each(func(pg *schedulingv1beta1.PodGroup) { t.stirUpstream(KeyOf(pg)) })
	}
	t.upstream.trees[root] = queue
	t.lieNear(gang, tree.TopologyKeys(), apply)
	st := upstream.Composite(tree, queue, t.priorities.Value)
	t.problem(CompositePodGroups, root, st.Invalid)
	apply(st)
}

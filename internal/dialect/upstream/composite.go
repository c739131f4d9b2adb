package upstream

import (
	"cmp"
	"fmt"
	"slices"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// CompositeFace is the face of the keys of gangs that are trees: a CompositePodGroup and all that is below it.
const CompositeFace = "composite"

// MaxDepth is how many levels a tree has at most, from its root to its PodGroups, both included.
const MaxDepth = schedulingv1alpha3.WorkloadMaxTreeDepth

// CompositeKey returns the key of the gang that the tree below the CompositePodGroup of that namespace and name is.
func CompositeKey(namespace, name string) cluster.Key {
	return cluster.Key{Face: CompositeFace, Namespace: namespace, Name: name}
}

// CompositePodGroup names the object that a gang of that key and UID has as its root, and says nothing else of it: for events.
func CompositePodGroup(key cluster.Key, uid string) *schedulingv1alpha3.CompositePodGroup {
	return &schedulingv1alpha3.CompositePodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: types.UID(uid)}}
}

// Branch is a CompositePodGroup and what is below it.
type Branch struct {
	Of       *schedulingv1alpha3.CompositePodGroup
	Groups   []*schedulingv1beta1.PodGroup
	Branches []*Branch
}

// Composite returns the event that makes the model know a tree as one gang, in that queue. Its inner sets are the CompositePodGroups, its leaves the PodGroups, or their subgroups. What a gang
// has once (queue, priority, preemption policy, preemptibility, and whether it is disrupted as a whole) is the root's. A composite of policy gang needs minGroupCount of what is below it, one of
// policy basic one, so that its groups start as each finds room; of each that starts, the minimum starts together. A composite without PodGroups below it counts as nothing: it cannot start.
// value is as of [Gang].
func Composite(root *Branch, queue string, value func(class string) (priority int32, known bool)) cluster.GangState {
	spec := &root.Of.Spec
	b := builder{}
	b.plant(root, cluster.None)
	if len(b.sets) == 0 {
		b.sets, b.problem = broken(), cmp.Or(b.problem, subject("CompositePodGroup", &root.Of.ObjectMeta)+"no PodGroup is below it, so it is no gang")
	}
	if len(b.sets) > cluster.MaxSets {
		b.problem = cmp.Or(b.problem, fmt.Sprintf("%s%d groups are below it; at most %d are allowed", subject("CompositePodGroup", &root.Of.ObjectMeta), len(b.sets)-1, cluster.MaxSets-1))
	}
	if b.problem == "" && int(b.sets[0].Min) > len(b.sets[0].Children) {
		b.problem = fmt.Sprintf("%sspec.schedulingPolicy.gang.minGroupCount is %d, and of its children %d are there so far; those without PodGroups are none",
			subject("CompositePodGroup", &root.Of.ObjectMeta), b.sets[0].Min, len(b.sets[0].Children))
	}
	if b.problem != "" {
		b.sets = broken()
	}
	b.sets[0].Whole = false
	never := spec.PreemptionPolicy != nil && *spec.PreemptionPolicy == schedulingv1alpha3.PreemptNever
	g := state(CompositeKey(root.Of.Namespace, root.Of.Name), &root.Of.ObjectMeta, queue, priority(spec.Priority, spec.PriorityClassName, value), never)
	g.Sets, g.Invalid, g.Whole = b.sets, b.problem, all(root.Of)
	if g.Invalid == "" && root.Of.DeletionTimestamp != nil {
		g.Invalid = subject("CompositePodGroup", &root.Of.ObjectMeta) + deleted
	}
	return g
}

// deleted says why nothing starts of what is being deleted.
const deleted = "it is being deleted, and nothing more of it starts"

func subject(kind string, o *metav1.ObjectMeta) string {
	return kind + " " + o.Namespace + "/" + o.Name + ": "
}

func all(c *schedulingv1alpha3.CompositePodGroup) bool {
	return c.Spec.DisruptionMode != nil && c.Spec.DisruptionMode.All != nil
}

// builder makes a tree of sets of a tree of objects, and remembers the first rule that is broken.
type builder struct {
	sets    []cluster.Set
	problem string
}

func (b *builder) add(s cluster.Set) int32 {
	i := int32(len(b.sets))
	if b.sets = append(b.sets, s); s.Parent != cluster.None {
		b.sets[s.Parent].Children = append(b.sets[s.Parent].Children, i)
	}
	return i
}

// plant adds a composite and what is below it, in the order of their names; nothing for one that has no PodGroup below it.
func (b *builder) plant(at *Branch, parent int32) {
	least, problem := needs(at.Of)
	if problem != "" {
		b.problem = cmp.Or(b.problem, subject("CompositePodGroup", &at.Of.ObjectMeta)+problem)
	}
	set := cluster.Set{Name: at.Of.Name + "/", Parent: parent, Min: least, Whole: all(at.Of)} // no PodGroup has that name
	if parent == cluster.None {
		set.Name = ""
	}
	if key := compositeTopology(at.Of); key != "" {
		set.Near = cluster.Constraint{Topology: TopologyName(key), Required: key}
	}
	i := b.add(set)
	slices.SortFunc(at.Groups, func(x, y *schedulingv1beta1.PodGroup) int { return cmp.Compare(x.Name, y.Name) })
	for _, pg := range at.Groups {
		b.graft(pg, i)
	}
	slices.SortFunc(at.Branches, func(x, y *Branch) int { return cmp.Compare(x.Of.Name, y.Of.Name) })
	for _, below := range at.Branches {
		b.plant(below, i)
	}
	if len(b.sets[i].Children) > 0 {
		return
	}
	b.sets = b.sets[:i]
	if parent != cluster.None {
		up := &b.sets[parent]
		up.Children = up.Children[:len(up.Children)-1]
	}
}

// graft adds a PodGroup: a leaf, or a set of leaves that are its subgroups.
func (b *builder) graft(pg *schedulingv1beta1.PodGroup, parent int32) {
	own, problem := tree(pg)
	if problem != "" {
		b.problem = cmp.Or(b.problem, subject("PodGroup", &pg.ObjectMeta)+problem)
		return
	}
	whole := pg.Spec.DisruptionMode != nil && pg.Spec.DisruptionMode.All != nil
	if len(own) == 2 {
		b.add(cluster.Set{Name: pg.Name, Parent: parent, Leaf: true, Min: own[1].Min, Near: own[0].Near, Whole: whole, UID: string(pg.UID)})
		return
	}
	i := b.add(cluster.Set{Name: pg.Name, Parent: parent, Min: own[0].Min, Pods: own[0].Pods, Near: own[0].Near, Whole: whole, UID: string(pg.UID)})
	for _, s := range own[1:] {
		b.add(cluster.Set{Name: pg.Name + "/" + s.Name, Parent: i, Leaf: true, Min: s.Min})
	}
}

// needs is how many of what is below a composite it needs.
func needs(c *schedulingv1alpha3.CompositePodGroup) (int32, string) {
	policy := &c.Spec.SchedulingPolicy
	if s := c.Spec.SchedulingConstraints; s != nil && len(s.Topology) > 1 {
		return 1, fmt.Sprintf("spec.schedulingConstraints.topology has %d entries; only one is allowed", len(s.Topology))
	}
	switch {
	case policy.Gang != nil && policy.Basic != nil:
		return 1, "spec.schedulingPolicy has both gang and basic; only one is allowed"
	case policy.Gang == nil && policy.Basic == nil:
		return 1, "spec.schedulingPolicy has neither gang nor basic, which are all that are known"
	case policy.Gang != nil && policy.Gang.MinGroupCount < 1:
		return 1, fmt.Sprintf("spec.schedulingPolicy.gang.minGroupCount is %d; it must be at least 1", policy.Gang.MinGroupCount)
	case policy.Gang != nil:
		return policy.Gang.MinGroupCount, ""
	}
	return 1, ""
}

func compositeTopology(c *schedulingv1alpha3.CompositePodGroup) string {
	if s := c.Spec.SchedulingConstraints; s != nil && len(s.Topology) > 0 {
		return s.Topology[0].Key
	}
	return ""
}

// Each calls f for each PodGroup of a tree, in no order.
func (b *Branch) Each(f func(*schedulingv1beta1.PodGroup)) {
	for _, pg := range b.Groups {
		f(pg)
	}
	for _, below := range b.Branches {
		below.Each(f)
	}
}

// TopologyKeys are the node labels that a tree names, each once, sorted.
func (b *Branch) TopologyKeys() []string {
	var out []string
	add := func(key string) {
		if i, found := slices.BinarySearch(out, key); key != "" && !found {
			out = slices.Insert(out, i, key)
		}
	}
	b.Each(func(pg *schedulingv1beta1.PodGroup) { add(TopologyKey(pg)) })
	var walk func(*Branch)
	walk = func(at *Branch) {
		add(compositeTopology(at.Of))
		for _, below := range at.Branches {
			walk(below)
		}
	}
	walk(b)
	return out
}

// SubgroupsOf is what pg says of its subgroups, "" for none.
func SubgroupsOf(pg *schedulingv1beta1.PodGroup) string {
	return pg.Annotations[keys.SubgroupsAnnotation]
}

// SetIn is the set of a tree that a pod of pg is in which says it is of that subgroup. going says that pg, or a composite above it, is being deleted: then it is one that there is not, so that
// the pod does not start.
func SetIn(pg *schedulingv1beta1.PodGroup, subgroup string, going bool) string {
	if going {
		return pg.Name + " (being deleted)"
	}
	own, problem := tree(pg)
	if problem != "" || len(own) == 2 {
		return pg.Name
	}
	rest := ""
	for i := range own {
		switch {
		case own[i].Leaf && own[i].Rest:
			rest = own[i].Name
		case own[i].Leaf && own[i].Name == subgroup:
			return pg.Name + "/" + subgroup
		}
	}
	return pg.Name + "/" + rest
}

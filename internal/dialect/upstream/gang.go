package upstream

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// Face is the name of this API family in cluster.Key. It has no queues of its own.
const Face = "upstream"

// neverTakes is a preemption delay of a gang that takes from nobody, ever. An instant that is so much later can still be told.
const neverTakes = 100 * 365 * 24 * time.Hour

// GangKey returns the key of the gang that the PodGroup of that namespace and name is.
func GangKey(namespace, name string) cluster.Key {
	return cluster.Key{Face: Face, Namespace: namespace, Name: name}
}

// Membership returns the gang that p names in spec.schedulingGroup, the zero Key for none: one of its own namespace.
func Membership(p *corev1.Pod) cluster.Key {
	if g := p.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil && *g.PodGroupName != "" {
		return GangKey(p.Namespace, *g.PodGroupName)
	}
	return cluster.Key{}
}

// Queue returns the queue that an object's labels name under the key label: keys.DefaultQueue for one that names none, and for one that calls itself another face's
// queue, which there is not, that text as no queue is called.
func Queue(labels map[string]string, label string) string {
	said := cmp.Or(labels[label], keys.DefaultQueue)
	if face, _ := cluster.SplitQueue(said); face != "" {
		return cluster.QueueName(Face, said)
	}
	return said
}

// Joins says whether a pod is taken in by a gang of that queue: its own label must name it. Whoever wrote that label was judged for it; nobody was for
// spec.schedulingGroup, which may come out of a template.
func Joins(p *corev1.Pod, queue, label string) bool { return Queue(p.Labels, label) == queue }

// TopologyName is what the model calls the layout of one level that a node label is. No name of an API object has a colon.
func TopologyName(key string) string { return Face + ":" + key }

// Topology returns the event that makes the model know that layout.
func Topology(key string) cluster.TopologyState {
	return cluster.TopologyState{Name: TopologyName(key), Levels: []cluster.Level{{Label: key}}}
}

// TopologyKey is the node label in which pods of pg must agree, "" for none.
func TopologyKey(pg *schedulingv1beta1.PodGroup) string {
	if c := pg.Spec.SchedulingConstraints; c != nil && len(c.Topology) > 0 {
		return c.Topology[0].Key
	}
	return ""
}

// Gang returns the event that makes the model know pg as it is, in that queue. value is what a PriorityClass is worth; of "" it is asked for the cluster's default
// one. The API server fills in spec.priority, which then counts; without it and without a class that is known the priority is 0.
//
// A gang of policy basic has no minimum: its pods start as each finds room. Where it is disrupted all together, it gives all of its pods or none. Preemptible it is by the label
// kai.scheduler/preemptibility, or else by its priority, as gangs of KAI's. Minimums of subgroups come from the annotation muster.dev/subgroups. Below its minimum it goes on, once
// it has run: minCount is about starting.
//
// Claims of the group are not honoured yet: it waits, and says so. A group that names a parent is of another gang, see [Composite] and [Orphan]. The status is not read: it is no part that only a scheduler may
// write.
func Gang(pg *schedulingv1beta1.PodGroup, queue string, value func(class string) (priority int32, known bool)) cluster.GangState {
	sets, problem := tree(pg)
	never := pg.Spec.PreemptionPolicy != nil && *pg.Spec.PreemptionPolicy == schedulingv1beta1.PreemptNever
	g := state(GangKey(pg.Namespace, pg.Name), &pg.ObjectMeta, queue, priority(pg.Spec.Priority, pg.Spec.PriorityClassName, value), never)
	g.Sets, g.Whole = sets, pg.Spec.DisruptionMode != nil && pg.Spec.DisruptionMode.All != nil
	if problem == "" && pg.DeletionTimestamp != nil {
		problem = deleted
	}
	if problem != "" {
		g.Invalid = subject("PodGroup", &pg.ObjectMeta) + problem
	}
	return g
}

// Orphan is the gang that a PodGroup is whose parent, or a group above that, is no tree: one that waits. problem says why, in words about the PodGroup.
func Orphan(pg *schedulingv1beta1.PodGroup, queue string, value func(class string) (priority int32, known bool), problem string) cluster.GangState {
	g := Gang(pg, queue, value)
	g.Sets, g.Invalid = broken(), subject("PodGroup", &pg.ObjectMeta)+problem
	return g
}

// state is what gangs of Kubernetes' own have in common: what their object says of itself, and its labels.
func state(key cluster.Key, o *metav1.ObjectMeta, queue string, priority int32, never bool) cluster.GangState {
	g := cluster.GangState{
		Key: key, UID: string(o.UID), Generation: o.Generation, Queue: queue, Priority: priority, Created: core.Nanoseconds(&o.CreationTimestamp), MarkUnschedulable: true,
		StaleGrace: cluster.Maybe[time.Duration]{Set: true, Value: -1},
	}
	if never {
		g.PreemptionDelay = neverTakes
	}
	switch o.Labels[keys.PreemptibilityLabel] {
	case "preemptible":
		g.Preemptible = true
	case "non-preemptible":
	default:
		g.Preemptible = g.Priority < keys.NonPreemptiblePriority
	}
	return g
}

// priority is what a group says, or else what its class is worth, or else the default class.
func priority(said *int32, class string, value func(class string) (int32, bool)) int32 {
	if said != nil {
		return *said
	}
	if p, known := value(class); known {
		return p
	}
	p, _ := value("")
	return p
}

// broken is the tree of a gang whose own cannot be used: the root, under which there is no place for a pod.
func broken() []cluster.Set { return []cluster.Set{{Parent: cluster.None}} }

// tree is the tree of a gang: one leaf of all pods, or one for each subgroup and one of all other pods. When it asks for what cannot be said so, the rule that it breaks is
// returned.
func tree(pg *schedulingv1beta1.PodGroup) ([]cluster.Set, string) {
	spec := &pg.Spec
	policy := &spec.SchedulingPolicy
	switch {
	case policy.Gang != nil && policy.Basic != nil:
		return broken(), "spec.schedulingPolicy has both gang and basic; only one is allowed"
	case policy.Gang == nil && policy.Basic == nil:
		return broken(), "spec.schedulingPolicy has neither gang nor basic, which are all that are known"
	case policy.Gang != nil && policy.Gang.MinCount < 1:
		return broken(), fmt.Sprintf("spec.schedulingPolicy.gang.minCount is %d; it must be at least 1", policy.Gang.MinCount)
	}
	if c := spec.SchedulingConstraints; c != nil && len(c.Topology) > 1 {
		return broken(), fmt.Sprintf("spec.schedulingConstraints.topology has %d entries; only one is allowed", len(c.Topology))
	}
	least := int32(1)
	if policy.Gang != nil {
		least = policy.Gang.MinCount
	}
	sets, problem := subgroups(SubgroupsOf(pg), least)
	if problem != "" {
		return broken(), problem
	}
	if key := TopologyKey(pg); key != "" {
		sets[0].Near = cluster.Constraint{Topology: TopologyName(key), Required: key}
	}
	return sets, ""
}

// subgroups reads the annotation, such as "driver=1,worker=4": subgroups, in their order, with their minimums. least is the minimum of the gang in all.
func subgroups(said string, least int32) ([]cluster.Set, string) {
	if said == "" {
		return cluster.FlatTree(least), ""
	}
	const field = "metadata.annotations[" + keys.SubgroupsAnnotation + "]"
	sets := []cluster.Set{{Parent: cluster.None}}
	seen, sum, rest := map[string]bool{}, int64(0), cluster.DefaultSet
	for one := range strings.SplitSeq(said, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(one), "=")
		n, err := strconv.ParseInt(number, 10, 32)
		switch {
		case name == "" || err != nil || n < 0:
			return nil, fmt.Sprintf("%s: %q is not NAME=MINIMUM, such as worker=4", field, core.Brief(one))
		case seen[name]:
			return nil, fmt.Sprintf("%s names %q twice", field, core.Brief(name))
		case len(sets) >= cluster.MaxSets:
			return nil, fmt.Sprintf("%s has more than %d entries", field, cluster.MaxSets-1)
		}
		seen[name], sum = true, sum+n
		sets = append(sets, cluster.Set{Name: name, Parent: 0, Leaf: true, Min: int32(n)})
	}
	for seen[rest] {
		rest += "-"
	}
	sets = append(sets, cluster.Set{Name: rest, Parent: 0, Leaf: true, Rest: true})
	for i := 1; i < len(sets); i++ {
		sets[0].Children = append(sets[0].Children, int32(i))
	}
	sets[0].Min, sets[0].Pods = int32(len(sets)-1), int32(min(max(sum, int64(least)), math.MaxInt32))
	return sets, ""
}

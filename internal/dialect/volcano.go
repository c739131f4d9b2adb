package dialect

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/hypernodes"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/nodeshards"
)

// volcanoFace is what is known of Volcano's objects. Without scheduler names nothing ever is.
type volcanoFace struct {
	schedulers []string
	groups     map[types.NamespacedName]*v1beta1.PodGroup      // of our shard, and what pods do without (volcano.Own)
	objects    map[types.NamespacedName]*v1beta1.PodGroup      // those that are there, of all shards
	owns       map[types.NamespacedName][]types.NamespacedName // of PodGroups that pods do without, these pods
	queues     map[string]*v1beta1.Queue                       // of our shard

	hypers    *hypernodes.Tree
	tiers     map[string]int                                 // by name, as of the last look at the tree
	moved     bool                                           // the tree is to be looked at
	known     bool                                           // there is a tree
	asking    map[types.NamespacedName]bool                  // PodGroups that ask for HyperNodes
	subgroups map[types.NamespacedName]*volcano.Subgroups    // of PodGroups that have policies
	members   map[types.NamespacedName]map[types.UID]*v1.Pod // our pods, by PodGroup
	regrouped map[types.NamespacedName]struct{}              // whose subgroups may be others now
	sharded                                                  // which nodes are this scheduler's
}

func newVolcanoFace(schedulers []string, s nodeshards.Sharding) volcanoFace {
	return volcanoFace{
		schedulers: schedulers, groups: map[types.NamespacedName]*v1beta1.PodGroup{}, objects: map[types.NamespacedName]*v1beta1.PodGroup{}, owns: map[types.NamespacedName][]types.NamespacedName{},
		queues: map[string]*v1beta1.Queue{},
		hypers: hypernodes.New(), asking: map[types.NamespacedName]bool{}, subgroups: map[types.NamespacedName]*volcano.Subgroups{},
		members: map[types.NamespacedName]map[types.UID]*v1.Pod{}, regrouped: map[types.NamespacedName]struct{}{}, sharded: newSharded(s),
	}
}

// ours says whether a pod is Volcano's.
func (f *volcanoFace) ours(p *v1.Pod) bool {
	return slices.Contains(f.schedulers, p.Spec.SchedulerName)
}

// readVolcanoGroup takes in a PodGroup of Volcano's; nil is one that is gone.
func (t *Translator) readVolcanoGroup(key types.NamespacedName, pg *v1beta1.PodGroup, apply func(cluster.Event)) {
	if pg == nil {
		delete(t.volcano.objects, key)
	} else {
		t.volcano.objects[key] = pg
	}
	t.readVolcanoGang(key, apply)
}

// standingVolcano is what a gang of Volcano's is: its PodGroup, or else that which the pod of the smallest UID does without, among those that do; nil for neither.
func (t *Translator) standingVolcano(key types.NamespacedName) *v1beta1.PodGroup {
	if pg := t.volcano.objects[key]; pg != nil {
		return pg
	}
	var least *v1.Pod
	for _, pod := range t.volcano.owns[key] {
		if p := t.pods[pod]; least == nil || p.UID < least.UID {
			least = p
		}
	}
	if least == nil {
		return nil
	}
	return volcano.Own(least)
}

// ownVolcano takes in what PodGroup of Volcano's a pod does without, when it changes from old to p; nil is no pod. It returns the gang that it stood for and does not any more, to be told of once the pod has been.
func (t *Translator) ownVolcano(key types.NamespacedName, old, p *v1.Pod, apply func(cluster.Event)) (left types.NamespacedName) {
	gang := func(p *v1.Pod) (k types.NamespacedName) {
		if p != nil && t.volcano.ours(p) && volcano.SaysOwn(p) {
			k = types.NamespacedName{Namespace: p.Namespace, Name: volcano.GroupOfOwner(p)}
		}
		return k
	}
	was, is := gang(old), gang(p)
	if was != is && was.Name != "" {
		pods := t.volcano.owns[was]
		if at := slices.Index(pods, key); at >= 0 {
			pods = slices.Delete(pods, at, at+1)
		}
		if t.volcano.owns[was] = pods; len(pods) == 0 {
			delete(t.volcano.owns, was)
		}
		left = was
	}
	if is.Name == "" {
		return left
	}
	if was != is {
		t.volcano.owns[is] = append(t.volcano.owns[is], key)
	}
	if t.volcano.objects[is] == nil { // what the pod says may have changed
		t.readVolcanoGang(is, apply)
	}
	return left
}

// readVolcanoGang tells of a gang of Volcano's as it stands.
func (t *Translator) readVolcanoGang(key types.NamespacedName, apply func(cluster.Event)) {
	pg, theirs := t.standingVolcano(key), ""
	if pg != nil && !t.partition.Includes(pg.Labels) {
		theirs, pg = string(pg.UID), nil
	}
	gang := volcano.GangKey(key.Namespace, key.Name)
	t.gang(gang, pg != nil, theirs)
	if pg == nil {
		delete(t.volcano.groups, key)
		t.volcano.asks(key, nil)
		t.regroup(key, nil)
		t.problem(VolcanoPodGroups, key, "")
		apply(cluster.GangGone{Key: gang})
		return
	}
	t.volcano.groups[key] = pg
	t.volcano.asks(key, pg)
	t.regroup(key, pg)
	apply(t.volcanoGang(key, pg))
}

// volcanoGang is the event of a PodGroup of Volcano's as it is, with what other objects say about it.
func (t *Translator) volcanoGang(key types.NamespacedName, pg *v1beta1.PodGroup) cluster.GangState {
	pods := t.volcano.pods(key)
	st := volcano.Gang(pg, t.priorities.Value, t.volcano.tier, pods)
	t.problem(VolcanoPodGroups, key, cmp.Or(st.Invalid, volcano.Unheeded(pg, t.volcano.tier, pods)))
	return st
}

// readVolcanoQueue takes in a queue of Volcano's. While there is any, there is root, with or without an object of the name.
func (t *Translator) readVolcanoQueue(key types.NamespacedName, q *v1beta1.Queue, apply func(cluster.Event)) {
	if q != nil && !t.partition.Includes(q.Labels) {
		q = nil
	}
	known := len(t.volcano.queues) > 0
	if q == nil {
		delete(t.volcano.queues, key.Name)
	} else {
		t.volcano.queues[key.Name] = q
	}
	_, root := t.volcano.queues[keys.RootQueue]
	switch some := len(t.volcano.queues) > 0; {
	case some && !root && (!known || key.Name == keys.RootQueue):
		apply(volcano.Root())
	case known && !some:
		apply(cluster.QueueGone{Name: volcano.QueueName(keys.RootQueue)})
	}
	if q == nil {
		t.problem(VolcanoQueues, key, "")
		if key.Name != keys.RootQueue {
			apply(cluster.QueueGone{Name: volcano.QueueName(key.Name)})
		}
		return
	}
	st, problem := volcano.Queue(q)
	if t.flat && st.Parent != "" {
		st.Parent = volcano.QueueName(keys.RootQueue)
	}
	t.problem(VolcanoQueues, key, problem)
	apply(st)
}

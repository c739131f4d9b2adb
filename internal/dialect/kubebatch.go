package dialect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kbkeys "github.com/muster-scheduler/muster/api/kubebatch/keys"
	kbv1alpha1 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	kbv1alpha2 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kubebatch"
	"github.com/muster-scheduler/muster/internal/entry"
)

// KubeBatch says which pods are kube-batch's, and what its flags say of them.
type KubeBatch struct {
	// Schedulers are the values of spec.schedulerName by which pods are kube-batch's; none: there is no such face.
	Schedulers []string
	// Queue is the queue of gangs that name none; "" means kbkeys.DefaultQueue.
	Queue string
	// Alike has PriorityClasses count for nothing.
	Alike bool
}

// kubeBatchFace is what is known of kube-batch's objects. Without scheduler names nothing ever is.
type kubeBatchFace struct {
	KubeBatch
	groups map[types.NamespacedName]both[*kbv1alpha1.PodGroup] // of all shards
	queues map[string]both[*kbv1alpha1.Queue]

	members map[types.NamespacedName]*upstreamMembers // pods of ours that name no group, by the name of the gang that they are
	budgets map[types.NamespacedName]map[types.NamespacedName]*policyv1.PodDisruptionBudget
	owners  map[types.NamespacedName]types.NamespacedName // of budgets: the gang of whose owner each is

	told  map[types.NamespacedName]struct{} // gangs of our shard
	dirty map[types.NamespacedName]struct{} // to be told anew
}

// both is what two API groups have under one name. Either may be nothing.
type both[T interface {
	comparable
	metav1.Object
}] [2]T

// counts says which of two of one name counts: the older, of two of one second that of the first API group. So nothing that is made later changes what is there.
func (b both[T]) counts() (at int, there bool) {
	var none T
	switch {
	case b[0] == none:
		return 1, b[1] != none
	case b[1] == none:
		return 0, true
	}
	first, second := b[0].GetCreationTimestamp(), b[1].GetCreationTimestamp()
	if second.Time.Before(first.Time) {
		return 1, true
	}
	return 0, true
}

func newKubeBatchFace(o KubeBatch) kubeBatchFace {
	o.Queue = cmp.Or(o.Queue, kbkeys.DefaultQueue)
	return kubeBatchFace{
		KubeBatch: o, groups: map[types.NamespacedName]both[*kbv1alpha1.PodGroup]{}, queues: map[string]both[*kbv1alpha1.Queue]{},
		members: map[types.NamespacedName]*upstreamMembers{}, budgets: map[types.NamespacedName]map[types.NamespacedName]*policyv1.PodDisruptionBudget{},
		owners: map[types.NamespacedName]types.NamespacedName{}, told: map[types.NamespacedName]struct{}{}, dirty: map[types.NamespacedName]struct{}{},
	}
}

// ours says whether a pod is kube-batch's.
func (f *kubeBatchFace) ours(p *v1.Pod) bool {
	return slices.Contains(f.Schedulers, p.Spec.SchedulerName)
}

// overlooked is what is said of an object of the same name in the other API group.
func overlooked(k, counts Kind, key types.NamespacedName) string {
	kind, _, _ := strings.Cut(k.String(), ".")
	name := key.Name
	if key.Namespace != "" {
		name = key.String()
	}
	return fmt.Sprintf("%s %s: it is overlooked: the %s of the same name counts, which is no younger", kind, name, counts)
}

// readKubeBatchQueue takes in a queue of kube-batch's, of either API group.
func (t *Translator) readKubeBatchQueue(k Kind, name string, object Object, apply func(cluster.Event)) {
	at, q := 0, (*kbv1alpha1.Queue)(nil)
	switch o := object.(type) {
	case *kbv1alpha1.Queue:
		q = o
	case *kbv1alpha2.Queue:
		q = kubebatch.FirstQueue(o)
	}
	if k == KubeBatchSigsQueues {
		at = 1
	}
	if q != nil && !t.partition.Includes(q.Labels) {
		q = nil
	}
	pair := t.kubebatch.queues[name]
	pair[at] = q
	t.kubebatch.queues[name] = pair
	is, there := pair.counts()
	kinds, key := [2]Kind{KubeBatchQueues, KubeBatchSigsQueues}, types.NamespacedName{Name: name}
	t.problem(kinds[0], key, "")
	t.problem(kinds[1], key, "")
	if !there {
		delete(t.kubebatch.queues, name)
		apply(cluster.QueueGone{Name: kubebatch.QueueName(name)})
		return
	}
	st, problem := kubebatch.Queue(pair[is])
	t.problem(kinds[is], key, problem)
	if other := 1 - is; pair[other] != nil {
		t.problem(kinds[other], key, overlooked(kinds[other], kinds[is], key))
	}
	apply(st)
}

// readKubeBatchGang takes in a PodGroup of kube-batch's, of either API group.
func (t *Translator) readKubeBatchGang(k Kind, key types.NamespacedName, object Object) {
	at, pg := 0, (*kbv1alpha1.PodGroup)(nil)
	switch o := object.(type) {
	case *kbv1alpha1.PodGroup:
		pg = o
	case *kbv1alpha2.PodGroup:
		pg = kubebatch.First(o)
	}
	if k == KubeBatchSigsPodGroups {
		at = 1
	}
	pair := t.kubebatch.groups[key]
	pair[at] = pg
	if t.kubebatch.groups[key] = pair; pair == (both[*kbv1alpha1.PodGroup]{}) {
		delete(t.kubebatch.groups, key)
	}
	t.kubebatch.dirty[key] = struct{}{}
}

// readKubeBatchBudget takes in a PodDisruptionBudget, which may say how many pods of its owner start together.
func (t *Translator) readKubeBatchBudget(key types.NamespacedName, b *policyv1.PodDisruptionBudget) {
	if len(t.kubebatch.Schedulers) == 0 {
		return
	}
	var is types.NamespacedName
	if b != nil {
		if owner, _, _ := kubebatch.Budget(b); owner != "" {
			is = shadowName(key.Namespace, owner)
		}
	}
	if was := t.kubebatch.owners[key]; was.Name != "" {
		if delete(t.kubebatch.budgets[was], key); len(t.kubebatch.budgets[was]) == 0 {
			delete(t.kubebatch.budgets, was)
		}
		delete(t.kubebatch.owners, key)
		t.kubebatch.dirty[was] = struct{}{}
	}
	if is.Name == "" {
		return
	}
	if t.kubebatch.owners[key] = is; t.kubebatch.budgets[is] == nil {
		t.kubebatch.budgets[is] = map[types.NamespacedName]*policyv1.PodDisruptionBudget{}
	}
	t.kubebatch.budgets[is][key] = b
	t.kubebatch.dirty[is] = struct{}{}
}

// shadowName is the namespace and name of the gang of an owner.
func shadowName(namespace string, owner types.UID) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: kubebatch.ShadowKey(namespace, owner).Name}
}

// followKubeBatch keeps which pods are gangs without a PodGroup, when a pod changes from old to p, which is in pods already; nil is no pod. What the eldest says is what such a gang is.
func (t *Translator) followKubeBatch(key types.NamespacedName, old, p *v1.Pod) {
	named := func(p *v1.Pod) (gang types.NamespacedName) {
		if p == nil || !t.kubebatch.ours(p) || p.Annotations[kbkeys.GroupName] != "" {
			return gang
		}
		return shadowName(p.Namespace, kubebatch.Owner(p))
	}
	was, is := named(old), named(p)
	if was.Name != "" && (was != is || old.UID != p.UID) {
		m := t.kubebatch.members[was]
		first := m.eldest == key
		if delete(m.pods, key); len(m.pods) == 0 {
			delete(t.kubebatch.members, was)
		} else if first {
			t.electUpstream(m)
		}
		if first {
			t.kubebatch.dirty[was] = struct{}{}
		}
	}
	if is.Name == "" {
		return
	}
	m := entry.Or(t.kubebatch.members, is, func() *upstreamMembers {
		return &upstreamMembers{pods: map[types.NamespacedName]struct{}{}, eldest: key}
	})
	m.pods[key] = struct{}{}
	if m.eldest == key || t.elder(key, m.eldest) {
		m.eldest = key
		t.kubebatch.dirty[is] = struct{}{}
	}
}

// recheckKubeBatch tells of the gangs of kube-batch's that may have changed.
func (t *Translator) recheckKubeBatch(apply func(cluster.Event)) {
	for key := range t.kubebatch.dirty { // order: each by itself
		if _, shadow := kubebatch.Shadow(kubebatch.GangKey(key.Namespace, key.Name)); shadow {
			t.one(Pods, key, func() { t.tellShadow(key, apply) })
		} else {
			t.one(KubeBatchPodGroups, key, func() { t.tellKubeBatchGroup(key, apply) })
		}
	}
	clear(t.kubebatch.dirty)
}

// tellKubeBatchGroup tells of the gang of a PodGroup as it is.
func (t *Translator) tellKubeBatchGroup(key types.NamespacedName, apply func(cluster.Event)) {
	kinds := [2]Kind{KubeBatchPodGroups, KubeBatchSigsPodGroups}
	for _, k := range kinds {
		t.problem(k, key, "")
	}
	pair := t.kubebatch.groups[key]
	is, there := pair.counts()
	if !there {
		t.tellKubeBatch(key, nil, nil, apply)
		return
	}
	st := kubebatch.Gang(pair[is], t.kubeBatchPriority, t.kubebatch.Queue)
	if t.tellKubeBatch(key, &st, pair[is].Labels, apply) {
		t.problem(kinds[is], key, st.Invalid)
	}
	if other := 1 - is; pair[other] != nil {
		t.problem(kinds[other], key, overlooked(kinds[other], kinds[is], key))
	}
}

// tellShadow tells of a gang that pods are without a PodGroup. How many start together says the oldest PodDisruptionBudget of their owner, or else the eldest pod.
func (t *Translator) tellShadow(key types.NamespacedName, apply func(cluster.Event)) {
	m := t.kubebatch.members[key]
	if m == nil {
		for budget := range t.kubebatch.budgets[key] { // order: each by itself
			t.problem(PodDisruptionBudgets, budget, "")
		}
		t.tellKubeBatch(key, nil, nil, apply)
		return
	}
	p := t.pods[m.eldest]
	least, _ := kubebatch.MinMember(p) // what is wrong is told of each pod
	var oldest *policyv1.PodDisruptionBudget
	for name, b := range t.kubebatch.budgets[key] { // order: minimum
		_, said, problem := kubebatch.Budget(b)
		t.problem(PodDisruptionBudgets, name, problem)
		if problem == "" && (oldest == nil || cmp.Or(b.CreationTimestamp.Compare(oldest.CreationTimestamp.Time), cmp.Compare(b.Name, oldest.Name)) < 0) {
			oldest, least = b, said
		}
	}
	st := kubebatch.ShadowGang(p, least, t.kubeBatchPriority, t.kubebatch.Queue)
	t.tellKubeBatch(key, &st, p.Labels, apply)
}

// tellKubeBatch tells of a gang of kube-batch's, nil for one that is gone, whose labels say of which shard it is; it returns whether it is ours.
func (t *Translator) tellKubeBatch(key types.NamespacedName, st *cluster.GangState, labels map[string]string, apply func(cluster.Event)) bool {
	gang, theirs := kubebatch.GangKey(key.Namespace, key.Name), ""
	if st != nil && !t.partition.Includes(labels) {
		theirs, st = st.UID, nil
	}
	t.gang(gang, st != nil, theirs)
	if st == nil {
		delete(t.kubebatch.told, key)
		apply(cluster.GangGone{Key: gang})
		return false
	}
	t.kubebatch.told[key] = struct{}{}
	apply(*st)
	return true
}

// kubeBatchPriority is what a PriorityClass is worth to gangs of kube-batch's.
func (t *Translator) kubeBatchPriority(class string) (int32, bool) {
	if t.kubebatch.Alike {
		return 0, false
	}
	return t.priorities.Value(class)
}

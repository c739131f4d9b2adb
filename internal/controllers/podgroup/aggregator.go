package podgroup

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/tally"
	"github.com/muster-scheduler/muster/internal/dialect/upstream"
	"github.com/muster-scheduler/muster/internal/entry"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// urgency says how long a gang's status may wait to be written.
type urgency uint8

const (
	settled urgency = iota // nothing to write
	relaxed                // only requests changed: more is likely to come
	soon                   // what the gang holds changed
)

// change names a gang whose status has to be written, or, without a namespace, a queue whose remnants have.
type change struct {
	gang    types.NamespacedName
	urgency urgency
}

// aggregator turns events into the statuses that gangs should have. Each event method returns the gangs that have to be
// looked at because of it; a gang is named once, and again only after take, unless it becomes more urgent. The slice
// is valid until the next call. It is not safe for concurrent use.
type aggregator struct {
	queueLabel string
	ours       map[string]bool // scheduler names
	ownGangs   kai.OwnGangs
	gangs      map[types.NamespacedName]*gang
	pods       map[types.UID]*member
	classes    kai.Priorities
	nodes      map[string]*gpuNode
	claims     map[types.NamespacedName]*deviceClaim
	queues     map[string]*queueRest
	changes    []change
}

// deviceClaim is a ResourceClaim that counts as something, one that pods use, or both.
type deviceClaim struct {
	list corev1.ResourceList
	pods map[types.UID]*corev1.Pod
}

// gang is a PodGroup, pods that name one, or both.
type gang struct {
	key            types.NamespacedName
	exists         bool // the PodGroup does; pods may be first
	queue          string
	observed       v2alpha2.PodGroupResourcesStatus
	preemptibility v2alpha2.Preemptibility
	class          string
	fixed          bool // cannot be preempted
	members        int
	accounts       []account // one of each queue that is charged, "" for whatever the PodGroup's is: mostly one, for which a map is four times the size
	queued         urgency
}

// member is a pod that counts.
type member struct {
	gang  *gang
	queue string // that is charged by record, "" for none
	fixed bool   // it was placed as non-preemptible
	share share
	pod   *corev1.Pod // only of those whose share depends on their node
	uses  []types.NamespacedName
}

// gpuNode is a node that states the memory of its GPUs, or one that pods wait for to do so.
type gpuNode struct {
	labels map[string]string
	exists bool
	pods   map[types.UID]*corev1.Pod // those whose share depends on it
}

func newAggregator(schedulerNames []string, queueLabel string) *aggregator {
	f := &aggregator{
		queueLabel: queueLabel,
		ours:       make(map[string]bool, len(schedulerNames)),
		gangs:      map[types.NamespacedName]*gang{},
		pods:       map[types.UID]*member{},
		nodes:      map[string]*gpuNode{}, claims: map[types.NamespacedName]*deviceClaim{}, queues: map[string]*queueRest{},
	}
	for _, name := range schedulerNames {
		f.ours[name] = true
	}
	return f
}

// podChanged takes in a pod that was created or updated. The pod is kept, not changed. An error says what part of it
// could not be counted.
func (f *aggregator) podChanged(pod *corev1.Pod) ([]change, error) {
	f.changes = f.changes[:0]
	err := f.count(pod)
	return f.changes, err
}

// podGone takes in that a pod was deleted.
func (f *aggregator) podGone(uid types.UID) []change {
	f.changes = f.changes[:0]
	f.forget(uid)
	return f.changes
}

func (f *aggregator) count(pod *corev1.Pod) error {
	own := f.ownGangs.Of(pod)
	gang, _ := kai.MembershipOf(pod, own)
	name, queue, fixed := gang.Name, "", false
	if own != nil { // there is no object whose queue could be meant
		queue = own.Spec.Queue
	}
	if of := upstream.Membership(pod); name == "" && of.Name != "" { // nor is a group of Kubernetes' own one that is written to
		queue = upstream.Queue(pod.Labels, f.queueLabel)
		name = cluster.GroupName(of, queue)
	}
	if pod.Spec.NodeName != "" { // what it holds is counted where it was bound, whatever it says since
		if c := kai.ReadCharged(pod.Namespace, pod.Annotations); c.Queue != "" {
			name, queue, fixed = cluster.GroupName(c.Gang, c.Queue), c.Queue, c.Fixed
		}
	}
	if name == "" || !f.ours[pod.Spec.SchedulerName] {
		f.forget(pod.UID)
		return nil
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: name}
	m := f.pods[pod.UID]
	if m != nil && (m.gang.key != key || m.queue != queue || m.fixed != fixed) {
		f.forget(pod.UID)
		m = nil
	}
	now, err := shareOf(pod, f)
	if err != nil {
		err = fmt.Errorf("pod %s/%s: its shared GPU is not counted: %w", pod.Namespace, pod.Name, err)
	}
	if m == nil {
		m = &member{gang: f.gang(key), queue: queue, fixed: fixed}
		m.gang.members++
		f.pods[pod.UID] = m
	}
	f.tie(m, pod)
	f.use(m, pod)
	was := m.share
	m.share = now
	u := settled
	switch {
	case !was.allocated.Equal(now.allocated):
		u = soon
	case !was.requested.Equal(now.requested):
		u = relaxed
	}
	if u != settled {
		f.book(m, was, now, u)
	}
	return err
}

func (f *aggregator) forget(uid types.UID) {
	m := f.pods[uid]
	if m == nil {
		return
	}
	f.untie(m)
	f.unuse(m, uid)
	delete(f.pods, uid)
	g := m.gang
	g.members--
	switch {
	case !m.share.allocated.Empty():
		f.book(m, m.share, share{}, soon)
	case !m.share.requested.Empty():
		f.book(m, m.share, share{}, relaxed)
	}
	f.prune(g)
}

// tie lets a pod whose share depends on its node be counted anew when the node changes.
func (f *aggregator) tie(m *member, pod *corev1.Pod) {
	tied := pod.Spec.NodeName != "" && byMemory(pod)
	if m.pod != nil && (!tied || m.pod.Spec.NodeName != pod.Spec.NodeName) {
		f.untie(m)
	}
	if !tied {
		return
	}
	m.pod = pod
	n := entry.Of(f.nodes, pod.Spec.NodeName)
	if n.pods == nil {
		n.pods = map[types.UID]*corev1.Pod{}
	}
	n.pods[pod.UID] = pod
}

func (f *aggregator) untie(m *member) {
	if m.pod == nil {
		return
	}
	name := m.pod.Spec.NodeName
	n := f.nodes[name]
	delete(n.pods, m.pod.UID)
	m.pod = nil
	if !n.exists && len(n.pods) == 0 {
		delete(f.nodes, name)
	}
}

// use lets a pod with claims be counted anew when one of them changes.
func (f *aggregator) use(m *member, pod *corev1.Pod) {
	uses := claimsOf(pod)
	if !slices.Equal(uses, m.uses) {
		f.unuse(m, pod.UID)
	}
	m.uses = uses
	for _, name := range uses {
		c := entry.Of(f.claims, name)
		if c.pods == nil {
			c.pods = map[types.UID]*corev1.Pod{}
		}
		c.pods[pod.UID] = pod
	}
}

func (f *aggregator) unuse(m *member, uid types.UID) {
	for _, name := range m.uses {
		if c := f.claims[name]; c != nil { // the same claim may be named twice
			delete(c.pods, uid)
			f.pruneClaim(name, c)
		}
	}
	m.uses = nil
}

func (f *aggregator) pruneClaim(name types.NamespacedName, c *deviceClaim) {
	if len(c.pods) == 0 && len(c.list) == 0 {
		delete(f.claims, name)
	}
}

// claimed is what a claim counts as.
func (f *aggregator) claimed(name types.NamespacedName) corev1.ResourceList {
	if c := f.claims[name]; c != nil {
		return c.list
	}
	return nil
}

// claimChanged takes in what a ResourceClaim counts as; nothing if it was deleted. Errors say which of its pods cannot be
// counted in full.
func (f *aggregator) claimChanged(name types.NamespacedName, list corev1.ResourceList) ([]change, []error) {
	f.changes = f.changes[:0]
	if tally.Equal(f.claimed(name), list) {
		return nil, nil
	}
	c := entry.Of(f.claims, name)
	c.list = list
	var errs []error
	for _, pod := range slices.Collect(maps.Values(c.pods)) { // of a copy; the order does not matter: each adds to its own gang, exactly
		if err := f.count(pod); err != nil {
			errs = append(errs, err)
		}
	}
	f.pruneClaim(name, c)
	return f.changes, errs
}

// groupChanged takes in a PodGroup that was created or updated, which is also how the aggregator sees its own writes. The
// object is kept, not changed.
func (f *aggregator) groupChanged(pg *v2alpha2.PodGroup) []change {
	f.changes = f.changes[:0]
	g := f.gang(types.NamespacedName{Namespace: pg.Namespace, Name: pg.Name})
	g.exists, g.queue = true, pg.Spec.Queue
	g.observed = pg.Status.ResourcesStatus
	g.preemptibility, g.class = pg.Spec.Preemptibility, pg.Spec.PriorityClassName
	g.fixed = !f.classes.Preemptible(g.preemptibility, g.class)
	f.restOf(g)
	if g.queued < soon {
		f.mark(g, g.due())
	}
	return f.changes
}

// groupGone takes in that a PodGroup was deleted.
func (f *aggregator) groupGone(key types.NamespacedName) []change {
	f.changes = f.changes[:0]
	if g := f.gangs[key]; g != nil {
		// A new PodGroup of that name starts from nothing, and is written as if nobody had been waiting.
		g.exists, g.queue, g.fixed, g.queued, g.observed = false, "", false, settled, v2alpha2.PodGroupResourcesStatus{}
		f.restOf(g)
		f.prune(g)
	}
	return f.changes
}

// classChanged takes in a PriorityClass that was created or updated.
func (f *aggregator) classChanged(class *schedulingv1.PriorityClass) []change {
	f.changes = f.changes[:0]
	if f.classes.Set(class) {
		f.reclassify()
	}
	return f.changes
}

// classGone takes in that a PriorityClass was deleted.
func (f *aggregator) classGone(name string) []change {
	f.changes = f.changes[:0]
	if f.classes.Remove(name) {
		f.reclassify()
	}
	return f.changes
}

// reclassify looks at every gang, which priority classes change too rarely to make a cost.
func (f *aggregator) reclassify() {
	for _, g := range f.gangs {
		if !g.exists {
			continue
		}
		if fixed := !f.classes.Preemptible(g.preemptibility, g.class); fixed != g.fixed {
			g.fixed = fixed
			f.restOf(g)
			f.mark(g, g.due())
		}
	}
}

// nodeChanged takes in a node that was created or updated; nil labels and !exists that it was deleted. Errors say
// which of its pods cannot be counted in full.
func (f *aggregator) nodeChanged(name string, labels map[string]string, exists bool) ([]change, []error) {
	f.changes = f.changes[:0]
	n := entry.Of(f.nodes, name)
	before, beforeErr := gpuMemoryOf(n.labels)
	now, nowErr := gpuMemoryOf(labels)
	n.labels, n.exists = labels, exists
	var errs []error
	if before != now || (beforeErr == nil) != (nowErr == nil) {
		for _, pod := range slices.Collect(maps.Values(n.pods)) { // of a copy; the order does not matter: each adds to its own gang, exactly
			if err := f.count(pod); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if !exists && len(n.pods) == 0 {
		delete(f.nodes, name)
	}
	return f.changes, errs
}

func (f *aggregator) gpuMemory(node string) (int64, error) {
	n := f.nodes[node]
	if n == nil || !n.exists {
		return 0, fmt.Errorf("node %s: it does not exist (yet)", node)
	}
	mib, err := gpuMemoryOf(n.labels)
	if err != nil {
		return 0, fmt.Errorf("node %s: %w", node, err)
	}
	return mib, nil
}

func (f *aggregator) gang(key types.NamespacedName) *gang {
	return entry.Or(f.gangs, key, func() *gang { return &gang{key: key} })
}

func (f *aggregator) prune(g *gang) {
	if !g.exists && g.members == 0 {
		delete(f.gangs, g.key)
	}
}

// mark reports a gang, unless it is reported already and no more urgent than then.
func (f *aggregator) mark(g *gang, u urgency) {
	if !g.exists || u <= g.queued {
		return
	}
	g.queued = u
	f.changes = append(f.changes, change{g.key, u})
}

// due says how urgently the gang's status differs from what it should be.
func (g *gang) due() urgency {
	d := g.desired()
	switch {
	case !tally.Equal(g.observed.Allocated, d.Allocated),
		!tally.Equal(g.observed.AllocatedNonPreemptible, d.AllocatedNonPreemptible):
		return soon
	case !tally.Equal(g.observed.Requested, d.Requested):
		return relaxed
	}
	return settled
}

// desired is what the pods hold that are charged to the queue of the PodGroup; the rest is the queues' own.
func (g *gang) desired() v2alpha2.PodGroupResourcesStatus {
	sum := g.charged("")
	if g.queue != "" {
		sum = sum.plus(g.charged(g.queue))
	}
	return sum.of(g.fixed).status()
}

// charged is what the gang's pods ask for and hold that are charged to a queue by record; "" are the others.
func (g *gang) charged(queue string) balance {
	if at := g.account(queue); at >= 0 {
		return g.accounts[at].balance
	}
	return balance{}
}

// take returns the merge patch that makes a gang's status what it should be, nil when it is that already or the gang
// has no PodGroup. From now on events report the gang again.
func (f *aggregator) take(key types.NamespacedName) []byte {
	g := f.gangs[key]
	if g == nil || !g.exists {
		return nil
	}
	g.queued = settled
	return patch(g.observed, g.desired())
}

// patch is the merge patch from one resourcesStatus to another, nil when they are equal.
func patch(observed, desired v2alpha2.PodGroupResourcesStatus) []byte {
	fields := map[string]any{}
	put := func(name string, observed, desired corev1.ResourceList) {
		if d := tally.Diff(observed, desired); d != nil {
			fields[name] = d
		}
	}
	put("allocated", observed.Allocated, desired.Allocated)
	put("allocatedNonPreemptible", observed.AllocatedNonPreemptible, desired.AllocatedNonPreemptible)
	put("requested", observed.Requested, desired.Requested)
	if len(fields) == 0 {
		return nil
	}
	return write.Body(map[string]any{"status": map[string]any{"resourcesStatus": fields}})
}

package queue

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/tally"
	"github.com/muster-scheduler/muster/internal/entry"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// structure is the name under which the aggregator reports that the tree has to be added up anew. No Queue has it.
const structure = ""

// amounts are what gangs ask for and hold.
type amounts struct {
	requested, allocated, allocatedNonPreemptible tally.Sum
}

// lists are what one gang contributes.
type lists struct {
	requested, allocated, allocatedNonPreemptible corev1.ResourceList
}

func listsOf(r *v2alpha2.PodGroupResourcesStatus) lists {
	return lists{tally.Accepted(r.Requested), tally.Accepted(r.Allocated), tally.Accepted(r.AllocatedNonPreemptible)}
}

func (l lists) equal(other lists) bool {
	return tally.Equal(l.requested, other.requested) && tally.Equal(l.allocated, other.allocated) &&
		tally.Equal(l.allocatedNonPreemptible, other.allocatedNonPreemptible)
}

func (a *amounts) add(l lists) {
	a.requested.Add(l.requested)
	a.allocated.Add(l.allocated)
	a.allocatedNonPreemptible.Add(l.allocatedNonPreemptible)
}

func (a *amounts) sub(l lists) {
	a.requested.Sub(l.requested)
	a.allocated.Sub(l.allocated)
	a.allocatedNonPreemptible.Sub(l.allocatedNonPreemptible)
}

func (a *amounts) addAll(other *amounts) {
	a.requested.AddSum(&other.requested)
	a.allocated.AddSum(&other.allocated)
	a.allocatedNonPreemptible.AddSum(&other.allocatedNonPreemptible)
}

// aggregator turns events into the statuses that queues should have. Each event method returns the names of the queues that
// have to be looked at because of it, or structure; each is named once, and again only after take. The slice is valid
// until the next call. It is not safe for concurrent use.
type aggregator struct {
	nodes     map[string]*node
	gangs     map[types.NamespacedName]*gang
	stale     bool // the tree changed: parents and totals are not to be trusted until rebuild
	structure bool // structure is reported and not yet taken
	changes   []string
}

// node is a Queue, a name that queues or gangs refer to, or both.
type node struct {
	name     string
	exists   bool // the Queue does
	spec     v2.QueueSpec
	labels   map[string]string
	observed v2.QueueStatus
	extended map[string]v2.QueueResource // further resources, from the spec or from the copy
	copied   *string                     // the copy of spec.resources.extended in the annotation, nil for none
	children map[*node]bool              // existing queues that name this one as parent
	gangs    int                         // gangs that name this queue
	remnants lists                       // what is charged to it besides, from the annotation
	own      amounts
	queued   bool

	// The rest is valid while the aggregator is not stale.
	parent *node // whose total this one's is part of; nil at the top, for orphans and in circles
	cycle  []string
	total  amounts
}

// gang is what a PodGroup contributes, and to whom.
type gang struct {
	queue string
	lists
}

func newAggregator() *aggregator {
	return &aggregator{nodes: map[string]*node{}, gangs: map[types.NamespacedName]*gang{}}
}

// groupChanged takes in a PodGroup that was created or updated. Its lists are kept, not changed.
func (f *aggregator) groupChanged(pg *v2alpha2.PodGroup) []string {
	f.changes = f.changes[:0]
	key := types.NamespacedName{Namespace: pg.Namespace, Name: pg.Name}
	now := &gang{queue: pg.Spec.Queue, lists: listsOf(&pg.Status.ResourcesStatus)}
	was := f.gangs[key]
	f.gangs[key] = now
	if was == nil {
		f.enter(now)
		return f.changes
	}
	if was.queue == now.queue && was.equal(now.lists) {
		return nil
	}
	f.enter(now) // before the leave, so that a node which both need is not dropped and made anew
	f.leave(was)
	return f.changes
}

// groupGone takes in that a PodGroup was deleted.
func (f *aggregator) groupGone(key types.NamespacedName) []string {
	f.changes = f.changes[:0]
	if g := f.gangs[key]; g != nil {
		delete(f.gangs, key)
		f.leave(g)
	}
	return f.changes
}

func (f *aggregator) enter(g *gang) {
	if g.queue == "" {
		return
	}
	n := f.node(g.queue)
	n.gangs++
	n.own.add(g.lists)
	f.climb(n, func(a *amounts) { a.add(g.lists) })
}

func (f *aggregator) leave(g *gang) {
	if g.queue == "" {
		return
	}
	n := f.nodes[g.queue]
	n.gangs--
	n.own.sub(g.lists)
	f.climb(n, func(a *amounts) { a.sub(g.lists) })
	f.prune(n)
}

// climb changes the total of a queue and all above it. In a stale tree that is left to rebuild.
func (f *aggregator) climb(n *node, change func(*amounts)) {
	if f.stale {
		return
	}
	for ; n != nil; n = n.parent {
		change(&n.total)
		f.mark(n)
	}
}

// queueChanged takes in a Queue that was created or updated, which is also how the aggregator sees its own writes. The
// object is kept, not changed.
func (f *aggregator) queueChanged(q *v2.Queue) []string {
	f.changes = f.changes[:0]
	n := f.node(q.Name)
	if !n.exists || n.spec.ParentQueue != q.Spec.ParentQueue {
		f.unlink(n)
		n.exists, n.spec.ParentQueue = true, q.Spec.ParentQueue
		f.link(n)
		f.restructure()
	}
	n.spec, n.labels, n.observed = q.Spec, q.Labels, q.Status
	remnants := kai.ReadRemnants(q)
	f.besides(n, listsOf(&remnants))
	n.extended, _, _ = kai.Extended(q)
	n.copied = nil
	if text, ok := q.Annotations[keys.ExtendedResourcesAnnotation]; ok {
		n.copied = &text
	}
	if !f.stale && !n.queued && (n.patch(time.Time{}) != nil || n.recopy() != nil) {
		f.mark(n)
	}
	return f.changes
}

// queueGone takes in that a Queue was deleted.
func (f *aggregator) queueGone(name string) []string {
	f.changes = f.changes[:0]
	n := f.nodes[name]
	if n == nil || !n.exists {
		return nil
	}
	f.unlink(n)
	f.besides(n, lists{})
	n.exists, n.queued = false, false
	n.spec, n.labels, n.observed, n.extended, n.copied = v2.QueueSpec{}, nil, v2.QueueStatus{}, nil, nil
	f.restructure()
	f.prune(n)
	return f.changes
}

// besides takes in what is charged to a queue without a PodGroup.
func (f *aggregator) besides(n *node, now lists) {
	was := n.remnants
	if was.equal(now) {
		return
	}
	n.remnants = now
	n.own.sub(was)
	n.own.add(now)
	f.climb(n, func(a *amounts) { a.sub(was); a.add(now) })
}

func (f *aggregator) link(n *node) {
	if n.spec.ParentQueue == "" {
		return
	}
	p := f.node(n.spec.ParentQueue)
	if p.children == nil {
		p.children = map[*node]bool{}
	}
	p.children[n] = true
}

func (f *aggregator) unlink(n *node) {
	if !n.exists || n.spec.ParentQueue == "" {
		return
	}
	p := f.nodes[n.spec.ParentQueue]
	delete(p.children, n)
	if p != n {
		f.prune(p)
	}
}

func (f *aggregator) restructure() {
	f.stale = true
	if !f.structure {
		f.structure = true
		f.changes = append(f.changes, structure)
	}
}

func (f *aggregator) node(name string) *node {
	return entry.Or(f.nodes, name, func() *node { return &node{name: name} })
}

func (f *aggregator) prune(n *node) {
	if !n.exists && n.gangs == 0 && len(n.children) == 0 {
		delete(f.nodes, n.name)
	}
}

// mark reports a queue, unless it is reported already or there is no such Queue.
func (f *aggregator) mark(n *node) {
	if n.exists && !n.queued {
		n.queued = true
		f.changes = append(f.changes, n.name)
	}
}

// take returns the merge patches that make a queue's status and its annotation what they should be, nil for what is that
// already and when there is no such Queue; and, because a stale tree is added up first, the queues to be looked at after this one. From now on
// events report the queue again.
func (f *aggregator) take(name string, now time.Time) (patch, recopy []byte, more []string) {
	f.changes = f.changes[:0]
	if name == structure {
		f.structure = false
	}
	f.refresh()
	if n := f.nodes[name]; n != nil && n.exists {
		n.queued = false
		patch, recopy = n.patch(now), n.recopy()
	}
	return patch, recopy, f.changes
}

// refresh adds a stale tree up anew and reports the queues whose status should be another.
func (f *aggregator) refresh() {
	if !f.stale {
		return
	}
	f.stale = false
	rebuild(f.nodes)
	for _, n := range f.nodes {
		if n.exists && !n.queued && (n.patch(time.Time{}) != nil || n.recopy() != nil) {
			f.mark(n)
		}
	}
}

// recopy is the merge patch that makes the copy of spec.resources.extended equal to it, nil when it is. A spec without
// the field leaves the copy alone: it may have been dropped by an API server that does not know it.
func (n *node) recopy() []byte {
	text, ok := kai.ExtendedCopy(&n.spec)
	var value any
	switch {
	case !ok, text == "" && n.copied == nil, text != "" && n.copied != nil && *n.copied == text:
		return nil
	case text != "":
		value = text
	}
	return marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{keys.ExtendedResourcesAnnotation: value}}})
}

// childNames are the names of the existing queues right below, sorted.
func (n *node) childNames() []string {
	if len(n.children) == 0 {
		return nil
	}
	names := make([]string, 0, len(n.children))
	for c := range n.children {
		names = append(names, c.name)
	}
	slices.Sort(names)
	return names
}

// patch is the merge patch from the observed status to the right one, nil when they are equal. Now is the time that
// changed conditions get.
func (n *node) patch(now time.Time) []byte {
	fields := map[string]any{}
	if names := n.childNames(); !slices.Equal(names, n.observed.ChildQueues) {
		if names == nil {
			fields["childQueues"] = nil
		} else {
			fields["childQueues"] = names
		}
	}
	put := func(name string, observed corev1.ResourceList, total *tally.Sum) {
		if d := tally.Diff(observed, total.List()); d != nil {
			fields[name] = d
		}
	}
	put("allocated", n.observed.Allocated, &n.total.allocated)
	put("allocatedNonPreemptible", n.observed.AllocatedNonPreemptible, &n.total.allocatedNonPreemptible)
	put("requested", n.observed.Requested, &n.total.requested)
	if conditions, changed := n.conditions(now); changed {
		fields["conditions"] = conditions
	}
	if len(fields) == 0 {
		return nil
	}
	return marshal(map[string]any{"status": fields})
}

func marshal(patch map[string]any) []byte {
	return write.Body(patch)
}

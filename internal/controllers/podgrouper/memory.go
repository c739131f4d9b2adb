package podgrouper

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/workload"
)

// derivation is what is remembered of the pods of one nearest owner, or of one part of them. It is immutable.
type derivation struct {
	owner types.UID
	// namespace is that of the pods: a pod of another one that names the same owner has its own derivation.
	namespace string
	// part tells the pods of an owner apart that are in different gangs; see workload.Table.Part.
	part string
	// chain are the owners it was derived from, the nearest among them.
	chain []types.UID
	// left says that the owners ask to leave the pods alone; nothing below counts then.
	left bool
	// failed is why no group could be derived, which no retry mends before an object changes; nothing below counts then.
	failed error
	// lacks is the kind that the API server does not serve, if that is why.
	lacks schema.GroupVersionKind
	// eachPod says that each pod has a group of its own, which is derived per pod. anew says that it has to be derived per
	// pod because no one knows beforehand which pods share one.
	eachPod, anew bool
	// podNamed says that a group named after the pod wins if it exists.
	podNamed bool
	group    types.NamespacedName
	queue    string // that the group is made with
	// alone is the pod that is the gang by itself; "" for none, or if there is a PodGroup. It is derived anew for each pod: another one of the
	// owner takes a PodGroup. own is that gang, for who derived it: it is not remembered.
	alone   types.UID
	own     *v2alpha2.PodGroup
	members workload.Members
	// expires is the time from which it is not trusted any more; zero means as long as no event says otherwise.
	expires time.Time
}

// groupOf is the name of the pod's group.
func (d *derivation) groupOf(pod *corev1.Pod) string {
	if d.eachPod {
		return workload.GroupName(pod.Name, pod.UID)
	}
	return d.group.Name
}

// key is what a derivation is remembered by: the namespace, the nearest owner's UID, and the part if there is one.
func (d *derivation) key() types.UID { return memoryKey(d.namespace, d.owner, d.part) }

func memoryKey(namespace string, owner types.UID, part string) types.UID {
	key := owner
	if namespace != "" {
		key = types.UID(namespace+"/") + owner
	}
	if part != "" {
		key += types.UID("/" + part)
	}
	return key
}

// memory holds derivations by their key, bounded by forgetting the least recently used. It also sees
// to it that of many pods with one new owner only one does the work, and that a derivation made from facts that changed
// meanwhile is not kept.
type memory struct {
	mu      sync.Mutex
	most    int
	entries map[types.UID]*list.Element // of *derivation
	recent  *list.List
	// links and groups find entries by each UID of their chain and by group.
	links  index[types.UID, types.UID]
	groups index[types.NamespacedName, types.UID]
	// making are the derivations under way; changed are the UIDs that changed, and gone the groups that went away, since the
	// oldest of them began.
	making  map[types.UID]chan struct{}
	changed map[types.UID]struct{}
	gone    map[types.NamespacedName]struct{}
	// ours are the generations of groups that our own last change is about to make.
	ours map[types.NamespacedName]int64
}

func newMemory(most int) *memory {
	return &memory{
		most:    most,
		entries: map[types.UID]*list.Element{},
		recent:  list.New(),
		links:   index[types.UID, types.UID]{},
		groups:  index[types.NamespacedName, types.UID]{},
		making:  map[types.UID]chan struct{}{},
		changed: map[types.UID]struct{}{},
		gone:    map[types.NamespacedName]struct{}{},
		ours:    map[types.NamespacedName]int64{},
	}
}

// get returns what is remembered, or nil.
func (m *memory) get(key types.UID, now time.Time) *derivation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lookup(key, now)
}

func (m *memory) lookup(key types.UID, now time.Time) *derivation {
	e := m.entries[key]
	if e == nil {
		return nil
	}
	d := e.Value.(*derivation)
	if !d.expires.IsZero() && !now.Before(d.expires) {
		return nil
	}
	m.recent.MoveToFront(e)
	return d
}

// derive returns what is remembered, or else what work returns, and remembers that. While work runs for a key, other
// callers for the same key wait for it; when it fails they try themselves, in turn. stale says that an owner changed
// while work ran: the result was right a moment ago, is not kept, and the caller should come back.
func (m *memory) derive(
	ctx context.Context, key types.UID, now time.Time, work func() (*derivation, error),
) (d *derivation, stale bool, err error) {
	for {
		m.mu.Lock()
		if d := m.lookup(key, now); d != nil {
			m.mu.Unlock()
			return d, false, nil
		}
		busy := m.making[key]
		if busy == nil {
			break
		}
		m.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	done := make(chan struct{})
	m.making[key] = done
	m.mu.Unlock()
	defer func() { // a panic in work must not leave the others waiting
		m.mu.Lock()
		delete(m.making, key)
		if d != nil && err == nil {
			stale = m.keep(d)
		}
		if len(m.making) == 0 {
			clear(m.changed)
			clear(m.gone)
		}
		m.mu.Unlock()
		close(done)
	}()
	d, err = work()
	return d, stale, err
}

// keep stores a derivation unless one of its owners changed, or its group went away, meanwhile.
func (m *memory) keep(d *derivation) (stale bool) {
	if _, yes := m.gone[d.group]; yes {
		return true
	}
	for _, uid := range d.chain {
		if _, yes := m.changed[uid]; yes {
			return true
		}
	}
	if d.own != nil {
		lean := *d
		lean.own = nil
		d = &lean
	}
	key := d.key()
	m.drop(key)
	m.entries[key] = m.recent.PushFront(d)
	for _, uid := range d.chain {
		m.links.add(uid, key)
	}
	if !d.eachPod {
		m.groups.add(d.group, key)
	}
	for len(m.entries) > m.most {
		m.drop(m.recent.Back().Value.(*derivation).key())
	}
	return false
}

func (m *memory) drop(key types.UID) {
	e := m.entries[key]
	if e == nil {
		return
	}
	d := m.recent.Remove(e).(*derivation)
	delete(m.entries, key)
	for _, uid := range d.chain {
		m.links.remove(uid, key)
	}
	m.groups.remove(d.group, key)
}

// forgetOwner forgets all that was derived from an object, which changed or went away, and returns the nearest owners
// that it forgot.
func (m *memory) forgetOwner(uid types.UID) []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.making) > 0 {
		m.changed[uid] = struct{}{}
	}
	return m.forget(m.links.of(uid))
}

// forgetGroup forgets all that leads to a PodGroup, and returns the nearest owners that it forgot.
func (m *memory) forgetGroup(group types.NamespacedName) []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.forget(m.groups.of(group))
}

// forgetKey forgets one derivation.
func (m *memory) forgetKey(key types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(key)
}

// changing notes that we are about to change a group that is of a generation. What is noted is bounded by starting anew.
func (m *memory) changing(group types.NamespacedName, generation int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.ours) >= m.most {
		clear(m.ours)
	}
	m.ours[group] = generation + 1
}

// own says whether a change of a group to a generation is the one that we noted, and takes the note back. Were it a reason to
// look at the gang again, two owners of one gang that do not agree about it would keep each other, and us, busy for ever.
func (m *memory) own(group types.NamespacedName, generation int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if generation == 0 || m.ours[group] != generation {
		return false
	}
	delete(m.ours, group)
	return true
}

// forgetGone is forgetGroup for a group that is there no more.
func (m *memory) forgetGone(group types.NamespacedName) []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.making) > 0 {
		m.gone[group] = struct{}{}
	}
	return m.forget(m.groups.of(group))
}

func (m *memory) forget(keys []types.UID) []types.UID {
	var owners []types.UID
	for _, key := range keys {
		owner := m.entries[key].Value.(*derivation).owner
		if !slices.Contains(owners, owner) {
			owners = append(owners, owner)
		}
		m.drop(key)
	}
	return owners
}

// all returns what is remembered, expired entries included, in no particular order.
func (m *memory) all() []*derivation {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*derivation, 0, len(m.entries))
	for _, e := range m.entries {
		out = append(out, e.Value.(*derivation))
	}
	return out
}

// discard forgets a derivation, unless it was replaced by another meanwhile.
func (m *memory) discard(d *derivation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[d.key()]; e != nil && e.Value.(*derivation) == d {
		m.drop(d.key())
	}
}

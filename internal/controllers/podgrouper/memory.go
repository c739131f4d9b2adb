package podgrouper

import (
	"container/list"
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/dialect/workload"
)

// derivation is what is remembered of the pods of one nearest owner. It is immutable.
type derivation struct {
	owner types.UID
	// chain are the owners it was derived from, the nearest among them.
	chain []types.UID
	// left says that the owners ask to leave the pods alone; nothing below counts then.
	left bool
	// failed is why no group could be derived, a *workload.Invalid; nothing below counts then.
	failed error
	// eachPod says that each pod has a group of its own, which is derived per pod.
	eachPod bool
	// podNamed says that a group named after the pod wins if it exists.
	podNamed bool
	group    types.NamespacedName
	members  workload.Members
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

// memory holds derivations by the UID of the nearest owner, bounded by forgetting the least recently used. It also sees
// to it that of many pods with one new owner only one does the work, and that a derivation made from facts that changed
// meanwhile is not kept.
type memory struct {
	mu      sync.Mutex
	most    int
	entries map[types.UID]*list.Element // of *derivation
	recent  *list.List
	// links and groups find entries by each UID of their chain and by group.
	links  index[types.UID]
	groups index[types.NamespacedName]
	// making are the derivations under way; changed are the UIDs that changed since the oldest of them began.
	making  map[types.UID]chan struct{}
	changed map[types.UID]struct{}
}

func newMemory(most int) *memory {
	return &memory{
		most:    most,
		entries: map[types.UID]*list.Element{},
		recent:  list.New(),
		links:   index[types.UID]{},
		groups:  index[types.NamespacedName]{},
		making:  map[types.UID]chan struct{}{},
		changed: map[types.UID]struct{}{},
	}
}

// get returns what is remembered, or nil.
func (m *memory) get(owner types.UID, now time.Time) *derivation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lookup(owner, now)
}

func (m *memory) lookup(owner types.UID, now time.Time) *derivation {
	e := m.entries[owner]
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

// derive returns what is remembered, or else what work returns, and remembers that. While work runs for an owner, other
// callers for the same owner wait for it; when it fails they try themselves, in turn. stale says that an owner changed
// while work ran: the result was right a moment ago, is not kept, and the caller should come back.
func (m *memory) derive(
	ctx context.Context, owner types.UID, now time.Time, work func() (*derivation, error),
) (d *derivation, stale bool, err error) {
	for {
		m.mu.Lock()
		if d := m.lookup(owner, now); d != nil {
			m.mu.Unlock()
			return d, false, nil
		}
		busy := m.making[owner]
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
	m.making[owner] = done
	m.mu.Unlock()
	defer func() { // a panic in work must not leave the others waiting
		m.mu.Lock()
		delete(m.making, owner)
		if d != nil && err == nil {
			stale = m.keep(d)
		}
		if len(m.making) == 0 {
			clear(m.changed)
		}
		m.mu.Unlock()
		close(done)
	}()
	d, err = work()
	return d, stale, err
}

// keep stores a derivation unless one of its owners changed meanwhile.
func (m *memory) keep(d *derivation) (stale bool) {
	for _, uid := range d.chain {
		if _, yes := m.changed[uid]; yes {
			return true
		}
	}
	m.drop(d.owner)
	m.entries[d.owner] = m.recent.PushFront(d)
	for _, uid := range d.chain {
		m.links.add(uid, d.owner)
	}
	if !d.eachPod {
		m.groups.add(d.group, d.owner)
	}
	for len(m.entries) > m.most {
		m.drop(m.recent.Back().Value.(*derivation).owner)
	}
	return false
}

func (m *memory) drop(owner types.UID) {
	e := m.entries[owner]
	if e == nil {
		return
	}
	d := m.recent.Remove(e).(*derivation)
	delete(m.entries, owner)
	for _, uid := range d.chain {
		m.links.remove(uid, owner)
	}
	m.groups.remove(d.group, owner)
}

// forgetOwner forgets all that was derived from an object, which changed or went away, and returns the nearest owners
// that it forgot.
func (m *memory) forgetOwner(uid types.UID) []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.making) > 0 {
		m.changed[uid] = struct{}{}
	}
	return m.forget(m.links[uid])
}

// forgetGroup forgets all that leads to a PodGroup, and returns the nearest owners that it forgot.
func (m *memory) forgetGroup(group types.NamespacedName) []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.forget(m.groups[group])
}

func (m *memory) forget(owners map[types.UID]struct{}) []types.UID {
	out := make([]types.UID, 0, len(owners))
	for owner := range owners {
		out = append(out, owner)
	}
	for _, owner := range out {
		m.drop(owner)
	}
	return out
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

// index finds the nearest owners for a key.
type index[K comparable] map[K]map[types.UID]struct{}

func (x index[K]) add(key K, owner types.UID) {
	if x[key] == nil {
		x[key] = map[types.UID]struct{}{}
	}
	x[key][owner] = struct{}{}
}

func (x index[K]) remove(key K, owner types.UID) {
	delete(x[key], owner)
	if len(x[key]) == 0 {
		delete(x, key)
	}
}

// discard forgets a derivation, unless it was replaced by another meanwhile.
func (m *memory) discard(d *derivation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[d.owner]; e != nil && e.Value.(*derivation) == d {
		m.drop(d.owner)
	}
}

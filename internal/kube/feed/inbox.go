package feed

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/dialect"
)

// entry is the latest that is known of one object. A nil object is gone.
type entry struct {
	object client.Object
	// fresh says that whoever drains has not heard of the object, so that its end need not be told either.
	fresh bool
}

// box holds the entries of one kind, in the order in which they first came in.
type box struct {
	entries map[types.NamespacedName]entry
	order   []types.NamespacedName
}

// inbox is where informers' goroutines leave objects for the one goroutine that drains. Its size is bounded by the
// number of objects: a later state of an object replaces an earlier one, and an object that comes and goes between two
// drains leaves nothing.
type inbox struct {
	mu      sync.Mutex
	boxes   [dialect.Kinds]box
	again   map[types.NamespacedName]struct{} // pods of which something was told (package links)
	since   time.Time                         // when the first of what waits came in; zero for nothing waits
	changed chan struct{}                     // capacity 1: a token says that there is something to drain
}

func newInbox() *inbox { return &inbox{changed: make(chan struct{}, 1)} }

// put leaves the latest state of an object. added says that the object did not exist before.
func (in *inbox) put(k dialect.Kind, key types.NamespacedName, object client.Object, added bool) {
	in.mu.Lock()
	b := &in.boxes[k]
	old, waiting := b.entries[key]
	if !waiting {
		b.append(key)
		in.came()
	}
	// Added while its own end still waits: whoever drains knows its predecessor.
	b.entries[key] = entry{object: object, fresh: old.fresh || added && !waiting}
	in.mu.Unlock()
	in.nudge()
}

// remove leaves word that an object is gone.
func (in *inbox) remove(k dialect.Kind, key types.NamespacedName) {
	in.mu.Lock()
	b := &in.boxes[k]
	old, waiting := b.entries[key]
	if waiting && old.fresh {
		delete(b.entries, key)
		in.mu.Unlock()
		return
	}
	if !waiting {
		b.append(key)
		in.came()
	}
	b.entries[key] = entry{}
	in.mu.Unlock()
	in.nudge()
}

// putAgain leaves word that a pod is to be looked at again as it is.
func (in *inbox) putAgain(pod types.NamespacedName) {
	in.mu.Lock()
	if in.again == nil {
		in.again = map[types.NamespacedName]struct{}{}
	}
	in.again[pod] = struct{}{}
	in.mu.Unlock()
	in.nudge()
}

// append adds key at the end of the order, after clearing out the keys of objects that came and went.
func (b *box) append(key types.NamespacedName) {
	if b.entries == nil {
		b.entries = map[types.NamespacedName]entry{}
	}
	if len(b.order) > 2*len(b.entries)+64 {
		kept, seen := b.order[:0], make(map[types.NamespacedName]bool, len(b.entries))
		for _, k := range b.order {
			if _, ok := b.entries[k]; ok && !seen[k] {
				seen[k] = true
				kept = append(kept, k)
			}
		}
		b.order = kept
	}
	b.order = append(b.order, key)
}

// came notes that something waits.
func (in *inbox) came() {
	if in.since.IsZero() {
		in.since = time.Now()
	}
}

// take empties the inbox and returns what was in it, the pods that are to be looked at again, and since when the first object had waited.
func (in *inbox) take() ([dialect.Kinds]box, map[types.NamespacedName]struct{}, time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	out, again, since := in.boxes, in.again, in.since
	in.boxes, in.again, in.since = [dialect.Kinds]box{}, nil, time.Time{}
	return out, again, since
}

// len is the number of entries waiting.
func (in *inbox) len() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := 0
	for k := range in.boxes {
		n += len(in.boxes[k].entries)
	}
	return n
}

func (in *inbox) nudge() {
	select {
	case in.changed <- struct{}{}:
	default:
	}
}

// each calls do for every entry, in order, once.
func (b *box) each(do func(key types.NamespacedName, object client.Object)) {
	for _, key := range b.order {
		if e, ok := b.entries[key]; ok {
			delete(b.entries, key) // a key may be in the order twice
			do(key, e.object)
		}
	}
}

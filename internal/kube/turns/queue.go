package turns

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/muster-scheduler/muster/internal/entry"
)

// Options say whose items are, and how they are tried again.
type Options[T comparable] struct {
	// Tenant says whose an item is, as a rule by its namespace. The answer must not change while the queue has the item. It is
	// called with a lock held.
	Tenant func(T) string
	// Workers is how many call Get at the same time; 0 means 1.
	Workers int
	// Backoff is the wait before an item that failed is tried again; it doubles with each failure in a row, to MaxBackoff.
	// Without a Backoff, AddRateLimited adds at once.
	Backoff, MaxBackoff time.Duration
	// Clock is the real one if nil.
	Clock clock.WithTicker
}

// New returns a queue that serves tenants in turn. It has a goroutine, which ShutDown ends.
func New[T comparable](o Options[T]) workqueue.TypedRateLimitingInterface[T] {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Clock: o.Clock, Queue: newQueue(&o)})
	return workqueue.NewTypedRateLimitingQueueWithConfig(newLimiter(&o), workqueue.TypedRateLimitingQueueConfig[T]{Clock: o.Clock, DelayingQueue: delaying})
}

// queue is a workqueue.TypedInterface.
type queue[T comparable] struct {
	tenant  func(T) string
	workers int

	mu      sync.Mutex
	wake    *sync.Cond // an item may be had, or the queue is closing
	lines   map[string]*line[T]
	ring    *list.List // of *line[T] with items that wait; the next to be served in front
	waiting map[T]struct{}
	busy    map[T]bool // items in workers' hands; true: added again meanwhile
	closing bool
}

// line is what waits and what is under way of one tenant. One with neither is forgotten.
type line[T comparable] struct {
	tenant string
	items  []T
	held   int // in workers' hands
}

func newQueue[T comparable](o *Options[T]) *queue[T] {
	q := &queue[T]{
		tenant: o.Tenant, workers: max(1, o.Workers),
		lines: map[string]*line[T]{}, ring: list.New(), waiting: map[T]struct{}{}, busy: map[T]bool{},
	}
	q.wake = sync.NewCond(&q.mu)
	return q
}

// Add puts an item at the end of its tenant's line, unless it waits already; if it is in a worker's hands, once that is done.
func (q *queue[T]) Add(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closing {
		return
	}
	if _, busy := q.busy[item]; busy {
		q.busy[item] = true
		return
	}
	q.push(item)
}

func (q *queue[T]) push(item T) {
	if _, waits := q.waiting[item]; waits {
		return
	}
	q.waiting[item] = struct{}{}
	name := q.tenant(item)
	l := entry.Or(q.lines, name, func() *line[T] { return &line[T]{tenant: name} })
	if len(l.items) == 0 {
		q.ring.PushBack(l)
	}
	l.items = append(l.items, item)
	q.wake.Signal()
}

// Len is how many items wait.
func (q *queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// Get waits for an item that may be worked on. over says that the queue was shut down and nothing waits any more.
func (q *queue[T]) Get() (item T, over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.next()
	for e == nil && !(q.closing && len(q.waiting) == 0) {
		q.wake.Wait()
		e = q.next()
	}
	if e == nil {
		return item, true
	}
	l := e.Value.(*line[T])
	item = l.items[0]
	var none T
	l.items[0], l.items = none, l.items[1:]
	if len(l.items) == 0 {
		l.items = nil
		q.ring.Remove(e)
	} else {
		q.ring.MoveToBack(e)
	}
	l.held++
	delete(q.waiting, item)
	q.busy[item] = false
	if len(q.waiting) > 0 {
		q.wake.Signal() // who was woken may have found that more than one item can be had
	}
	return item, false
}

// next is the line whose turn it is: the first of the ring that may have another worker. It looks at no more lines than there
// are workers, for a line without one is served.
func (q *queue[T]) next() *list.Element {
	free := q.workers - len(q.busy)
	for e := q.ring.Front(); e != nil; e = e.Next() {
		if held := e.Value.(*line[T]).held; held == 0 || held < 3*(free-1) {
			return e
		}
	}
	return nil
}

// Done says that the worker that got the item is through with it.
func (q *queue[T]) Done(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	again, busy := q.busy[item]
	if !busy {
		return
	}
	delete(q.busy, item)
	l := q.lines[q.tenant(item)]
	l.held--
	if again {
		q.push(item)
	}
	if l.held == 0 && len(l.items) == 0 {
		delete(q.lines, l.tenant)
	}
	if q.closing {
		q.wake.Broadcast()
	} else {
		q.wake.Signal() // a worker is free for whoever had too many
	}
}

// ShutDown lets nothing in any more; what waits is still handed out.
func (q *queue[T]) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closing = true
	q.wake.Broadcast()
}

// ShutDownWithDrain is ShutDown, and waits until no worker holds an item and none waits.
func (q *queue[T]) ShutDownWithDrain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closing = true
	q.wake.Broadcast()
	for len(q.busy)+len(q.waiting) > 0 {
		q.wake.Wait()
	}
}

// ShuttingDown says whether ShutDown was called.
func (q *queue[T]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closing
}

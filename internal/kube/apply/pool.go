package apply

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/muster-scheduler/muster/internal/kube/aside"
)

// Kind is a kind of work, a row of the table below.
type Kind struct {
	// Name is the kind in words, of which there are few: a metric of defects has it as a label.
	Name string
	// Workers is how many items are at work at once. They are the kind's own, which is its priority: an item waits for those of its kind
	// alone, however many of another wait or how long they take.
	Workers int
	// First is the wait after the first failure of an item. It doubles with each further one, to retryMost.
	First time.Duration
	// Tries is how often an item is tried; 0: until it is made, or there is nothing to write any more.
	Tries int
	// Bound is how many items may be open before the queue is full; 0: any number. It takes more all the same: who decides does not wait
	// for who writes, and decides nothing more while it is full.
	Bound int64
}

// What is written, and what becomes of it. An order is carried out as it was decided, or not at all; what is told is a level, of which
// only the last word counts, so that the queue holds an object once however often it changes.
//
//	kind            served              an item is                given up                          then
//	bindWork        as they come        one order                 after 8 tries, or at a verdict    the bundle is withdrawn, and decided anew
//	recordWork      as they come        a record to delete          never
//	evictWork       as they come        one after the other of    the same, or at the deadline      the rest of the bundle is spared, and decided anew
//	                                    a bundle's victims
//	reasonWork      namespaces in turn  a gang                    never
//	groupWork       namespaces in turn  a gang                    never
//	kubeBatchWork   namespaces in turn  a gang                    never
//	upstreamWork    namespaces in turn  a group                   never
//	strayWork       namespaces in turn  a pod                     never
//	nominationWork  namespaces in turn  a pod, so many a second   never
//	gateWork        namespaces in turn  a pod                     never: it is put again in each cycle until it has no gate
//	annotationWork  namespaces in turn  a gang, so many a second  never
//	answerWork      namespaces in turn  a gang, so many a second  never
//	eventWork       as they come        an event, when binds    never: it is handed on to who writes events
//	                                    and evictions pause
//
// When ctx ends, for a lost Lease as for a process that stops, nothing more is taken. No failure is told of what that cut short: the next
// process decides on what the objects show.
var (
	bindWork       = Kind{Name: "a bind", Workers: 32, First: orderFirst, Tries: orderTries}
	recordWork     = Kind{Name: "the record of a gang that is bound", Workers: 2, First: time.Second}
	evictWork      = Kind{Name: "an eviction", First: orderFirst, Tries: orderTries}
	reasonWork     = Kind{Name: "why a gang waits", Workers: 8, First: time.Second}
	groupWork      = Kind{Name: "the status of a PodGroup of Volcano's", Workers: 8, First: time.Second}
	kubeBatchWork  = Kind{Name: "the status of a PodGroup of kube-batch's", Workers: 8, First: time.Second}
	upstreamWork   = Kind{Name: "the status of a PodGroup of Kubernetes'", Workers: 8, First: time.Second}
	strayWork      = Kind{Name: "the PodGroup that a pod lacks", Workers: 4, First: time.Second}
	nominationWork = Kind{Name: "held room", Workers: 8, First: time.Second}
	gateWork       = Kind{Name: "the gate of a queue", Workers: 5, First: time.Second}
	annotationWork = Kind{Name: "what became of a gang", Workers: 4, First: time.Second}
	answerWork     = Kind{Name: "what a gang asks", Workers: 1, First: time.Second}
	eventWork      = Kind{Name: "an event that stands back", Workers: 1, First: time.Second, Bound: boundMost}
)

// An order is tried 8 times within 6.35 s.
const (
	orderFirst = 50 * time.Millisecond
	orderTries = 8
)

// retryMost is the longest wait between two tries.
const retryMost = 5 * time.Minute

// passes says whether trying again may help: the API server was busy, failed, or was not reached, or somebody else was faster.
func passes(err error) bool {
	for _, verdict := range []error{ErrMoved, ErrNoRoom, ErrUndone, ErrBlocked, errLate, aside.ErrDefect, context.Canceled} {
		if errors.Is(err, verdict) {
			return false
		}
	}
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonServerTimeout, metav1.StatusReasonTimeout, metav1.StatusReasonTooManyRequests, metav1.StatusReasonInternalError,
		metav1.StatusReasonServiceUnavailable, metav1.StatusReasonConflict, metav1.StatusReasonUnknown:
		return true
	}
	return false
}

// Pool is the workers of all writers. What it works on is added by NewQueue before Run.
type Pool struct {
	guard *aside.Guard
	rows  []func(context.Context)
}

// NewPool returns a pool without work; guard sets aside what ends in a defect, nil: nobody is told.
func NewPool(guard *aside.Guard) *Pool { return &Pool{guard: guard} }

// Run works until ctx ends, and returns when the calls in flight have. It is called once.
func (p *Pool) Run(ctx context.Context) error {
	var group sync.WaitGroup
	for _, row := range p.rows {
		group.Go(func() { row(ctx) })
	}
	group.Wait()
	return nil
}

// Job is how the items of a kind are worked on; an item is never worked on twice at once.
type Job[T comparable] struct {
	// Tenant is whose an item is, as a rule its namespace: tenants are served in turn. nil: items are, as they come.
	Tenant func(T) string
	// About is the object, or the words, that a defect in the work on an item is told of.
	About func(T) any
	// Begin, if set, is called before the first item is taken.
	Begin func(ctx context.Context)
	// Pace, if set, waits until an item may be tried, and fails when ctx ends.
	Pace func(ctx context.Context, item T) error
	// Try makes one try at an item.
	Try func(ctx context.Context, item T) error
	// End, if set, is told how an item ended: nil for made, otherwise why it was given up.
	End func(ctx context.Context, item T, err error)
}

// Queue is what waits of one kind of work. It is safe for concurrent use.
type Queue[T comparable] struct {
	Kind
	job   Job[T]
	guard *aside.Guard
	items workqueue.TypedRateLimitingInterface[T]
	open  atomic.Int64  // that have been put and have not ended, if there is a bound
	room  chan struct{} // it was full, and is not any more
}

// NewQueue adds a kind of work to a pool.
func NewQueue[T comparable](p *Pool, kind Kind, job Job[T]) *Queue[T] {
	q := &Queue[T]{Kind: kind, job: job, guard: p.guard, room: make(chan struct{}, 1)}
	q.items = queueOf(kind, job.Tenant)
	p.rows = append(p.rows, q.run)
	return q
}

// Put has items worked on after a while; at once for 0. One that waits already keeps the earlier time; where there is a bound, an item is put
// once.
func (q *Queue[T]) Put(after time.Duration, items ...T) {
	if q.Bound > 0 {
		q.open.Add(int64(len(items)))
	}
	for _, i := range items {
		q.items.AddAfter(i, after)
	}
}

// Full says that as much is open as may be, or more.
func (q *Queue[T]) Full() bool { return q.Bound > 0 && q.open.Load() >= q.Bound }

// Room is signalled when Full has come to an end.
func (q *Queue[T]) Room() <-chan struct{} { return q.room }

func (q *Queue[T]) run(ctx context.Context) {
	if q.job.Begin != nil {
		q.job.Begin(ctx)
	}
	var group sync.WaitGroup
	for range q.Workers {
		group.Go(func() {
			for item, over := q.items.Get(); !over; item, over = q.items.Get() {
				q.work(ctx, item)
				q.items.Done(item)
			}
		})
	}
	<-ctx.Done()
	q.items.ShutDown()
	group.Wait()
}

// work makes a try at an item, and says what comes of a failure.
func (q *Queue[T]) work(ctx context.Context, item T) {
	if q.job.Pace != nil && q.job.Pace(ctx, item) != nil || ctx.Err() != nil {
		return
	}
	err := q.guard.Catch(q.Name, q.job.About(item), func() error { return q.job.Try(ctx, item) })
	last := q.Tries > 0 && (!passes(err) || q.items.NumRequeues(item)+1 >= q.Tries)
	switch {
	case err != nil && ctx.Err() != nil:
	case err != nil && !last:
		if q.Tries == 0 {
			logr.FromContextOrDiscard(ctx).Error(err, "a write is left for later", "work", q.Name)
		}
		q.items.AddRateLimited(item)
	default:
		q.items.Forget(item)
		if q.job.End != nil {
			// What went wrong has been told.
			_ = q.guard.Catch(q.Name, q.job.About(item), func() error { q.job.End(ctx, item, err); return nil })
		}
		if q.Bound > 0 && q.open.Add(-1) == q.Bound-1 {
			signal(q.room)
		}
	}
}

// signal tells whoever waits, once.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// object is the gang or pod of that UID, which something is to be told about.
type object struct{ namespace, uid string }

func (o object) tenant() string { return o.namespace }

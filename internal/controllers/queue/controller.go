package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

const (
	// settle is how long a changed queue waits to be written. As every event after a write waits as long, it is also
	// the least time between two writes of one status.
	settle = time.Second

	// retryMax bounds the exponential wait after failed writes, so that a status is never older than 10 s once the
	// API server answers again.
	retryMax = 8 * time.Second

	// writers is the number of statuses written at the same time. Queues are few, and written once a second at most.
	writers = 4
)

// Deps are what the role needs of the process around it.
type Deps struct {
	// Cache feeds Queues and PodGroups; it is started by the process.
	Cache cache.Cache
	// Client writes Queue statuses. It must know the Queue kind.
	Client client.Client
	// Log takes the role's messages.
	Log logr.Logger
	// Registry takes the role's metrics; nil for none.
	Registry prometheus.Registerer
	// Clock times the writes and the conditions; nil is the real one.
	Clock clock.WithTicker
	// Guard sets aside what ends in a defect, and has hung work noticed; nil: nobody is told.
	Guard *aside.Guard
}

// Controller is the queue role.
type Controller struct {
	deps    Deps
	kit     *write.Kit
	metrics *metrics

	mu   sync.Mutex // guards fold: handlers of two informers, the writers and scrapes share it
	fold *fold

	work workQueue // set before the first writer starts
}

type workQueue = workqueue.TypedRateLimitingInterface[string]

// New checks the options and returns the role, not yet running.
func New(deps Deps, o Options) (*Controller, error) {
	extra, err := o.mapped()
	if err != nil {
		return nil, err
	}
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	kit, err := write.New(deps.Client, "queue", deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("queue role: %w", err)
	}
	c := &Controller{deps: deps, kit: kit, fold: newFold()}
	c.metrics = newMetrics(&c.mu, c.fold, o.MetricsNamespace, extra)
	return c, nil
}

// Run keeps statuses and serves metrics until ctx ends, which is no error. It must be called once. It writes nothing
// before every object that existed at its start has been taken in.
func (c *Controller) Run(ctx context.Context) error {
	if c.deps.Registry != nil {
		if err := c.deps.Registry.Register(c.metrics); err != nil {
			return fmt.Errorf("queue role: register metrics: %w", err)
		}
		defer c.deps.Registry.Unregister(c.metrics) // who does not lead knows nothing to report
	}
	skip := true
	ctrl, err := controller.NewTypedUnmanaged("queue", controller.TypedOptions[string]{
		SkipNameValidation:      &skip, // several may live in one process, in tests and in the lab
		MaxConcurrentReconciles: writers,
		Reconciler: aside.Reconciler(c.deps.Guard, c.reconcile, func(name string) client.Object {
			return &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}
		}),
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](settle, retryMax),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[string]) workQueue {
			c.work = workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: name, Clock: c.deps.Clock})
			return c.work
		},
		Logger: c.deps.Log,
	})
	if err != nil {
		return fmt.Errorf("queue role: %w", err)
	}
	for _, s := range []source.TypedSource[string]{
		source.TypedKind(c.deps.Cache, &v2.Queue{}, c.queues()),
		source.TypedKind(c.deps.Cache, &v2alpha2.PodGroup{}, c.groups()),
	} {
		if err := ctrl.Watch(s); err != nil {
			return fmt.Errorf("queue role: %w", err)
		}
	}
	if err := ctrl.Start(ctx); err != nil {
		return fmt.Errorf("queue role: %w", err)
	}
	return nil
}

// reconcile writes one queue's status and annotation, what of them has to change.
func (c *Controller) reconcile(ctx context.Context, name string) (reconcile.Result, error) {
	status, annotation := c.take(name)
	q := &v2.Queue{}
	q.Name = name
	_, err := c.kit.MergeStatus(ctx, q, status)
	if annotation != nil {
		_, failed := c.kit.Merge(ctx, q, annotation)
		err = errors.Join(err, failed)
	}
	return reconcile.Result{}, err
}

// take is what is to be written of a queue.
func (c *Controller) take(name string) (status, annotation []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	status, annotation, more := c.fold.take(name, c.deps.Clock.Now())
	enqueue(c.work, more)
	return status, annotation
}

// enqueue is called with the lock held: the names live in the fold.
func enqueue(work workQueue, names []string) {
	for _, name := range names {
		work.AddAfter(name, settle)
	}
}

func (c *Controller) queues() handler.TypedEventHandler[*v2.Queue, string] {
	changed := func(work workQueue, q *v2.Queue) {
		c.mu.Lock()
		defer c.mu.Unlock()
		enqueue(work, c.fold.queueChanged(q))
	}
	return handler.TypedFuncs[*v2.Queue, string]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v2.Queue], work workQueue) { changed(work, e.Object) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v2.Queue], work workQueue) {
			changed(work, e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v2.Queue], work workQueue) {
			c.mu.Lock()
			defer c.mu.Unlock()
			enqueue(work, c.fold.queueGone(e.Object.Name))
		},
	}
}

func (c *Controller) groups() handler.TypedEventHandler[*v2alpha2.PodGroup, string] {
	changed := func(work workQueue, pg *v2alpha2.PodGroup) {
		c.mu.Lock()
		defer c.mu.Unlock()
		enqueue(work, c.fold.groupChanged(pg))
	}
	return handler.TypedFuncs[*v2alpha2.PodGroup, string]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v2alpha2.PodGroup], work workQueue) {
			changed(work, e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v2alpha2.PodGroup], work workQueue) {
			changed(work, e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v2alpha2.PodGroup], work workQueue) {
			c.mu.Lock()
			defer c.mu.Unlock()
			enqueue(work, c.fold.groupGone(client.ObjectKeyFromObject(e.Object)))
		},
	}
}

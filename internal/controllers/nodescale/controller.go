package nodescale

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

const (
	// settle is how long a change waits to be looked at, so that a burst of them is looked at once.
	settle = 500 * time.Millisecond

	// retryMin and retryMax bound the exponential wait after failed writes.
	retryMin = time.Second
	retryMax = time.Minute
)

// everything is the one item of the work queue: pods share what is asked for, so they are looked at together.
const everything = "all"

// Deps are what the role needs of the process around it.
type Deps struct {
	// Cache feeds Pods, PodGroups and BindRequests; it is started by the process.
	Cache cache.Cache
	// Client creates and deletes scaling pods.
	Client client.Client
	// Log takes the role's messages.
	Log logr.Logger
	// Registry takes the role's metrics; nil for none.
	Registry prometheus.Registerer
	// Clock times cool-downs; nil is the real one.
	Clock clock.WithTicker
	// Guard sets aside what ends in a defect, and has hung work noticed; nil: nobody is told.
	Guard *aside.Guard
	// NodesHelp says whether a gang that waits for a reason, by its key, could start on another node.
	NodesHelp func(reason string) bool
}

// Controller is the nodescale role.
type Controller struct {
	deps    Deps
	options Options
	kit     *write.Kit
	metrics *metrics
	cool    cooldowns // the worker's

	mu   sync.Mutex // guards book: handlers of three informers and the worker share it
	book *book
}

type workQueue = workqueue.TypedRateLimitingInterface[string]

// New checks the options and returns the role, not yet running.
func New(deps Deps, o Options) (*Controller, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("nodescale role: %w", err)
	}
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	kit, err := write.New(deps.Client, "nodescale", deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("nodescale role: %w", err)
	}
	m, err := newMetrics(deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("nodescale role: %w", err)
	}
	return &Controller{deps: deps, options: o, kit: kit, metrics: m, cool: cooldowns{}, book: newBook(o, deps.NodesHelp)}, nil
}

// Run keeps scaling pods until ctx ends, which is no error. It must be called once. It writes nothing before every object
// that existed at its start has been taken in.
func (c *Controller) Run(ctx context.Context) error {
	skip := true
	ctrl, err := controller.NewTypedUnmanaged("nodescale", controller.TypedOptions[string]{
		SkipNameValidation:      &skip, // several may live in one process, in tests and in the lab
		MaxConcurrentReconciles: 1,
		Reconciler:              aside.Reconciler(c.deps.Guard, c.reconcile, nil),
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryMin, retryMax),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[string]) workQueue {
			return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: name, Clock: c.deps.Clock})
		},
		Logger: c.deps.Log,
	})
	if err != nil {
		return fmt.Errorf("nodescale role: %w", err)
	}
	for _, s := range []source.TypedSource[string]{
		source.TypedKind(c.deps.Cache, &v2alpha2.PodGroup{}, handle(c, func(pg *v2alpha2.PodGroup, gone bool) bool { return c.book.groupSeen(pg, gone) })),
		source.TypedKind(c.deps.Cache, &v1alpha2.BindRequest{}, handle(c, func(r *v1alpha2.BindRequest, gone bool) bool {
			return c.book.requestSeen(r.Namespace, r.Spec.PodName, r.UID, gone)
		})),
		source.TypedKind(c.deps.Cache, &corev1.Pod{}, handle(c, func(p *corev1.Pod, gone bool) bool {
			if gone {
				return c.book.podGone(p)
			}
			return c.book.podSeen(p)
		})),
	} {
		if err := ctrl.Watch(s); err != nil {
			return fmt.Errorf("nodescale role: %w", err)
		}
	}
	if err := ctrl.Start(ctx); err != nil {
		return fmt.Errorf("nodescale role: %w", err)
	}
	return nil
}

// handle lets the book see an object at each of its events, and has everything looked at if that may matter.
func handle[T client.Object](c *Controller, see func(obj T, gone bool) bool) handler.TypedEventHandler[T, string] {
	seen := func(work workQueue, obj T, gone bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if see(obj, gone) {
			work.AddAfter(everything, settle)
		}
	}
	return handler.TypedFuncs[T, string]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[T], work workQueue) { seen(work, e.Object, false) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[T], work workQueue) { seen(work, e.ObjectNew, false) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[T], work workQueue) { seen(work, e.Object, true) },
	}
}

// reconcile makes the scaling pods those that should be. One write that fails does not keep the others from being tried.
func (c *Controller) reconcile(ctx context.Context, _ string) (reconcile.Result, error) {
	now := c.deps.Clock.Now()
	d, sources := c.decide(now)

	var errs []error
	for i := range d.remove {
		if err := c.remove(ctx, &d.remove[i]); err != nil {
			errs = append(errs, err)
		}
	}
	for i := range d.create {
		if len(errs) > 3 {
			break // the rest would hardly fare better
		}
		if err := c.create(ctx, sources[i], d.create[i].devices); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return reconcile.Result{}, errors.Join(errs...)
	}
	if d.again.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(settle, d.again.Sub(now))}, nil
}

// decide is what is to be done, and the pods for which others are to be created.
func (c *Controller) decide(now time.Time) (d decision, sources []*corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	demands, asks := c.book.state()
	d = decide(demands, asks, c.book.look, c.cool, now)
	sources = make([]*corev1.Pod, len(d.create))
	for i := range d.create {
		sources[i] = c.book.sharers[d.create[i].pod].pod
	}
	c.metrics.looked(len(demands), len(asks), d.left)
	return d, sources
}

// remove deletes the very pod that was seen.
func (c *Controller) remove(ctx context.Context, r *removal) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.options.Namespace, Name: r.ask.name}}
	err := c.deps.Client.Delete(ctx, p, client.Preconditions{UID: &r.ask.uid})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, or another one of its name: an event will tell
	}
	if err != nil {
		return fmt.Errorf("delete scaling pod %s/%s: %w", c.options.Namespace, r.ask.name, err)
	}
	c.metrics.removed.WithLabelValues(r.why).Inc()
	c.deps.Log.V(1).Info("scaling pod removed", "pod", r.ask.name, "for", r.ask.source.String(), "why", r.why)
	return nil
}

// create makes the scaling pod of a source, unless it is there already.
func (c *Controller) create(ctx context.Context, source *corev1.Pod, devices int64) error {
	for _, plain := range [...]bool{true, false} {
		p := c.options.newPod(source, devices, plain)
		err := c.deps.Client.Create(ctx, p)
		if apierrors.IsAlreadyExists(err) {
			mine, err := c.standsFor(ctx, p, source)
			switch {
			case err != nil:
				return err
			case mine:
				return nil // its event has not come yet
			}
			continue // two pods whose names, put together, are the same
		}
		if err != nil {
			return fmt.Errorf("create scaling pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		c.metrics.created.Inc()
		c.deps.Log.V(1).Info("scaling pod created", "pod", p.Name, "for", source.Namespace+"/"+source.Name, "gpus", devices)
		_, err = c.kit.StrategicStatus(ctx, p, waitsForNode(p.UID, metav1.NewTime(c.deps.Clock.Now())))
		return err
	}
	return nil // neither name is to be had: whose pods they are, is told by their events
}

// standsFor says whether the pod of that name that exists is the source's scaling pod.
func (c *Controller) standsFor(ctx context.Context, p, source *corev1.Pod) (bool, error) {
	have := &corev1.Pod{}
	err := c.deps.Client.Get(ctx, client.ObjectKeyFromObject(p), have)
	if apierrors.IsNotFound(err) {
		return true, nil // gone meanwhile, which an event will tell
	}
	if err != nil {
		return false, fmt.Errorf("read scaling pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return c.options.ours(have) && askOf(have).source == keyOf(source.Namespace, source.Name), nil
}

package podgroup

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	"github.com/muster-scheduler/muster/internal/kube/served"
	"github.com/muster-scheduler/muster/internal/kube/turns"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

const (
	// soonAfter is how long a changed allocation waits to be written. As every event after a write waits at least
	// as long, it is also the least time between two writes of one status.
	soonAfter = time.Second

	// relaxedAfter is how long changed requests wait: most gangs are placed, and written anyway, in that time.
	relaxedAfter = 3 * time.Second

	// retryMax bounds the exponential wait after failed writes, so that a status is never older than 10 s once the
	// API server answers again.
	retryMax = 8 * time.Second
)

// Deps are what the role needs of the process around it.
type Deps struct {
	// Cache feeds pods, nodes, ResourceClaims, PodGroups, Queues and PriorityClasses; it is started by the process.
	Cache cache.Cache
	// Client writes PodGroup statuses and an annotation of Queues. It must know both kinds.
	Client client.Client
	// Log takes the role's messages.
	Log logr.Logger
	// Registry takes the role's metrics; nil for none.
	Registry prometheus.Registerer
	// Clock times the writes; nil is the real one.
	Clock clock.WithTicker
	// Guard sets aside what ends in a defect, and has hung work noticed; nil: nobody is told.
	Guard *aside.Guard
}

// Controller is the podgroup role.
type Controller struct {
	deps    Deps
	options Options
	kit     *write.Kit

	mu   sync.Mutex // guards fold: handlers of six informers and the workers share it
	fold *fold
}

type (
	key   = types.NamespacedName
	queue = workqueue.TypedRateLimitingInterface[key]
)

// New checks the options and returns the role, not yet running.
func New(deps Deps, o Options) (*Controller, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	kit, err := write.New(deps.Client, "podgroup", deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("podgroup role: %w", err)
	}
	return &Controller{deps: deps, options: o, kit: kit, fold: newFold(o.SchedulerNames)}, nil
}

// Run keeps statuses until ctx ends, which is no error. It must be called once. It writes nothing before every object
// that existed at its start has been taken in.
func (c *Controller) Run(ctx context.Context) error {
	skip := true
	ctrl, err := controller.NewTypedUnmanaged("podgroup", controller.TypedOptions[key]{
		SkipNameValidation:      &skip, // several may live in one process, in tests and in the lab
		MaxConcurrentReconciles: c.options.MaxConcurrentReconciles,
		Reconciler:              aside.Reconciler(c.deps.Guard, c.reconcile, about),
		NewQueue: func(string, workqueue.TypedRateLimiter[key]) queue {
			return turns.New(turns.Options[key]{
				Tenant: func(k key) string { return k.Namespace }, Workers: c.options.MaxConcurrentReconciles,
				Backoff: soonAfter, MaxBackoff: retryMax, Clock: c.deps.Clock,
			})
		},
		Logger: c.deps.Log,
	})
	if err != nil {
		return fmt.Errorf("podgroup role: %w", err)
	}
	sources := []source.TypedSource[key]{
		source.TypedKind(c.deps.Cache, &schedulingv1.PriorityClass{}, c.classes()),
		source.TypedKind(c.deps.Cache, &corev1.Node{}, c.nodes()),
		source.TypedKind(c.deps.Cache, &v2.Queue{}, c.queues()),
		source.TypedKind(c.deps.Cache, &v2alpha2.PodGroup{}, c.groups()),
		source.TypedKind(c.deps.Cache, &corev1.Pod{}, c.pods()),
	}
	claims := func() error {
		_, err := c.deps.Cache.GetInformer(ctx, &resourcev1.ResourceClaim{}, cache.BlockUntilSynced(false))
		return err
	}
	byClaim := source.TypedKind(c.deps.Cache, &resourcev1.ResourceClaim{}, c.claims())
	var late sync.WaitGroup
	defer late.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	switch err := claims(); {
	case meta.IsNoMatchError(err): // an API server without resource claims: there are none until it serves them
		late.Go(func() {
			served.Await(ctx, func() error {
				return c.deps.Guard.Catch("the wait for a kind", "ResourceClaim", func() error {
					if err := claims(); err != nil {
						return err
					}
					return ctrl.Watch(byClaim)
				})
			})
		})
	case err != nil:
		return fmt.Errorf("podgroup role: watch ResourceClaims: %w", err)
	default:
		sources = append(sources, byClaim)
	}
	for _, s := range sources {
		if err := ctrl.Watch(s); err != nil {
			return fmt.Errorf("podgroup role: %w", err)
		}
	}
	if err := ctrl.Start(ctx); err != nil {
		return fmt.Errorf("podgroup role: %w", err)
	}
	return nil
}

// reconcile writes one gang's status if it has to change.
func (c *Controller) reconcile(ctx context.Context, gang key) (reconcile.Result, error) {
	if gang.Namespace == "" {
		return reconcile.Result{}, c.remnants(ctx, gang.Name)
	}
	body := locked(c, func() []byte { return c.fold.take(gang) })
	pg := &v2alpha2.PodGroup{}
	pg.Namespace, pg.Name = gang.Namespace, gang.Name
	_, err := c.kit.MergeStatus(ctx, pg, body)
	return reconcile.Result{}, err
}

// about is what a key names: a PodGroup, or a Queue.
func about(k key) client.Object {
	if k.Namespace == "" {
		return &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: k.Name}}
	}
	return &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}
}

// remnants writes what is charged to a queue besides what its PodGroups hold, if that has to change.
func (c *Controller) remnants(ctx context.Context, queue string) error {
	body := locked(c, func() []byte { return c.fold.takeRest(queue) })
	if body == nil {
		return nil
	}
	q := &v2.Queue{}
	q.Name = queue
	_, err := c.kit.Merge(ctx, q, body)
	return err
}

// locked calls f with the fold's lock held, which a panic releases.
func locked[T any](c *Controller, f func() T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f()
}

// enqueue is called with the lock held: the changes live in the fold.
func enqueue(q queue, changes []change) {
	for _, ch := range changes {
		if ch.urgency == soon {
			q.AddAfter(ch.gang, soonAfter)
		} else {
			q.AddAfter(ch.gang, relaxedAfter)
		}
	}
}

func (c *Controller) pods() handler.TypedEventHandler[*corev1.Pod, key] {
	changed := func(q queue, pod *corev1.Pod) {
		if err := locked(c, func() error {
			changes, err := c.fold.podChanged(pod)
			enqueue(q, changes)
			return err
		}); err != nil {
			c.deps.Log.Info("pod counted in part", "reason", err.Error())
		}
	}
	gone := func(q queue, pod *corev1.Pod) {
		c.mu.Lock()
		defer c.mu.Unlock()
		enqueue(q, c.fold.podGone(pod.UID))
	}
	return handler.TypedFuncs[*corev1.Pod, key]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Pod], q queue) { changed(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Pod], q queue) {
			if e.ObjectOld.UID != e.ObjectNew.UID { // deleted and made again while the watch was down
				gone(q, e.ObjectOld)
			}
			changed(q, e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Pod], q queue) { gone(q, e.Object) },
	}
}

func (c *Controller) groups() handler.TypedEventHandler[*v2alpha2.PodGroup, key] {
	changed := func(q queue, pg *v2alpha2.PodGroup) {
		c.mu.Lock()
		defer c.mu.Unlock()
		enqueue(q, c.fold.groupChanged(pg))
	}
	return handler.TypedFuncs[*v2alpha2.PodGroup, key]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v2alpha2.PodGroup], q queue) { changed(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v2alpha2.PodGroup], q queue) {
			changed(q, e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v2alpha2.PodGroup], q queue) {
			c.mu.Lock()
			defer c.mu.Unlock()
			enqueue(q, c.fold.groupGone(client.ObjectKeyFromObject(e.Object)))
		},
	}
}

func (c *Controller) queues() handler.TypedEventHandler[*v2.Queue, key] {
	changed := func(q queue, of *v2.Queue) {
		c.mu.Lock()
		defer c.mu.Unlock()
		enqueue(q, c.fold.queueChanged(of))
	}
	return handler.TypedFuncs[*v2.Queue, key]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v2.Queue], q queue) { changed(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v2.Queue], q queue) { changed(q, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v2.Queue], _ queue) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.fold.queueGone(e.Object.Name)
		},
	}
}

func (c *Controller) classes() handler.TypedEventHandler[*schedulingv1.PriorityClass, key] {
	changed := func(q queue, class *schedulingv1.PriorityClass) {
		c.mu.Lock()
		defer c.mu.Unlock()
		enqueue(q, c.fold.classChanged(class))
	}
	return handler.TypedFuncs[*schedulingv1.PriorityClass, key]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*schedulingv1.PriorityClass], q queue) {
			changed(q, e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*schedulingv1.PriorityClass], q queue) {
			changed(q, e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*schedulingv1.PriorityClass], q queue) {
			c.mu.Lock()
			defer c.mu.Unlock()
			enqueue(q, c.fold.classGone(e.Object.Name))
		},
	}
}

func (c *Controller) claims() handler.TypedEventHandler[*resourcev1.ResourceClaim, key] {
	changed := func(q queue, claim *resourcev1.ResourceClaim, list corev1.ResourceList) {
		for _, err := range locked(c, func() []error {
			changes, errs := c.fold.claimChanged(client.ObjectKeyFromObject(claim), list)
			enqueue(q, changes)
			return errs
		}) {
			c.deps.Log.Info("pod counted in part", "reason", err.Error())
		}
	}
	return handler.TypedFuncs[*resourcev1.ResourceClaim, key]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*resourcev1.ResourceClaim], q queue) {
			changed(q, e.Object, claimList(e.Object))
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*resourcev1.ResourceClaim], q queue) {
			changed(q, e.ObjectNew, claimList(e.ObjectNew))
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*resourcev1.ResourceClaim], q queue) {
			changed(q, e.Object, nil)
		},
	}
}

func (c *Controller) nodes() handler.TypedEventHandler[*corev1.Node, key] {
	changed := func(q queue, node *corev1.Node, exists bool) {
		labels := node.Labels
		if !exists {
			labels = nil
		}
		for _, err := range locked(c, func() []error {
			changes, errs := c.fold.nodeChanged(node.Name, labels, exists)
			enqueue(q, changes)
			return errs
		}) {
			c.deps.Log.Info("pod counted in part", "reason", err.Error())
		}
	}
	return handler.TypedFuncs[*corev1.Node, key]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Node], q queue) { changed(q, e.Object, true) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Node], q queue) {
			changed(q, e.ObjectNew, true)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Node], q queue) { changed(q, e.Object, false) },
	}
}

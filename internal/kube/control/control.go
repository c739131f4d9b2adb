package control

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/served"
	"github.com/muster-scheduler/muster/internal/kube/turns"
)

// Due says that a key is to be decided about, and after how long: at once for 0. A key that is due already keeps the earlier time.
type Due[K comparable] struct {
	Key   K
	After time.Duration
}

// Role is what is particular to a controller. K names what it decides about at a time; W is what a decision has it write.
type Role[K comparable, W any] struct {
	// Name is the controller's, as logs and metrics show it.
	Name string
	// Workers is how many keys are written about at a time; 1 or more.
	Workers int
	// Tenant says whose a key is, as a rule by its namespace: tenants are served in turn (package turns). nil: keys are, as they come.
	Tenant func(K) string
	// MinRetry and MaxRetry bound the wait after a failed write, which doubles with each failure of the key.
	MinRetry, MaxRetry time.Duration
	// About makes an object of a key, with its kind and name, of which a defect is told; nil if keys name no single object.
	About func(K) client.Object
	// Decide returns, from the book alone, what is to be written of a key, and what is due besides. again is when the key itself is due
	// even without an event, if the writes succeed; zero for never. The lock is held.
	Decide func(key K, now time.Time) (write W, due []Due[K], again time.Time)
	// Write makes the writes. The lock is not held. After an error the key is decided about again.
	Write func(ctx context.Context, write W) error
}

// Deps are what a controller needs of the process around it.
type Deps struct {
	// Cache feeds what is watched; it is started by the process.
	Cache cache.Cache
	// Log takes the controller's messages.
	Log logr.Logger
	// Clock times work; nil is the real one.
	Clock clock.WithTicker
	// Guard sets aside what ends in a defect; nil: nobody is told.
	Guard *aside.Guard
}

type queue[K comparable] = workqueue.TypedRateLimitingInterface[K]

// Loop is a controller. It is a sync.Locker of its book.
type Loop[K comparable, W any] struct {
	sync.Mutex

	role    Role[K, W]
	deps    Deps
	sources []watched[K]
	work    queue[K] // set before the first worker starts
	early   []Due[K] // that were added before that
}

type watched[K comparable] struct {
	source.TypedSource[K]
	kind  client.Object
	later bool // the kind may not be served yet
}

// New returns a controller that watches nothing yet.
func New[K comparable, W any](deps Deps, role Role[K, W]) *Loop[K, W] {
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	return &Loop[K, W]{role: role, deps: deps}
}

// Watch has the book see each object of a kind when it is there at the start, made, changed or, with gone, deleted; see returns what is due
// then. One that was replaced while nobody watched is seen as gone first. The objects are the cache's: see may keep them, and changes
// none. The lock is held. Watch is called before Run.
func Watch[K comparable, W any, T client.Object](l *Loop[K, W], kind T, see func(obj T, gone bool) []Due[K]) {
	l.sources = append(l.sources, watched[K]{sourceOf(l, kind, see), kind, false})
}

// WatchLater is Watch of a kind that the API server may not serve yet: until it does, there are none.
func WatchLater[K comparable, W any, T client.Object](l *Loop[K, W], kind T, see func(obj T, gone bool) []Due[K]) {
	l.sources = append(l.sources, watched[K]{sourceOf(l, kind, see), kind, true})
}

func sourceOf[K comparable, W any, T client.Object](l *Loop[K, W], kind T, see func(obj T, gone bool) []Due[K]) source.TypedSource[K] {
	seen := func(work queue[K], obj T, gone bool) {
		l.Lock()
		defer l.Unlock()
		add(work, see(obj, gone))
	}
	return source.TypedKind(l.deps.Cache, kind, handler.TypedEventHandler[T, K](handler.TypedFuncs[T, K]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[T], work queue[K]) { seen(work, e.Object, false) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[T], work queue[K]) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				seen(work, e.ObjectOld, true)
			}
			seen(work, e.ObjectNew, false)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[T], work queue[K]) { seen(work, e.Object, true) },
	}))
}

// Add has keys decided about for a reason that no watch tells, such as what came of a write. The lock is held.
func (l *Loop[K, W]) Add(due ...Due[K]) {
	if l.work == nil {
		l.early = append(l.early, due...)
		return
	}
	add(l.work, due)
}

// add is called with the lock held: what is due lives in the book.
func add[K comparable](work queue[K], due []Due[K]) {
	for _, d := range due {
		work.AddAfter(d.Key, d.After)
	}
}

// Run controls until ctx ends, which is no error. It must be called once. It writes nothing before every object that existed at its
// start has been seen.
func (l *Loop[K, W]) Run(ctx context.Context) error {
	skip := true
	ctrl, err := controller.NewTypedUnmanaged(l.role.Name, controller.TypedOptions[K]{
		SkipNameValidation:      &skip, // several may live in one process, in tests and in the lab
		MaxConcurrentReconciles: l.role.Workers,
		Reconciler:              aside.Reconciler(l.deps.Guard, l.reconcile, l.role.About),
		NewQueue: func(name string, _ workqueue.TypedRateLimiter[K]) queue[K] {
			l.Lock()
			defer l.Unlock()
			l.work = l.newQueue(name)
			add(l.work, l.early)
			return l.work
		},
		Logger: l.deps.Log,
	})
	if err != nil {
		return fmt.Errorf("%s role: %w", l.role.Name, err)
	}
	var late sync.WaitGroup
	defer late.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, s := range l.sources {
		if s.later {
			if err = l.served(ctx, s.kind); meta.IsNoMatchError(err) {
				late.Go(func() { l.await(ctx, ctrl, s) })
				continue
			}
		}
		if err == nil {
			err = ctrl.Watch(s.TypedSource) // not s, which hides that the source can be waited for
		}
		if err != nil {
			return fmt.Errorf("%s role: watch %T: %w", l.role.Name, s.kind, err)
		}
	}
	if err := ctrl.Start(ctx); err != nil {
		return fmt.Errorf("%s role: %w", l.role.Name, err)
	}
	return nil
}

// served has the cache get a kind; it fails by meta.IsNoMatchError while the API server does not serve it.
func (l *Loop[K, W]) served(ctx context.Context, kind client.Object) error {
	_, err := l.deps.Cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	return err
}

// await watches a kind once it is served.
func (l *Loop[K, W]) await(ctx context.Context, ctrl controller.TypedController[K], s watched[K]) {
	served.Await(ctx, func() error {
		return l.deps.Guard.Catch("the wait for a kind", s.kind, func() error {
			if err := l.served(ctx, s.kind); err != nil {
				return err
			}
			return ctrl.Watch(s.TypedSource)
		})
	})
}

func (l *Loop[K, W]) newQueue(name string) queue[K] {
	if l.role.Tenant != nil {
		return turns.New(turns.Options[K]{
			Tenant: l.role.Tenant, Workers: l.role.Workers, Backoff: l.role.MinRetry, MaxBackoff: l.role.MaxRetry, Clock: l.deps.Clock,
		})
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](l.role.MinRetry, l.role.MaxRetry)
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[K]{Name: name, Clock: l.deps.Clock})
}

func (l *Loop[K, W]) reconcile(ctx context.Context, key K) (reconcile.Result, error) {
	now := l.deps.Clock.Now()
	write, again := l.decide(key, now)
	if err := l.role.Write(ctx, write); err != nil || again.IsZero() {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: max(again.Sub(now), time.Nanosecond)}, nil
}

func (l *Loop[K, W]) decide(key K, now time.Time) (write W, again time.Time) {
	l.Lock()
	defer l.Unlock()
	write, due, again := l.role.Decide(key, now)
	add(l.work, due)
	return write, again
}

package binder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/served"
	"github.com/muster-scheduler/muster/internal/kube/turns"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

const (
	// largeBundle is the number of tasks at a time from which on decisions about a bundle wait for further news:
	// each costs as much as the bundle has members, and news come member by member.
	largeBundle = 16

	// newsWait is that wait.
	newsWait = 10 * time.Millisecond

	// While binds are being made, reports stand back: the pods run without them, and others wait for their binds. They
	// go on once no step towards a bind was made for reportQuiet, and at the latest after reportDelay.
	reportQuiet = 500 * time.Millisecond
	reportDelay = time.Minute

	// Reports of thousands of binds are as many thousand writes, for which others wait as well: then they go out at this
	// pace, per second, after a first burst of as many; slower while binds are still being made.
	reportPace = 60
	latePace   = 20
)

// EventFunc tells the user of a pod what happened to it. It must not block; kind is corev1.EventTypeNormal or
// corev1.EventTypeWarning.
type EventFunc func(pod *corev1.Pod, kind, reason, message string)

// Deps are what the binder needs from its process.
type Deps struct {
	// Cache has the informers. It needs pods with their metadata, spec and status.conditions, BindRequests, nodes,
	// and, if pods have volumes, claims, volumes and storage classes. Its objects are shared and never changed.
	Cache cache.Cache

	// Client writes.
	Client client.Client

	// Reader reads from the API server itself. It is asked only when something went wrong.
	Reader client.Reader

	// Preparers make ready what the binder itself knows nothing of, before the pod's volumes unless a plugin's
	// priority says otherwise.
	Preparers []Preparer

	// Event tells users. Nil: nobody is told.
	Event EventFunc

	// Log gets what no condition, event or metric says.
	Log logr.Logger

	// Registry gets the metrics. Nil: there are none.
	Registry prometheus.Registerer

	// Guard sets aside what ends in a defect, and has hung work noticed; nil: nobody is told.
	Guard *aside.Guard
}

// Controller is the binder.
type Controller struct {
	deps      Deps
	options   Options
	preparers []Preparer
	api       *apiClient
	metrics   *metrics
}

// New returns a binder that does nothing before Run. It fails on options that make no sense and on metrics that are
// registered already.
func New(deps Deps, o Options) (*Controller, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("binder: %w", err)
	}
	m, err := newMetrics(deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("binder: %w", err)
	}
	kit, err := write.New(deps.Client, "binder", deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("binder: %w", err)
	}
	w := &apiClient{cache: deps.Cache, live: deps.Reader, client: deps.Client, kit: kit, emit: deps.Event}
	preparers := arrange(append(slices.Clone(deps.Preparers), volumes{w}, claims{w, time.Now}), o.Plugins)
	return &Controller{deps: deps, options: o, preparers: preparers, api: w, metrics: m}, nil
}

// Run binds until ctx ends, and returns nil then. It starts with what is in the cluster, so a run continues what an
// earlier one, of whatever process, left. Only one may be at work in a cluster at a time. It may be called again after
// it returned.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{
		pace: rate.NewLimiter(reportPace, reportPace), late: rate.NewLimiter(latePace, latePace),
		Controller: c,
		book:       newBook(c.options, c.preparers),
		executor:   &executor{writer: c.api, preparers: c.preparers, now: time.Now},
		bundles: turns.New(turns.Options[BundleKey]{
			Tenant: func(k BundleKey) string { return k.Namespace }, Backoff: c.options.RateLimiterBaseDelay, MaxBackoff: c.options.RateLimiterMaxDelay,
		}),
		steps:   turns.New(turns.Options[*task]{Tenant: namespaceOf, Workers: 4 * c.options.MaxConcurrentReconciles}),
		reports: turns.New(turns.Options[*task]{Tenant: namespaceOf, Workers: c.options.MaxConcurrentReconciles}),
	}
	c.metrics.book.Store(r.book)
	defer c.metrics.book.Store(nil)
	return r.run(ctx)
}

func namespaceOf(t *task) string { return t.bundle.Namespace }

// run is one Run: a book and the workers around it.
type run struct {
	*Controller
	book     *book
	executor *executor
	bundles  workqueue.TypedRateLimitingInterface[BundleKey]
	steps    workqueue.TypedInterface[*task] // towards a bind
	reports  workqueue.TypedInterface[*task] // of what happened, which may trail
	lastStep atomic.Int64                    // when a step was last begun, Unix nanoseconds
	pace     *rate.Limiter                   // of reports
	late     *rate.Limiter                   // of reports that have stood back for long
	large    sync.Map                        // BundleKey -> struct{}: those whose news are gathered
}

func (r *run) run(ctx context.Context) error {
	defer r.reports.ShutDown()
	defer r.steps.ShutDown()
	defer r.bundles.ShutDown()
	stop, absent, err := r.watch(ctx)
	defer stop()
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	// A companion that cannot go on ends the binder.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, len(r.preparers))
	var workers sync.WaitGroup
	for _, k := range absent {
		workers.Go(func() {
			end := func() {}
			served.Await(ctx, func() error {
				stop, _, err := r.follow(ctx, k, cache.BlockUntilSynced(false))
				if err == nil {
					end = stop
				}
				return err
			})
			<-ctx.Done()
			end()
		})
	}
	for _, p := range r.preparers {
		if c, ok := p.(Companion); ok {
			workers.Go(func() {
				if err := c.Run(ctx, func(name types.NamespacedName) { r.look(r.book.touchRequest(name)) }); err != nil {
					failed <- fmt.Errorf("binder: %s: %w", c.Name(), err)
					cancel()
				}
			})
		}
	}
	for range 4 * r.options.MaxConcurrentReconciles {
		workers.Go(func() { r.execute(ctx, r.steps, r.stepped) })
	}
	for range r.options.MaxConcurrentReconciles {
		workers.Go(func() { r.execute(ctx, r.reports, r.standBack) })
	}
	workers.Go(r.decide)
	<-ctx.Done()
	r.bundles.ShutDown()
	r.steps.ShutDown()
	r.reports.ShutDown()
	workers.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// kind is a kind that the book follows.
type kind struct {
	object  client.Object
	handler toolscache.ResourceEventHandler
}

// watch feeds the book from the informers and returns when it has all that they have. stop ends the feeding; it is
// never nil. absent are kinds that the API server does not serve, so that there are none.
func (r *run) watch(ctx context.Context) (stop func(), absent []kind, err error) {
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	var synced []toolscache.InformerSynced
	seen := func(b *schedulingv1alpha2.BindRequest) { r.requestSeen(ctx, b) }
	// Nodes and pods first, so that most of what a request needs is there when it comes.
	for _, k := range []kind{
		{&corev1.Node{}, handle(r.nodeSeen, nil, r.nodeGone)},
		{&storagev1.StorageClass{}, handle(r.classSeen, nil, nil)},
		{&corev1.PersistentVolume{}, handle(r.volumeSeen, r.volumeSeen, r.volumeSeen)},
		{&corev1.PersistentVolumeClaim{}, handle(r.claimSeen, r.claimSeen, r.claimSeen)},
		{&resourcev1.ResourceClaim{}, handle(r.deviceClaimSeen, r.deviceClaimSeen, r.deviceClaimSeen)},
		{&corev1.Pod{}, handle(r.podSeen, r.podSeen, r.podGone)},
		{&schedulingv1alpha2.BindRequest{}, handle(seen, seen, r.requestGone)},
	} {
		end, registration, err := r.follow(ctx, k)
		if meta.IsNoMatchError(err) {
			absent = append(absent, k)
			continue
		}
		if err != nil {
			return stop, nil, err
		}
		stops, synced = append(stops, end), append(synced, registration.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return stop, nil, errors.New("binder: the cache did not sync")
	}
	return stop, absent, nil
}

// follow feeds the book from the informer of one kind until stop is called, or the cache ends.
func (r *run) follow(ctx context.Context, k kind, o ...cache.InformerGetOption) (stop func(), _ toolscache.ResourceEventHandlerRegistration, err error) {
	informer, err := r.deps.Cache.GetInformer(ctx, k.object, o...)
	if err != nil {
		return nil, nil, fmt.Errorf("binder: watching %T: %w", k.object, err)
	}
	registration, err := informer.AddEventHandler(k.handler)
	if err != nil {
		return nil, nil, fmt.Errorf("binder: watching %T: %w", k.object, err)
	}
	return func() {
		if err := informer.RemoveEventHandler(registration); err != nil {
			r.deps.Log.Error(err, "Ending a watch", "kind", fmt.Sprintf("%T", k.object))
		}
	}, registration, nil
}

// handle makes an informer's handler of functions for one type. Initial objects come as added ones.
func handle[T client.Object](added, changed, deleted func(T)) toolscache.ResourceEventHandler {
	call := func(f func(T), object any) {
		if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		if o, ok := object.(T); ok && f != nil {
			f(o)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { call(added, o) },
		UpdateFunc: func(_, o any) { call(changed, o) },
		DeleteFunc: func(o any) { call(deleted, o) },
	}
}

func nameOf(o client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (r *run) nodeSeen(n *corev1.Node)                   { r.look(r.book.putNode(n.Name)) }
func (r *run) nodeGone(n *corev1.Node)                   { r.look(r.book.dropNode(n.Name)) }
func (r *run) claimSeen(c *corev1.PersistentVolumeClaim) { r.look(r.book.touchClaim(nameOf(c))) }
func (r *run) volumeSeen(v *corev1.PersistentVolume)     { r.look(r.book.touchVolume(v)) }

// classSeen tells everyone who waits, for a class says only by its name whose it is, and classes are few.
func (r *run) classSeen(*storagev1.StorageClass) { r.look(r.book.touchClaims()) }

func (r *run) deviceClaimSeen(c *resourcev1.ResourceClaim) {
	r.look(r.book.touchClaim(deviceClaimKey(nameOf(c))))
}

func (r *run) podSeen(p *corev1.Pod) { r.look(r.book.putPod(p)) }
func (r *run) podGone(p *corev1.Pod) { r.look(r.book.dropPod(nameOf(p), p.UID)) }

func (r *run) requestSeen(ctx context.Context, b *schedulingv1alpha2.BindRequest) {
	changed, name, unknown := r.book.putRequest(b, time.Now())
	if unknown {
		// The request is in the book already, so an event that comes while the pod is looked up is not lost.
		if pod, err := read(ctx, r.deps.Cache, name, &corev1.Pod{}); err == nil && pod != nil {
			r.book.putPod(pod)
		}
	}
	r.look(changed)
}

func (r *run) requestGone(b *schedulingv1alpha2.BindRequest) {
	r.look(r.book.dropRequest(nameOf(b), b.UID))
}

// look has bundles decided about again, soon.
func (r *run) look(keys []BundleKey) {
	for _, key := range keys {
		if _, large := r.large.Load(key); large {
			r.bundles.AddAfter(key, newsWait)
		} else {
			r.bundles.Add(key)
		}
	}
}

// decide turns news into tasks until the queue is shut down.
func (r *run) decide() {
	for {
		key, over := r.bundles.Get()
		if over {
			return
		}
		err := r.deps.Guard.Do(context.Background(), "the book", key, func(context.Context) error { r.decideOne(key); return nil })
		if err == nil {
			r.bundles.Forget(key)
		} else {
			for _, pod := range r.book.pods(key) {
				r.deps.Guard.About(pod)
			}
			r.bundles.AddRateLimited(key)
		}
		r.bundles.Done(key)
	}
}

// decideOne turns the news of a bundle into tasks.
func (r *run) decideOne(key BundleKey) {
	tasks, wake := r.book.decide(key, time.Now())
	for i := range tasks {
		if tasks[i].Verb == Report {
			r.reports.Add(&tasks[i])
		} else {
			r.steps.Add(&tasks[i])
		}
	}
	if len(tasks) >= largeBundle {
		r.large.Store(key, struct{}{})
	} else if len(tasks) == 0 && !r.book.has(key) {
		r.large.Delete(key)
	}
	if !wake.IsZero() {
		r.bundles.AddAfter(key, time.Until(wake))
	}
}

// stepped notes that a step towards a bind is under way.
func (r *run) stepped(context.Context, *task) { r.lastStep.Store(time.Now().UnixNano()) }

// standBack waits until a report is in nobody's way.
func (r *run) standBack(ctx context.Context, t *task) {
	for {
		now := time.Now()
		quiet, late := reportQuiet-now.Sub(time.Unix(0, r.lastStep.Load())), reportDelay-now.Sub(t.since)
		wait := max(min(quiet, late), time.Second/reportPace)
		if quiet <= 0 && r.pace.Allow() || late <= 0 && r.late.Allow() {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// execute carries out tasks, each after before, until the queue is shut down. What is left in it then is left to the next
// run.
func (r *run) execute(ctx context.Context, queue workqueue.TypedInterface[*task], before func(context.Context, *task)) {
	for {
		t, over := queue.Get()
		if over {
			return
		}
		before(ctx, t)
		if ctx.Err() == nil {
			out := r.one(ctx, t)
			if ctx.Err() == nil {
				// What went wrong has been told.
				_ = r.deps.Guard.Catch("the book", t.bundle, func() error {
					r.tell(t, out)
					r.look([]BundleKey{r.book.settle(*t, out, time.Now())})
					return nil
				})
			}
		}
		queue.Done(t)
	}
}

// one carries out a task. A panic is a fault of this one: the others' binds go on.
func (r *run) one(ctx context.Context, t *task) (out outcome) {
	err := r.deps.Guard.Do(ctx, "a worker", t.Member.about(), func(ctx context.Context) error {
		out = r.executor.run(ctx, *t)
		return nil
	})
	if err != nil {
		out = outcome{fault: err}
	}
	return out
}

// tell counts an outcome and logs what nobody else is told.
func (r *run) tell(t *task, out outcome) {
	r.metrics.count(t, out, time.Now())
	log := r.deps.Log.V(4)
	switch {
	case out.fault != nil:
		r.deps.Log.Info("An action is repeated later", "action", t.Verb.String(), "pod", t.Member.PodName.String(), "bundle", t.bundle.String(), "fault", out.fault.Error())
	case out.failure != nil:
		r.deps.Log.Info("An attempt failed", "action", t.Verb.String(), "pod", t.Member.PodName.String(), "bundle", t.bundle.String(), "failure", out.failure.Error())
	case log.Enabled():
		log.Info("An action is done", "action", t.Verb.String(), "pod", t.Member.PodName.String(), "bundle", t.bundle.String(), "done", out.done)
	}
}

package binder

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

const (
	// largeBundle is the number of members from which on decisions about a bundle wait for further news: each costs
	// as much as the bundle has members, and news come member by member.
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
// earlier one, of whatever process, left. Only one may be at work in a cluster at a time. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	r := newRun(c)
	r.pod = func(name types.NamespacedName) *corev1.Pod {
		if pod, err := read(ctx, c.deps.Cache, name, &corev1.Pod{}); err == nil {
			return pod
		}
		return nil // events tell, or the API server once patience is at its end
	}
	c.metrics.run.Store(r)
	defer c.metrics.run.Store(nil)
	group, working := errgroup.WithContext(ctx)
	r.watch()
	group.Go(func() error { return r.steps.Run(working) })
	group.Go(func() error { return r.reports.Run(working) })
	for _, p := range c.preparers {
		if companion, ok := p.(Companion); ok { // one that cannot go on ends the binder
			group.Go(func() error {
				if err := companion.Run(working, r.wake); err != nil {
					return fmt.Errorf("binder: %s: %w", companion.Name(), err)
				}
				return nil
			})
		}
	}
	if err := group.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// run is one Run: a book, and the loops around it.
type run struct {
	*Controller
	book     *book
	executor *executor
	steps    *control.Loop[key, *task]   // decisions, and steps towards a bind; the book's lock
	reports  *control.Loop[*task, *task] // of what happened, which may trail
	lastStep atomic.Int64                // when a step was last begun, Unix nanoseconds
	pace     *rate.Limiter               // of reports
	late     *rate.Limiter               // of reports that have stood back for long

	// pod looks a pod up in the cache; nil for none. It is called with the book locked, and so only where all that is watched has been seen
	// and no look waits: in decisions, never where an event is taken in.
	pod func(name types.NamespacedName) *corev1.Pod
}

// key is a bundle, to be decided about, or a task of one, which was decided and is to be carried out.
type key struct {
	bundle BundleKey
	task   *task
}

func newRun(c *Controller) *run {
	r := &run{
		Controller: c,
		book:       newBook(c.options, c.preparers),
		executor:   &executor{writer: c.api, preparers: c.preparers, now: time.Now},
		pace:       rate.NewLimiter(reportPace, reportPace), late: rate.NewLimiter(latePace, latePace),
	}
	deps := control.Deps{Cache: c.deps.Cache, Log: c.deps.Log, Guard: c.deps.Guard}
	r.steps = control.New(deps, control.Role[key, *task]{
		Name: "binder", Workers: 4 * c.options.MaxConcurrentReconciles, MinRetry: c.options.RateLimiterBaseDelay, MaxRetry: c.options.RateLimiterMaxDelay,
		Tenant: func(k key) string { return k.bundle.Namespace },
		Decide: r.decide, Write: r.step,
	})
	r.reports = control.New(deps, control.Role[*task, *task]{
		Name: "binder-reports", Workers: c.options.MaxConcurrentReconciles, MinRetry: c.options.RateLimiterBaseDelay, MaxRetry: c.options.RateLimiterMaxDelay,
		Tenant: func(t *task) string { return t.bundle.Namespace },
		Decide: func(t *task, _ time.Time) (*task, []control.Due[*task], time.Time) { return t, nil, time.Time{} },
		Write:  r.report,
	})
	return r
}

// watch has the book see all that it is about. Any of the kinds may come to be served later.
func (r *run) watch() {
	see(r, &corev1.Node{}, func(n *corev1.Node, gone bool) []BundleKey { return r.book.setNode(n.Name, !gone) })
	// A class says only by its name whose it is, and classes are few.
	see(r, &storagev1.StorageClass{}, func(*storagev1.StorageClass, bool) []BundleKey { return r.book.touchClaims() })
	see(r, &corev1.PersistentVolume{}, func(v *corev1.PersistentVolume, _ bool) []BundleKey { return r.book.touchVolume(v) })
	see(r, &corev1.PersistentVolumeClaim{}, func(c *corev1.PersistentVolumeClaim, _ bool) []BundleKey { return r.book.touchClaim(nameOf(c)) })
	see(r, &resourcev1.ResourceClaim{}, func(c *resourcev1.ResourceClaim, _ bool) []BundleKey {
		return r.book.touchClaim(deviceClaimKey(nameOf(c)))
	})
	see(r, &corev1.Pod{}, func(p *corev1.Pod, gone bool) []BundleKey {
		if gone {
			return r.book.dropPod(nameOf(p), p.UID)
		}
		return r.book.putPod(p)
	})
	see(r, &schedulingv1alpha2.BindRequest{}, func(b *schedulingv1alpha2.BindRequest, gone bool) []BundleKey {
		if gone {
			return r.book.dropRequest(nameOf(b), b.UID)
		}
		return r.book.putRequest(b, time.Now())
	})
}

func see[T client.Object](r *run, kind T, seen func(obj T, gone bool) []BundleKey) {
	control.WatchLater(r.steps, kind, func(obj T, gone bool) []control.Due[key] { return r.news(seen(obj, gone)...) })
}

func nameOf(o client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// news has bundles decided about again, soon.
func (r *run) news(bundles ...BundleKey) (due []control.Due[key]) {
	for _, k := range bundles {
		d := control.Due[key]{Key: key{bundle: k}}
		if b := r.book.bundles[k]; b != nil && len(b.Members) >= largeBundle {
			d.After = newsWait
		}
		due = append(due, d)
	}
	return due
}

// wake has the preparation of a request go on.
func (r *run) wake(request types.NamespacedName) {
	r.steps.Lock()
	defer r.steps.Unlock()
	r.steps.Add(r.news(r.book.touchRequest(request)...)...)
}

// decide turns what is known of a bundle into tasks. A task was decided already.
func (r *run) decide(k key, now time.Time) (_ *task, due []control.Due[key], again time.Time) {
	if k.task != nil {
		return k.task, nil, time.Time{}
	}
	done := false
	defer func() {
		if !done { // a defect: it is of all pods of the bundle
			for _, pod := range r.book.pods(k.bundle) {
				r.deps.Guard.About(pod)
			}
		}
	}()
	r.book.look(k.bundle, r.pod)
	tasks, again := r.book.decide(k.bundle, now)
	done = true
	r.reports.Lock()
	defer r.reports.Unlock()
	for i := range tasks {
		if t := &tasks[i]; t.Verb == Report {
			r.reports.Add(control.Due[*task]{Key: t})
		} else {
			due = append(due, control.Due[key]{Key: key{k.bundle, t}})
		}
	}
	return nil, due, again
}

// step carries out a task that leads to a bind, or away from one.
func (r *run) step(ctx context.Context, t *task) error {
	if t == nil {
		return nil
	}
	r.lastStep.Store(time.Now().UnixNano())
	return r.carryOut(ctx, t)
}

// report carries out a task that nobody waits for.
func (r *run) report(ctx context.Context, t *task) error {
	r.standBack(ctx, t)
	return r.carryOut(ctx, t)
}

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

// carryOut carries out a task, and has its bundle decided about again: what went wrong is for the book to know, and no error. A panic is a
// fault of this task. What ctx cuts short is left to the next run.
func (r *run) carryOut(ctx context.Context, t *task) error {
	if ctx.Err() != nil {
		return nil
	}
	var out outcome
	if err := r.deps.Guard.Catch("a worker", t.Member.about(), func() error { out = r.executor.run(ctx, *t); return nil }); err != nil {
		out = outcome{fault: err}
	}
	if ctx.Err() != nil {
		return nil
	}
	r.tell(t, out)
	r.steps.Lock()
	defer r.steps.Unlock()
	r.steps.Add(r.news(r.book.settle(*t, out, time.Now()))...)
	return nil
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

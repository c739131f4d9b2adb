package podgrouper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/workload"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/links"
	"github.com/muster-scheduler/muster/internal/kube/turns"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// Deps are what the role needs of its process.
type Deps struct {
	// Cache is the process's shared cache. Of pods it must keep metadata, spec.schedulerName, spec.priorityClassName and
	// status.phase; of PodGroups everything but status; of PriorityClasses and Namespaces the metadata.
	Cache cache.Cache
	// Client writes. Its reads are not used.
	Client client.Client
	// Reader reads from the API server.
	Reader client.Reader
	// Event records an event about an object. It must not block.
	Event func(obj client.Object, eventType, reason, message string)
	Log   logr.Logger
	// Discovery says which kinds the API server serves. It is asked about owners of kinds that nobody has met, a few times a minute
	// however many there are. Nil: the API server is asked for each such owner.
	Discovery discovery.ServerResourcesInterface
	// Registry gets the role's metrics. Nil: they are kept to the role.
	Registry prometheus.Registerer
	// Clock is the real one if nil.
	Clock clock.WithTicker
	// Guard sets aside what ends in a defect, and has hung work noticed; nil: nobody is told.
	Guard *aside.Guard
	// Links are where other roles of the process hear what gang a pod is by itself before it is written; nil: it is written at once.
	Links *links.Links
}

// Controller is the role. Make one with New; Run it once.
type Controller struct {
	deps    Deps
	grouper *grouper
	follow  *follower
	queue   atomic.Pointer[queue]
}

type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// New prepares the role. It fails on options that cannot be, naming each.
func New(deps Deps, o Options) (*Controller, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("podgrouper: %w", err)
	}
	if deps.Cache == nil || deps.Client == nil || deps.Reader == nil || deps.Event == nil {
		return nil, errors.New("podgrouper: cache, client, reader and event recorder are needed")
	}
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	table, err := workload.NewTable(workload.Kinds())
	if err != nil {
		return nil, fmt.Errorf("podgrouper: table of kinds: %w", err)
	}
	counts, err := newCounts(deps.Registry)
	if err != nil {
		return nil, err
	}
	kit, err := write.New(deps.Client, "podgrouper", deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("podgrouper: %w", err)
	}
	c := &Controller{deps: deps}
	c.follow = &follower{
		cache: deps.Cache, table: table, clock: deps.Clock, log: deps.Log,
		changed: c.ownerChanged, gone: c.ownerGone,
		kinds: map[schema.GroupVersionKind]*followed{},
	}
	c.grouper = newGrouper(deps, o, table, kit, counts, c.follow.ready)
	return c, nil
}

// newGrouper assembles the part that works on pods; of the cache it needs the reading half only.
func newGrouper(
	deps Deps, o Options, table *workload.Table, kit *write.Kit, counts *counts,
	follow func(context.Context, schema.GroupVersionKind) bool,
) *grouper {
	return &grouper{
		options: o, table: table, cached: deps.Cache, writer: deps.Client, kit: kit, live: deps.Reader,
		owners: &owners{
			table: table, cached: deps.Cache, live: deps.Reader, follow: follow, counts: counts,
			kinds: &kinds{discovery: deps.Discovery, clock: deps.Clock},
		},
		memory: newMemory(o.Remembered),
		pods:   newOwned(o.SchedulerNames),
		defaults: &defaults{
			name:   types.NamespacedName{Namespace: o.DefaultsNamespace, Name: o.DefaultsName},
			reader: deps.Reader, clock: deps.Clock,
		},
		definitions: newDefinitions(deps.Reader, deps.Clock, o.Definitions),
		event:       deps.Event, clock: deps.Clock, counts: counts, links: deps.Links,
	}
}

// Run works until ctx ends, and returns nil then; or fails because what it watches cannot be watched. The cache must be
// started by someone else, before or after.
func (c *Controller) Run(ctx context.Context) error {
	defer c.follow.end()
	o := &c.grouper.options
	skip := true
	ctl, err := controller.NewTypedUnmanaged("podgrouper", controller.TypedOptions[reconcile.Request]{
		SkipNameValidation:      &skip,
		MaxConcurrentReconciles: o.Workers,
		Reconciler: aside.Reconciler(c.deps.Guard, c.grouper.reconcile, func(r reconcile.Request) client.Object {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
		}),
		NewQueue: func(string, workqueue.TypedRateLimiter[reconcile.Request]) adder {
			return turns.New(turns.Options[reconcile.Request]{
				Tenant: func(r reconcile.Request) string { return r.Namespace }, Workers: o.Workers,
				Backoff: o.Backoff, MaxBackoff: o.Patience, Clock: c.deps.Clock,
			})
		},
		Logger:         c.deps.Log,
		LogConstructor: func(*reconcile.Request) logr.Logger { return c.deps.Log },
	})
	if err != nil {
		return fmt.Errorf("podgrouper: %w", err)
	}
	for _, s := range []source.Source{
		source.Func(c.capture),
		source.Kind(c.deps.Cache, &corev1.Pod{}, c.podEvents()),
		source.Kind(c.deps.Cache, &v2alpha2.PodGroup{}, c.groupEvents()),
	} {
		if err := ctl.Watch(s); err != nil {
			return fmt.Errorf("podgrouper: %w", err)
		}
	}
	if err := ctl.Start(ctx); err != nil {
		return fmt.Errorf("podgrouper: %w", err)
	}
	return nil
}

type adder = workqueue.TypedRateLimitingInterface[reconcile.Request]

// capture learns the queue, for events that come from elsewhere, and starts the sweep.
func (c *Controller) capture(ctx context.Context, q adder) error {
	c.queue.Store(&queue{q})
	go c.sweep(ctx)
	return nil
}

// podEvents queues the pods that may need work.
func (c *Controller) podEvents() handler.TypedEventHandler[*corev1.Pod, reconcile.Request] {
	settings := workload.Settings{QueueLabel: c.grouper.options.QueueLabel, NodePoolLabel: c.grouper.options.NodePoolLabel}
	add := func(pod *corev1.Pod, q adder) {
		if c.grouper.ours(pod) && !c.grouper.settled(pod) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		}
	}
	return handler.TypedFuncs[*corev1.Pod, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Pod], q adder) {
			c.grouper.pods.saw(nil, e.Object)
			if !e.IsInInitialList && c.grouper.table.Decisive(e.Object) {
				c.decided(e.Object)
			}
			add(e.Object, q)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Pod], _ adder) {
			c.grouper.pods.saw(e.Object, nil)
			if c.grouper.table.Decisive(e.Object) {
				c.decided(e.Object)
			}
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Pod], q adder) {
			is, was := e.ObjectNew, e.ObjectOld
			c.grouper.pods.saw(was, is)
			switch {
			case was.UID != is.UID:
			case c.decisive(was, is):
				c.decided(is)
				return
			case !workload.SameHints(was, is, &settings):
				for _, owner := range is.OwnerReferences {
					c.grouper.memory.forgetOwner(owner.UID)
				}
				c.ownerChanged(is.UID) // a pod may own others, as a Spark driver does
			case !waitsInVain(was) && waitsInVain(is): // reasons need a PodGroup
			case maps.Equal(was.Labels, is.Labels) && maps.Equal(was.Annotations, is.Annotations):
				return // its status changed, or fields that are nothing to us
			}
			add(is, q)
		},
	}
}

// decisive says whether a pod on which the minimum of its gang depends came to life, got its node or ended.
func (c *Controller) decisive(was, is *corev1.Pod) bool {
	ended := func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	}
	return (was.Spec.NodeName != is.Spec.NodeName || ended(was) != ended(is) ||
		(was.DeletionTimestamp == nil) != (is.DeletionTimestamp == nil)) && c.grouper.table.Decisive(is)
}

// decided looks again at the gang of such a pod: through the pod itself, and through one pod of each owner that has pods in it.
func (c *Controller) decided(pod *corev1.Pod) {
	q := c.queue.Load()
	if q == nil || len(pod.OwnerReferences) == 0 || !slices.Contains(c.grouper.options.SchedulerNames, pod.Spec.SchedulerName) {
		return
	}
	c.grouper.memory.forgetKey(c.grouper.keyOf(pod))
	q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
	group := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Annotations[keys.PodGroupAnnotation]}
	for _, owner := range c.grouper.memory.forgetGroup(group) {
		pods, err := c.grouper.podsOf(owner)
		if err != nil {
			c.deps.Log.Error(err, "pods of a gang that changed could not be listed", "owner", owner)
		}
		if len(pods) > 0 {
			q.Add(reconcile.Request{NamespacedName: pods[0]})
		}
	}
}

// settled says whether the pod is known to be grouped as it should be.
func (g *grouper) settled(pod *corev1.Pod) bool {
	if len(pod.OwnerReferences) == 0 {
		return false
	}
	d := g.memory.get(g.keyOf(pod), g.clock.Now())
	if d == nil || d.anew {
		return false
	}
	if d.left {
		return true
	}
	if d.failed != nil {
		return false
	}
	subgroup, err := d.members.SubGroup(pod)
	group := d.groupOf(pod)
	return err == nil && (workload.PodPatch(pod, group, subgroup) == nil || g.known(pod, group, d.queue, subgroup) && g.untilVain(pod) == 0)
}

// groupEvents looks again at gangs whose PodGroup went away or was changed, by whomever.
func (c *Controller) groupEvents() handler.TypedEventHandler[*v2alpha2.PodGroup, reconcile.Request] {
	return handler.TypedFuncs[*v2alpha2.PodGroup, reconcile.Request]{
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v2alpha2.PodGroup], _ adder) {
			if e.ObjectOld.Generation != e.ObjectNew.Generation &&
				!c.grouper.memory.own(client.ObjectKeyFromObject(e.ObjectNew), e.ObjectNew.Generation) {
				c.groupChanged(e.ObjectNew, c.grouper.memory.forgetGroup)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v2alpha2.PodGroup], _ adder) {
			c.groupChanged(e.Object, c.grouper.memory.forgetGone)
		},
	}
}

func (c *Controller) groupChanged(group *v2alpha2.PodGroup, forget func(types.NamespacedName) []types.UID) {
	for _, owner := range forget(client.ObjectKeyFromObject(group)) {
		c.enqueue(owner)
	}
	q := c.queue.Load()
	for _, ref := range group.OwnerReferences {
		if q != nil && ref.Kind == "Pod" && ref.APIVersion == "v1" {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: group.Namespace, Name: ref.Name}})
		}
	}
}

func (c *Controller) ownerChanged(uid types.UID) {
	c.enqueue(uid)
	for _, owner := range c.grouper.memory.forgetOwner(uid) {
		if owner != uid {
			c.enqueue(owner)
		}
	}
}

func (c *Controller) ownerGone(uid types.UID) { c.grouper.memory.forgetOwner(uid) }

// enqueue queues the pods of a nearest owner, the first by name in front, so that what a gang looks like does not depend on
// which of its pods came last.
func (c *Controller) enqueue(owner types.UID) {
	q := c.queue.Load()
	if q == nil {
		return // pods are all queued when the role starts
	}
	pods, err := c.grouper.podsOf(owner)
	if err != nil {
		c.deps.Log.Error(err, "pods of an owner that changed could not be listed", "owner", owner)
		return
	}
	for _, name := range pods {
		q.Add(reconcile.Request{NamespacedName: name})
	}
}

// podsOf lists the pods of a nearest owner, by name.
func (g *grouper) podsOf(owner types.UID) ([]types.NamespacedName, error) {
	names := g.pods.of(owner)
	out := names[:0]
	var pod corev1.Pod
	for _, name := range names {
		err := g.cached.Get(context.Background(), name, &pod, client.UnsafeDisableDeepCopy)
		switch {
		case apierrors.IsNotFound(err): // and the event of that is on its way
		case err != nil:
			return nil, fmt.Errorf("list the pods of owner %s: %w", owner, err)
		case g.pods.owner(&pod) == owner && g.ours(&pod):
			out = append(out, name)
		}
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// sweep looks again, from time to time, at gangs whose owners are not watched, and at gangs whose PodGroup is missing.
func (c *Controller) sweep(ctx context.Context) {
	ticker := c.deps.Clock.NewTicker(c.grouper.options.Refresh)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		// What went wrong has been told; it is looked at again at the next tick.
		_ = c.deps.Guard.Do(ctx, "the sweep", "all gangs", func(ctx context.Context) error {
			for _, owner := range c.grouper.doubtful(ctx) {
				c.enqueue(owner)
			}
			return nil
		})
	}
}

// doubtful forgets, and returns, the nearest owners whose derivation is not to be trusted any more.
func (g *grouper) doubtful(ctx context.Context) []types.UID {
	var out []types.UID
	now := g.clock.Now()
	for _, d := range g.memory.all() {
		expired := !d.expires.IsZero() && !now.Before(d.expires) || !d.lacks.Empty() && g.owners.kinds.served(ctx, d.lacks)
		missing := false
		if !expired && !d.left && d.failed == nil && !d.eachPod && d.alone == "" {
			exists, err := g.exists(ctx, d.group)
			missing = err == nil && !exists
		}
		if expired || missing {
			g.memory.discard(d)
			out = append(out, d.owner)
		}
	}
	return out
}

// metadataOf names an object for a patch.
func metadataOf(gvk schema.GroupVersionKind, obj metav1.Object) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(gvk)
	m.Namespace, m.Name = obj.GetNamespace(), obj.GetName()
	return m
}

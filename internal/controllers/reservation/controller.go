package reservation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/turns"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

const (
	// syncers is how many groups are looked at at a time; one tenant alone has two thirds of them.
	syncers = 6

	// slowest bounds how long a group waits that cannot be put in order.
	slowest = 5 * time.Minute
)

// Deps are what the controller needs from its process.
type Deps struct {
	// Cache has the informers: pods with their metadata, spec and phase, BindRequests, nodes. The controller
	// adds indexes to it, so it must not have been given to another Controller.
	Cache cache.Cache

	// Client writes.
	Client client.Client

	// Reader reads from the API server itself.
	Reader client.Reader

	// Event tells users. Nil: nobody is told. It must not block.
	Event func(pod *corev1.Pod, kind, reason, message string)

	// Log gets what no condition, event or metric says.
	Log logr.Logger

	// Registry gets the counters of writes. Nil: there are none.
	Registry prometheus.Registerer

	// Guard sets aside what ends in a defect, and has hung work noticed; nil: nobody is told.
	Guard *aside.Guard
}

// Controller holds shared devices. It is a preparer of the binder (Name, Relevant, Check, Prepare, Undo, Note), and its
// companion (Run).
type Controller struct {
	options Options
	cluster cluster
	informs cache.Cache
	log     logr.Logger
	now     func() time.Time
	guard   *aside.Guard

	locks locks
	waits waits
	known groupSet // groups whose device this process told somebody
	news  groupSet // groups of which there is news that no look has begun to take in

	mu     sync.Mutex
	groups workqueue.TypedRateLimitingInterface[item] // to be looked at; nil before there are any
}

// New returns a Controller. It fails on options that make no sense, and on metrics that are registered already.
func New(deps Deps, o Options) (*Controller, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("reservation: %w", err)
	}
	kit, err := write.New(deps.Client, "reservation", deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("reservation: %w", err)
	}
	c := newController(o, &apiClient{cache: deps.Cache, live: deps.Reader, client: deps.Client, kit: kit, emit: deps.Event})
	c.informs, c.log, c.guard = deps.Cache, deps.Log, deps.Guard
	return c, nil
}

func newController(o Options, w cluster) *Controller {
	return &Controller{options: o, cluster: w, log: logr.Discard(), now: time.Now}
}

// item is a group that is to be looked at, and the namespace in whose turn: that of the pod or request with which it began, for
// pods of any tenant may name a group. Looks at one group exclude each other, and one takes in the news of all its namespaces.
type item struct {
	namespace, group string
	due              bool // not because of news: a time has come
}

func newQueue() workqueue.TypedRateLimitingInterface[item] {
	return turns.New(turns.Options[item]{
		Tenant: func(i item) string { return i.namespace }, Workers: syncers, Backoff: 100 * time.Millisecond, MaxBackoff: slowest,
	})
}

// again has a group looked at again, in our own turn.
func (c *Controller) again(group string, after time.Duration) {
	c.queue().AddAfter(item{c.options.Namespace, group, true}, after)
}

// heard has a group looked at that something of the namespace is the news of. The cache shows the news already.
func (c *Controller) heard(namespace, group string) {
	c.news.add(group)
	c.queue().Add(item{namespace, group, false})
}

// queue is the queue of groups of this run; before the first, its queue; after the last, one that takes nothing.
func (c *Controller) queue() workqueue.TypedRateLimitingInterface[item] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.groups == nil {
		c.groups = newQueue()
	}
	return c.groups
}

// renewQueue lets go of the queue of an earlier run.
func (c *Controller) renewQueue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.groups != nil && c.groups.ShuttingDown() {
		c.groups = nil
	}
}

// Run keeps groups in order until ctx ends, and returns nil then: it begins with all that there are, and goes on with
// those that something happens to. wake is called with the name of each BindRequest whose preparation waits for the
// group. Run may be called again after it returned.
func (c *Controller) Run(ctx context.Context, wake func(request types.NamespacedName)) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	c.renewQueue()
	defer func() { c.queue().ShutDown() }() // what is still added is lost: the next run begins with all that there are
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var synced []toolscache.InformerSynced
	for _, k := range []struct {
		object client.Object
		seen   func(object any, gone bool)
	}{
		{&schedulingv1alpha2.BindRequest{}, c.requestSeen},
		{&corev1.Pod{}, c.podSeen},
	} {
		informer, err := c.informs.GetInformer(ctx, k.object)
		if err != nil {
			return fmt.Errorf("watching %T: %w", k.object, err)
		}
		registration, err := informer.AddEventHandler(handler(k.seen))
		if err != nil {
			return fmt.Errorf("watching %T: %w", k.object, err)
		}
		defer func() {
			if err := informer.RemoveEventHandler(registration); err != nil {
				c.log.Error(err, "Ending a watch", "kind", fmt.Sprintf("%T", k.object))
			}
		}()
		synced = append(synced, registration.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		if ctx.Err() != nil {
			return nil
		}
		return errors.New("the cache did not sync")
	}
	for range syncers {
		workers.Go(func() { c.work(ctx, wake) })
	}
	<-ctx.Done()
	return nil
}

// handler calls seen with each state of an object: what it is, what it was, and what it was last.
func handler(seen func(object any, gone bool)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { seen(o, false) },
		UpdateFunc: func(was, is any) { seen(was, false); seen(is, false) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			seen(o, true)
		},
	}
}

func (c *Controller) podSeen(o any, _ bool) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	for _, g := range groupsOf(p) {
		c.heard(p.Namespace, g)
	}
	if p.Namespace == c.options.ScalingNamespace {
		for _, g := range c.waits.groups() {
			c.again(g, 0)
		}
	}
}

func (c *Controller) requestSeen(o any, gone bool) {
	r, ok := o.(*schedulingv1alpha2.BindRequest)
	if !ok {
		return
	}
	if gone {
		c.waits.end(r.UID)
	}
	for _, g := range requestGroups(r) {
		c.heard(r.Namespace, g)
	}
}

// work syncs groups until the queue is shut down.
func (c *Controller) work(ctx context.Context, wake func(types.NamespacedName)) {
	groups := c.queue()
	for {
		it, over := groups.Get()
		if over {
			return
		}
		group := it.group
		if ctx.Err() == nil {
			if err := c.guard.Do(ctx, "a shared device", group, func(ctx context.Context) error { return c.turn(ctx, it) }); err != nil {
				if errors.Is(err, aside.ErrDefect) {
					for _, request := range c.waits.of(group) {
						c.guard.About(&schedulingv1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name}})
					}
				}
				if ctx.Err() == nil {
					c.log.Info("A shared device is looked at again later", "group", group, "fault", err.Error())
				}
				groups.AddRateLimited(it)
			} else {
				groups.Forget(it)
			}
			for _, request := range c.waits.of(group) {
				wake(request)
			}
		}
		groups.Done(it)
	}
}

// locks has one lock per group that is in use.
type locks struct {
	mu     sync.Mutex
	groups map[string]*lock
}

type lock struct {
	sync.Mutex
	users int
}

// take locks a group; the function it returns unlocks it.
func (l *locks) take(group string) (release func()) {
	l.mu.Lock()
	g := l.groups[group]
	if g == nil {
		if l.groups == nil {
			l.groups = map[string]*lock{}
		}
		g = &lock{}
		l.groups[group] = g
	}
	g.users++
	l.mu.Unlock()
	g.Lock()
	return func() {
		g.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if g.users--; g.users == 0 {
			delete(l.groups, group)
		}
	}
}

// groupSet is a set of groups.
type groupSet struct {
	mu     sync.Mutex
	groups map[string]struct{}
}

func (s *groupSet) add(group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups == nil {
		s.groups = map[string]struct{}{}
	}
	s.groups[group] = struct{}{}
}

func (s *groupSet) drop(group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.groups, group)
}

// take drops a group, and says whether it was there.
func (s *groupSet) take(group string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.groups[group]
	delete(s.groups, group)
	return ok
}

func (s *groupSet) has(group string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.groups[group]
	return ok
}

// waits knows which requests wait for which groups, and since when.
type waits struct {
	mu       sync.Mutex
	requests map[types.UID]*waiter
	byGroup  map[string]map[types.UID]struct{}
}

type waiter struct {
	name   types.NamespacedName
	groups []string
	since  time.Time
}

// begin notes that a request waits, unless it does already, and returns since when.
func (w *waits) begin(r *schedulingv1alpha2.BindRequest, groups []string, now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.requests[r.UID]; x != nil {
		return x.since
	}
	if w.requests == nil {
		w.requests, w.byGroup = map[types.UID]*waiter{}, map[string]map[types.UID]struct{}{}
	}
	w.requests[r.UID] = &waiter{name: types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, groups: groups, since: now}
	for _, g := range groups {
		if w.byGroup[g] == nil {
			w.byGroup[g] = map[types.UID]struct{}{}
		}
		w.byGroup[g][r.UID] = struct{}{}
	}
	return now
}

// end notes that a request waits no longer.
func (w *waits) end(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.requests[uid]
	if x == nil {
		return
	}
	delete(w.requests, uid)
	for _, g := range x.groups {
		delete(w.byGroup[g], uid)
		if len(w.byGroup[g]) == 0 {
			delete(w.byGroup, g)
		}
	}
}

// of are the requests that wait for a group.
func (w *waits) of(group string) []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []types.NamespacedName
	for uid := range w.byGroup[group] { // order: all are woken
		out = append(out, w.requests[uid].name)
	}
	return out
}

// groups are those that anybody waits for.
func (w *waits) groups() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]string, 0, len(w.byGroup))
	for g := range w.byGroup { // order: all are looked at
		out = append(out, g)
	}
	return out
}

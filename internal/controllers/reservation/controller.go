package reservation

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/entry"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/control"
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
	log     logr.Logger
	now     func() time.Time
	guard   *aside.Guard
	loop    *control.Loop[item, item]
	add     func(...control.Due[item]) // of the loop
	wake    func(request types.NamespacedName)

	locks locks
	book  // under the loop's lock
}

// book is what is known besides what the cache shows of a group when it is looked at, under the group's lock: nothing that trails the
// cache, as what handlers were told does, would do for that.
type book struct {
	waits    waits
	known    map[string]struct{} // groups whose device this process told somebody
	news     map[string]struct{} // groups of which there is news that no look has begun to take in
	pods     naming
	requests naming
}

// naming is which groups objects named when they were last seen; those that name none are not in it.
type naming map[types.NamespacedName][]string

// seen returns the groups that the object named before, and those that it names now.
func (n naming) seen(o client.Object, groups []string, gone bool) []string {
	key := client.ObjectKeyFromObject(o)
	all := append(n[key], groups...)
	if n[key] = groups; gone || len(groups) == 0 {
		delete(n, key)
	}
	return all
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
	c := newController(deps, o, &apiClient{cache: deps.Cache, live: deps.Reader, client: deps.Client, kit: kit, emit: deps.Event})
	control.Watch(c.loop, &schedulingv1alpha2.BindRequest{}, c.requestSeen)
	control.Watch(c.loop, &corev1.Pod{}, c.podSeen)
	return c, nil
}

// newController returns a Controller that watches nothing yet.
func newController(deps Deps, o Options, w cluster) *Controller {
	c := &Controller{options: o, cluster: w, log: deps.Log, now: time.Now, guard: deps.Guard, wake: func(types.NamespacedName) {}}
	c.known, c.news, c.pods, c.requests = map[string]struct{}{}, map[string]struct{}{}, naming{}, naming{}
	c.loop = control.New(control.Deps{Cache: deps.Cache, Log: deps.Log, Guard: deps.Guard}, control.Role[item, item]{
		Name: "reservation", Workers: syncers, MinRetry: 100 * time.Millisecond, MaxRetry: slowest,
		Tenant: func(i item) string { return i.namespace },
		Decide: func(i item, _ time.Time) (item, []control.Due[item], time.Time) { return c.decide(i), nil, time.Time{} },
		Write:  c.write,
	})
	c.add = c.loop.Add
	return c
}

// item is a group that is to be looked at, and the namespace in whose turn: that of the pod or request with which it began, for
// pods of any tenant may name a group. Looks at one group exclude each other, and one takes in the news of all its namespaces.
type item struct {
	namespace, group string
	due              bool // not because of news: a time has come
}

// locked does something to the book.
func (c *Controller) locked(do func()) {
	c.loop.Lock()
	defer c.loop.Unlock()
	do()
}

// again has a group looked at again, in our own turn.
func (c *Controller) again(group string, after time.Duration) {
	c.locked(func() { c.add(control.Due[item]{Key: item{c.options.Namespace, group, true}, After: after}) })
}

// heard has groups looked at that something of the namespace is the news of. The cache shows the news already. The lock is held.
func (c *Controller) heard(namespace string, groups ...string) (due []control.Due[item]) {
	for _, g := range groups {
		c.news[g] = struct{}{}
		due = append(due, control.Due[item]{Key: item{namespace, g, false}})
	}
	return due
}

// Run keeps groups in order until ctx ends, and returns nil then: it begins with all that there are, and goes on with
// those that something happens to. wake is called with the name of each BindRequest whose preparation waits for the
// group. It must be called once.
func (c *Controller) Run(ctx context.Context, wake func(request types.NamespacedName)) error {
	c.wake = wake
	if err := c.loop.Run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

func (c *Controller) podSeen(p *corev1.Pod, gone bool) []control.Due[item] {
	due := c.heard(p.Namespace, c.pods.seen(p, groupsOf(p), gone)...)
	if p.Namespace == c.options.ScalingNamespace {
		for g := range c.waits.byGroup { // order: all are looked at
			due = append(due, control.Due[item]{Key: item{c.options.Namespace, g, true}})
		}
	}
	return due
}

func (c *Controller) requestSeen(r *schedulingv1alpha2.BindRequest, gone bool) []control.Due[item] {
	if gone {
		c.waits.end(r.UID)
	}
	return c.heard(r.Namespace, c.requests.seen(r, requestGroups(r), gone)...)
}

// decide says whether a group is to be looked at: not if another look takes in the news for which this one was asked.
func (c *Controller) decide(it item) (look item) {
	if _, news := c.news[it.group]; !news && !it.due {
		return item{}
	}
	delete(c.news, it.group)
	return it
}

// write looks at a group and puts it in order, and wakes those that wait for it.
func (c *Controller) write(ctx context.Context, it item) (err error) {
	if it.group == "" || ctx.Err() != nil {
		return nil
	}
	ended := false
	defer func() {
		var waiting []types.NamespacedName
		c.locked(func() {
			if waiting = c.waits.of(it.group); err != nil || !ended {
				c.news[it.group] = struct{}{} // for this item when it is tried again, or for another before
			}
		})
		for _, request := range waiting {
			if !ended { // a defect: it is theirs
				c.guard.About(&schedulingv1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name}})
			}
			c.wake(request)
		}
	}()
	err = c.turn(ctx, it.group)
	ended = true
	if err != nil && ctx.Err() == nil {
		c.log.Info("A shared device is looked at again later", "group", it.group, "fault", err.Error())
	}
	return err
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

// waits knows which requests wait for which groups, and since when.
type waits struct {
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
	if x := w.requests[r.UID]; x != nil {
		return x.since
	}
	if w.requests == nil {
		w.requests, w.byGroup = map[types.UID]*waiter{}, map[string]map[types.UID]struct{}{}
	}
	w.requests[r.UID] = &waiter{name: types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, groups: groups, since: now}
	for _, g := range groups {
		entry.Put(w.byGroup, g, r.UID, struct{}{})
	}
	return now
}

// end notes that a request waits no longer.
func (w *waits) end(uid types.UID) {
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
	var out []types.NamespacedName
	for uid := range w.byGroup[group] { // order: all are woken
		out = append(out, w.requests[uid].name)
	}
	return out
}

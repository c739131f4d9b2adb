package scheduler

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/kube/apply"
	"github.com/muster-scheduler/muster/internal/kube/feed"
)

// Feed is where the world comes from.
type Feed interface {
	Synced() bool
	Changed() <-chan struct{}
	Drain(*cluster.Store) int
	StaleBindRequests() []feed.StaleBindRequest
	Problems() map[string]string
}

// Queue takes plans that are to be carried out, each at once.
type Queue interface {
	Submit(p engine.Plan)
	// Full says that so much is queued that nothing more is to be decided; Room is signalled when that is over.
	Full() bool
	Room() <-chan struct{}
}

// Binds is where decisions go.
type Binds interface {
	Queue
	Failed() <-chan struct{}
	Failures() []apply.Failure
	Remove(namespace, name string, uid types.UID) bool
	// Left are the decisions about gangs that an earlier process recorded, each of which is then resumed or withdrawn.
	Left(ctx context.Context) ([]kai.GangRecord, error)
	Resume(r *kai.GangRecord, rest []kai.Intent)
	Withdraw(ctx context.Context, r *kai.GangRecord) (bool, error)
}

// Evictions is where decisions go that take pods from their nodes.
type Evictions interface {
	Queue
	Settled() <-chan struct{}
	Outcomes() []apply.Outcome
}

// Nominations is where held room is told.
type Nominations interface {
	Restore(ctx context.Context) ([]apply.Promise, error)
	Publish(snap *cluster.Snapshot) time.Time
}

// Annotations is where gangs are told when what became of them.
type Annotations interface {
	Set(gang cluster.Key, uid, annotation string, at cluster.Instant)
	Frozen(gang cluster.Key, uid, text string, lasts time.Duration)
}

// Statuses is where reasons go.
type Statuses interface {
	Restore(ctx context.Context) error
	Publish(snap *cluster.Snapshot, t *engine.Trace) time.Time
}

// Usage is where the past comes from: what queues used lately.
type Usage interface {
	Settled() bool            // scheduling may begin
	Changed() <-chan struct{} // settled, or something to drain
	Drain(*cluster.Store) int
	Observe(*cluster.Snapshot) // what the cluster looks like now; it must not block
}

// NodeUse is where it comes from how busy nodes are.
type NodeUse interface {
	Changed() <-chan struct{} // there is something to drain
	Drain(*cluster.Store) int
}

// Engines is where others than Parts.Engine come from, if what is decided by may change while the loop runs.
type Engines interface {
	Settled() bool            // what to decide by is known, or given up on; scheduling may begin
	Changed() <-chan struct{} // settled, or there is something to take
	Take() *engine.Engine     // what decides from the next cycle on, told once; nil: no other. The loop calls it between two cycles
}

// oneEngine is what is decided by where nothing else can come.
type oneEngine struct{}

func (oneEngine) Settled() bool            { return true }
func (oneEngine) Changed() <-chan struct{} { return nil }
func (oneEngine) Take() *engine.Engine     { return nil }

// noUsage is a past of which nothing is known.
type noUsage struct{}

func (noUsage) Settled() bool             { return true }
func (noUsage) Changed() <-chan struct{}  { return nil }
func (noUsage) Drain(*cluster.Store) int  { return 0 }
func (noUsage) Observe(*cluster.Snapshot) {}

// unmeasured is a cluster of which nobody says how busy nodes are.
type unmeasured struct{}

func (unmeasured) Changed() <-chan struct{} { return nil }
func (unmeasured) Drain(*cluster.Store) int { return 0 }

// Parts are what a loop is put together from.
type Parts struct {
	Feed Feed
	// Store is what Follow has kept from the same feed; nil for an empty one.
	Store       *cluster.Store
	Engine      *engine.Engine
	Binds       Binds
	Evictions   Evictions
	Nominations Nominations
	Annotations Annotations
	Statuses    Statuses
	Metrics     *Metrics
}

// Options are the loop's settings.
type Options struct {
	// Period is the longest time between two looks; 0 means one second.
	Period time.Duration
	// Gap is the shortest time between the end of one run and the start of the next, so that a burst of events is decided
	// on together; 0 means 50 ms.
	Gap time.Duration
	// StuckAfter is how long after its grace a pod that refuses to go stops being counted as leaving; 0 means 2 minutes. It
	// counts for the store that New makes; one that is handed over has been told.
	StuckAfter time.Duration
	// Event records an event about an object that is no gang: a node, a queue, a BindRequest. It must not block. Nil records
	// none.
	Event func(about client.Object, kind, reason, message string)
	// Usage is where the past comes from; nil: shares do not look at it.
	Usage Usage
	// NodeUse says how busy nodes are; nil: nobody does. The loop never waits for it.
	NodeUse NodeUse
	// Engines is where others than the first engine come from; nil: there are no others.
	Engines Engines
	// Annotated records a normal event about a PodGroup, with annotations. It must not block. Nil records none.
	Annotated func(about client.Object, reason, message string, annotations map[string]string)
	// Later has something said once what is decided has been carried out. It must not block, and may call from another goroutine. Nil says it at once.
	Later func(say func())
	// Watch has somebody notice when the loop does not get on; nil nobody.
	Watch func(what string) Work
	// Records keeps the decisions that evict; nil keeps none.
	Records *Records
	// Known is told of the cluster as the loop knows it, its own decisions included: as each cycle begins, and while cycles are held
	// back. It must not block. Nil is not told.
	Known func(snap *cluster.Snapshot)
	// Lifted is told, after each cycle, which pods their queues let in. Nil: nobody is.
	Lifted func([]recorder.Lift)
	// Decided is told of each cycle that was not cut short: the snapshot and what was decided on it, which nobody writes to any
	// more. It must not block. Nil is not told.
	Decided func(snap *cluster.Snapshot, plans []engine.Plan)
}

// After a run the loop rests for restPart times as long as the run took, at least Options.Gap and at most longestRest.
const (
	restPart    = 4
	longestRest = 500 * time.Millisecond
)

// publishGap is the shortest time between two looks at the reasons of all gangs.
const publishGap = 200 * time.Millisecond

// cleanAgain is after how long a stale BindRequest that is still there is deleted again.
const cleanAgain = 10 * time.Second

// Backoff of a pod whose bind failed: it doubles from the first to the last value.
const (
	firstBackoff = time.Second
	lastBackoff  = time.Minute
)

// Loop is a scheduler. Create it with New.
type Loop struct {
	feed        Feed
	driver      *engine.Driver
	binds       Binds
	evictions   Evictions
	nominations Nominations
	annotations Annotations
	statuses    Statuses
	metrics     *Metrics
	o           Options

	store   *cluster.Store
	took    time.Duration  // by the last run
	trying  cluster.Key    // the gang that the run is busy with
	aside   int            // runs in a row that ended with a gang set aside
	failed  map[string]int // binds in a row that failed, by pod UID
	risks   map[riskOf]struct{}
	stale   map[string]cluster.Instant // since when gangs are stale as their objects have been told, by UID
	repeats monitor
}

// New returns a loop; Run starts it.
func New(p Parts, o Options) *Loop {
	if o.Period == 0 {
		o.Period = time.Second
	}
	if o.Gap == 0 {
		o.Gap = 50 * time.Millisecond
	}
	if o.Event == nil {
		o.Event = func(client.Object, string, string, string) {}
	}
	if o.Usage == nil {
		o.Usage = noUsage{}
	}
	if o.NodeUse == nil {
		o.NodeUse = unmeasured{}
	}
	if o.Engines == nil {
		o.Engines = oneEngine{}
	}
	if o.Watch == nil {
		o.Watch = func(string) Work { return unwatched{} }
	}
	if o.Decided == nil {
		o.Decided = func(*cluster.Snapshot, []engine.Plan) {}
	}
	if o.Known == nil {
		o.Known = func(*cluster.Snapshot) {}
	}
	if o.Annotated == nil {
		o.Annotated = func(client.Object, string, string, map[string]string) {}
	}
	if o.Later == nil {
		o.Later = func(say func()) { say() }
	}
	if p.Store == nil {
		p.Store = NewStore(o)
	}
	l := &Loop{
		feed: p.Feed, driver: engine.NewDriver(p.Engine, p.Store), binds: p.Binds, evictions: p.Evictions, nominations: p.Nominations, annotations: p.Annotations, statuses: p.Statuses,
		metrics: p.Metrics, o: o,
		store: p.Store, failed: map[string]int{}, stale: map[string]cluster.Instant{},
	}
	l.look(p.Engine)
	return l
}

// look has an engine say what it is busy with.
func (l *Loop) look(e *engine.Engine) {
	e.Trying = func(gang cluster.Key) { l.trying = gang }
	e.Around = func(stage engine.Stage) func() {
		began := time.Now()
		return func() {
			took := time.Since(began)
			l.metrics.stages.took(stage, took)
			l.metrics.volcano.took(stage, took)
		}
	}
}

// renew has the engine decide that is there now. It is called between cycles.
func (l *Loop) renew() {
	if e := l.o.Engines.Take(); e != nil {
		l.look(e)
		l.driver.Use(e)
	}
}

// Run schedules until ctx ends. It first waits for the feed to have the whole cluster, and for the past to be known or
// given up on.
func (l *Loop) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	for !l.feed.Synced() || !l.o.Usage.Settled() || !l.o.Engines.Settled() {
		select {
		case <-l.feed.Changed():
			l.feed.Drain(l.store)
		case <-l.o.Usage.Changed():
		case <-l.o.Engines.Changed():
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
	if err := l.restore(ctx); err != nil {
		return err
	}
	c := cycle{log: log, problems: map[string]string{}, cleaned: map[types.UID]time.Time{}}
	work := l.o.Watch("the scheduler's loop")
	defer work.End()
	for ctx.Err() == nil {
		work.Turn()
		l.feed.Drain(l.store)
		l.o.Usage.Drain(l.store)
		l.o.NodeUse.Drain(l.store)
		l.renew()
		l.clean(&c)
		wait := l.once(ctx, &c)
		work.Wait()
		l.sleep(ctx, log, wait)
	}
	return nil
}

// cycle is what one look leaves for the next.
type cycle struct {
	log       logr.Logger
	snap      *cluster.Snapshot
	trace     engine.Trace
	reportAt  time.Time // when reasons want to be looked at again; zero for not
	published time.Time
	problems  map[string]string
	full      map[string]bool // nodes on which more is used than there is, by name
	held      heldBack
	cleaned   map[types.UID]time.Time // BindRequests whose delete has been sent, and when
}

// once looks, decides if there is anything new, and returns how long nothing needs to happen.
func (l *Loop) once(ctx context.Context, c *cycle) time.Duration {
	now := time.Now()
	l.metrics.pulse.looks.Inc()
	due := l.driver.Due(cluster.InstantOf(now))
	held := l.holdBack(c, due, now)
	if held {
		l.o.Known(l.store.Snapshot(cluster.InstantOf(now)))
	}
	if due && !held {
		if !l.decide(ctx, c, now) {
			return 0
		}
		l.tellStale(&c.trace)
		l.tellRisks(&c.trace)
		c.reportAt = now
	}
	if !c.reportAt.IsZero() && !c.reportAt.After(now) && now.Sub(c.published) >= publishGap {
		c.published = now
		l.overcommitted(c)
		c.reportAt = sooner(l.statuses.Publish(c.snap, &c.trace), l.nominations.Publish(c.snap))
	}
	wait := l.o.Period
	within := func(d time.Duration) { wait = min(wait, max(d, 0)) }
	if t := l.driver.Wake(); t != cluster.Forever && !held {
		within(t.Sub(cluster.InstantOf(now)))
	}
	if !c.reportAt.IsZero() {
		within(max(c.reportAt.Sub(now), c.published.Add(publishGap).Sub(now)))
	}
	return wait
}

// decide has the driver decide, and hands on each plan as soon as it is there. A panic on the way is a broken invariant, which one
// tenant's objects may have brought about: see caught. It reports false then: the rest of the cluster is to be looked at again.
func (l *Loop) decide(ctx context.Context, c *cycle, now time.Time) (ok bool) {
	defer func() { ok = l.caught(c.log, recover()) }()
	l.trying = cluster.Key{}
	snap := l.driver.Begin(ctx, cluster.InstantOf(now))
	l.metrics.pulse.took(time.Since(now))
	l.o.Known(snap)
	l.o.Usage.Observe(snap)
	var plans []engine.Plan
	for p := l.driver.Ready(); p != nil; p = l.driver.Ready() {
		l.trying = cluster.Key{}
		plans = append(plans, *p)
		gangs := gangsOf(p, l.store, snap)
		l.metrics.plan(p, snap, gangs, time.Now())
		story(c.log.V(3), p, gangs)
		l.repeats.decided(p, gangs)
		l.binds.Submit(*p)
		l.evictions.Submit(*p)
	}
	res := l.driver.Advance()
	if !res.Trace.Truncated {
		l.o.Decided(snap, plans)
	}
	if l.o.Lifted != nil && len(res.Trace.Lifted) > 0 {
		l.o.Lifted(res.Trace.Lifted)
	}
	c.snap, c.trace = snap, res.Trace
	l.took = time.Since(now)
	l.metrics.run(snap, &res, l.took)
	return true
}

// sleep waits out the gap, then until something happens, wait is over or ctx ends.
func (l *Loop) sleep(ctx context.Context, log logr.Logger, wait time.Duration) {
	rest := max(l.o.Gap, min(restPart*l.took, longestRest)) // a run that takes long leaves others their time
	gap := time.NewTimer(rest)
	defer gap.Stop()
	for open := true; open; {
		select {
		case <-gap.C:
			open = false
		case <-l.binds.Failed():
			l.settle(log)
			wait = 0
		case <-l.evictions.Settled():
			l.evicted(log)
			wait = 0
		case <-ctx.Done():
			return
		}
	}
	timer := time.NewTimer(max(0, wait-rest))
	defer timer.Stop()
	select {
	case <-l.feed.Changed():
	case <-l.o.Usage.Changed():
	case <-l.o.NodeUse.Changed():
	case <-l.o.Engines.Changed():
	case <-l.binds.Room():
	case <-l.evictions.Room():
	case <-l.binds.Failed():
		l.settle(log)
	case <-l.evictions.Settled():
		l.evicted(log)
	case <-timer.C:
	case <-ctx.Done():
	}
}

// settle takes in bundles that could not be written: each is forgotten whole, and its pods wait a little.
func (l *Loop) settle(log logr.Logger) {
	for _, f := range l.binds.Failures() {
		l.metrics.failedBundles.Inc()
		if !errors.Is(f.Err, apply.ErrMoved) {
			log.Info("a decision could not be written and will be made anew", "gang", f.Bundle.Gang.String(), "bundle", f.Bundle.ID, "error", f.Err.Error())
		}
		f.Bundle.Forget(l.store, func(string) bool { return true }) // evictions have outcomes of their own
		told := errors.Is(f.Err, apply.ErrMoved)
		for i := range f.Bundle.Intents {
			in := &f.Bundle.Intents[i]
			if in.Verb != engine.Bind {
				continue
			}
			l.postpone(in.UID)
			if !told { // one pod speaks for all
				l.bindFailed(in.Namespace, in.Pod, types.UID(in.UID), "node "+in.Node+" was chosen, which could not be written; it will be chosen anew: "+f.Err.Error())
				told = true
			}
		}
	}
}

// postpone makes a pod whose bind failed wait, longer each time.
func (l *Loop) postpone(uid string) {
	l.failed[uid]++
	wait := firstBackoff << min(l.failed[uid]-1, 10)
	if !l.store.Postpone(uid, cluster.InstantOf(time.Now().Add(min(wait, lastBackoff)))) {
		delete(l.failed, uid)
	}
	if len(l.failed) > 10000 { // pods that are long gone; the rest start their backoff over
		clear(l.failed)
	}
}

// clean asks for the delete of the BindRequests that stand for nothing any more, and reports problems of objects once.
func (l *Loop) clean(c *cycle) {
	now := time.Now()
	for _, stale := range l.feed.StaleBindRequests() {
		asked, again := c.cleaned[stale.UID]
		if again && now.Sub(asked) < cleanAgain {
			continue // the delete is on its way
		}
		switch {
		case again:
		case stale.PodUID == "":
			l.forged(&stale)
		case stale.Reason == feed.Failed:
			// One that failed at once may never have been seen alive: then the decision is still taken for granted.
			l.store.Forget(string(stale.PodUID))
			l.postpone(string(stale.PodUID))
			l.bindFailed(stale.Namespace, stale.Pod, stale.PodUID, "the binder could not bind the pod to node "+stale.Node+"; a node will be chosen anew")
		}
		c.cleaned[stale.UID] = now
		if !l.binds.Remove(stale.Namespace, stale.Name, stale.UID) {
			c.cleaned[stale.UID] = time.Time{} // too much is queued: the next look asks again
		}
	}
	if len(c.cleaned) > 10000 {
		maps.DeleteFunc(c.cleaned, func(_ types.UID, asked time.Time) bool { return now.Sub(asked) >= cleanAgain })
	}
	l.problems(c)
}

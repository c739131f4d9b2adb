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
	"github.com/muster-scheduler/muster/internal/engine"
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

// Binds is where decisions go.
type Binds interface {
	Submit(ctx context.Context, p engine.Plan)
	Failed() <-chan struct{}
	Failures() []apply.Failure
	Remove(namespace, name string, uid types.UID) bool
}

// Reports is where reasons go.
type Reports interface {
	Restore(ctx context.Context) error
	Publish(snap *cluster.Snapshot, t *engine.Trace) time.Time
}

// Options are the loop's settings.
type Options struct {
	// Period is the longest time between two looks; 0 means one second.
	Period time.Duration
	// Gap is the shortest time between the end of one run and the start of the next, so that a burst of events is decided
	// on together; 0 means 50 ms.
	Gap time.Duration
	// StuckAfter is how long after its grace a pod that refuses to go stops being counted as leaving; 0 means 2 minutes.
	StuckAfter time.Duration
	// Event records an event about an object that is no gang: a node, a queue, a BindRequest. It must not block. Nil records
	// none.
	Event func(about client.Object, kind, reason, message string)
}

// assumeFor is how long a decision stands without the API server confirming it. Its failure is normally reported long
// before; this is the net below.
const assumeFor = 2 * time.Minute

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
	feed    Feed
	engine  *engine.Engine
	binds   Binds
	reports Reports
	metrics *Metrics
	o       Options

	store  *cluster.Store
	failed map[string]int // binds in a row that failed, by pod UID
}

// New returns a loop; Run starts it.
func New(f Feed, e *engine.Engine, b Binds, r Reports, m *Metrics, o Options) *Loop {
	if o.Period == 0 {
		o.Period = time.Second
	}
	if o.Gap == 0 {
		o.Gap = 50 * time.Millisecond
	}
	if o.StuckAfter == 0 {
		o.StuckAfter = 2 * time.Minute
	}
	if o.Event == nil {
		o.Event = func(client.Object, string, string, string) {}
	}
	return &Loop{
		feed: f, engine: e, binds: b, reports: r, metrics: m, o: o,
		store: cluster.NewStore(cluster.Options{StuckAfter: int64(o.StuckAfter)}), failed: map[string]int{},
	}
}

// Run schedules until ctx ends. It first waits for the feed to have the whole cluster.
func (l *Loop) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	for !l.feed.Synced() {
		select {
		case <-l.feed.Changed():
			l.feed.Drain(l.store)
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
	if err := l.reports.Restore(ctx); err != nil {
		return err
	}
	c := cycle{log: log, problems: map[string]string{}, cleaned: map[types.UID]time.Time{}}
	for ctx.Err() == nil {
		l.feed.Drain(l.store)
		l.clean(&c)
		wait := l.once(ctx, &c)
		l.sleep(ctx, log, wait)
	}
	return nil
}

// cycle is what one look leaves for the next.
type cycle struct {
	log        logr.Logger
	generation uint64 // that was decided on
	ran        bool
	snap       *cluster.Snapshot
	trace      engine.Trace
	reportAt   time.Time // when reasons want to be looked at again; zero for not
	published  time.Time
	problems   map[string]string
	full       map[string]bool         // nodes on which more is used than there is, by name
	cleaned    map[types.UID]time.Time // BindRequests whose delete has been sent, and when
}

// once looks, decides if there is anything new, and returns how long nothing needs to happen.
func (l *Loop) once(ctx context.Context, c *cycle) time.Duration {
	now := time.Now()
	due := c.ran && c.trace.WakeAt <= now.UnixNano() || l.store.NextTimer() <= now.UnixNano()
	if !c.ran || due || l.store.Generation() != c.generation {
		snap := l.store.Snapshot(now.UnixNano())
		c.generation = snap.Generation
		var handing time.Duration // that writers kept us waiting
		res := l.engine.Run(ctx, snap, func(p engine.Plan) {
			began := time.Now()
			l.assume(&p, now)
			l.metrics.plan(&p, snap, began)
			l.binds.Submit(ctx, p)
			handing += time.Since(began)
		})
		c.ran, c.snap, c.trace = true, snap, res.Trace
		l.metrics.run(snap, &res, time.Since(now)-handing)
		l.overcommitted(c)
		c.reportAt = now
	}
	if !c.reportAt.IsZero() && !c.reportAt.After(now) && now.Sub(c.published) >= publishGap {
		c.published = now
		c.reportAt = l.reports.Publish(c.snap, &c.trace)
	}
	wait := l.o.Period
	sooner := func(d time.Duration) { wait = min(wait, max(d, 0)) }
	if c.trace.WakeAt != cluster.Forever {
		sooner(time.Duration(c.trace.WakeAt - now.UnixNano()))
	}
	if t := l.store.NextTimer(); t != cluster.Forever {
		sooner(time.Duration(t - now.UnixNano()))
	}
	if !c.reportAt.IsZero() {
		sooner(max(c.reportAt.Sub(now), c.published.Add(publishGap).Sub(now)))
	}
	return wait
}

// assume lays the plan's decisions over the store until the API server shows them.
func (l *Loop) assume(p *engine.Plan, now time.Time) {
	until := now.Add(assumeFor).UnixNano()
	for i := range p.Bundles {
		for j := range p.Bundles[i].Intents {
			if in := &p.Bundles[i].Intents[j]; in.Verb == engine.Bind {
				l.store.Assume(in.UID, in.Node, until)
			}
		}
	}
}

// sleep waits out the gap, then until something happens, wait is over or ctx ends.
func (l *Loop) sleep(ctx context.Context, log logr.Logger, wait time.Duration) {
	gap := time.NewTimer(l.o.Gap)
	defer gap.Stop()
	for open := true; open; {
		select {
		case <-gap.C:
			open = false
		case <-l.binds.Failed():
			l.settle(log)
			wait = 0
		case <-ctx.Done():
			return
		}
	}
	timer := time.NewTimer(max(0, wait-l.o.Gap))
	defer timer.Stop()
	select {
	case <-l.feed.Changed():
	case <-l.binds.Failed():
		l.settle(log)
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
		for i := range f.Bundle.Intents {
			if in := &f.Bundle.Intents[i]; in.Verb == engine.Bind {
				l.store.Forget(in.UID)
				l.postpone(in.UID)
			}
		}
	}
}

// postpone makes a pod whose bind failed wait, longer each time.
func (l *Loop) postpone(uid string) {
	l.failed[uid]++
	wait := firstBackoff << min(l.failed[uid]-1, 10)
	if !l.store.Postpone(uid, time.Now().Add(min(wait, lastBackoff)).UnixNano()) {
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
			l.postpone(string(stale.PodUID))
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

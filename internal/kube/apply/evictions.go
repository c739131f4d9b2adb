package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/links"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// Mode is how pods are evicted.
type Mode string

// The modes.
const (
	// ByEviction asks the API server's eviction API, which keeps PodDisruptionBudgets and marks the pod as the target of a
	// disruption. A budget that the decision itself chose to violate is passed over.
	ByEviction Mode = "eviction"
	// ByDelete deletes pods, as KAI does: budgets do not count.
	ByDelete Mode = "delete"
)

// EvictionOptions tune the carrying out of evictions.
type EvictionOptions struct {
	// Mode is how; "" means ByEviction.
	Mode Mode
	// Mark has pods that are deleted marked as targets of a disruption before (--update-pod-eviction-condition). The
	// eviction API does so by itself.
	Mark bool
	// MaxGrace bounds the grace period of a pod that is evicted, in whole seconds: a pod says itself how long it may go on after
	// it was told to end, and might say a year. 0 leaves every pod its own.
	MaxGrace time.Duration
	// Workers is how many evictions are under way at once, Lanes how many of one bundle; 0 means 96 and 8. They are many, because a busy API server answers late. Who is
	// evicted beside an eviction that fails has gone for nothing: so a bundle begins with half its lanes, and one more comes with each eviction that went well. One of more
	// than 16 times its lanes has a sixteenth of its evictions under way, and half of all there are at most. Bundles begin in the order in which they came, once there are
	// workers for all their lanes: the first is soon done with, and what it is for starts.
	Workers, Lanes int
	// Fates is what becomes of bundles, shared with Binds; nil for one of its own.
	Fates *Fates
	// Latest is asked whether what is freed will still be room enough, at each look before a write; nil: nobody is.
	Latest Latest
	// Links are what the podgrouper of the process tells of pods; nil for nothing.
	Links *links.Links
	// Written, if set, is told of each pod that was told to go. It is called by many goroutines and must not block.
	Written func()
}

// Outcome is what became of a bundle that evicts.
type Outcome struct {
	Action string
	Bundle engine.Bundle
	// Evicted are the UIDs of the pods that are going, by our doing or anybody's.
	Evicted map[string]bool
	// Err is why the others have been spared; nil when there are none.
	Err error
}

// ErrBlocked is why an eviction was not carried out: a PodDisruptionBudget that the decision did not mean to violate.
var ErrBlocked = errors.New("a PodDisruptionBudget allows no eviction now")

// Evictions carries out the evictions of plans, bundle by bundle: a pod goes only while everything stands that it goes
// for. What that frees is the business of a later run.
type Evictions struct {
	kit      *write.Kit
	cache    client.Reader // preconditions
	o        EvictionOptions
	work     *Queue[*lane]
	room     chan struct{}
	mu       sync.Mutex
	outcomes []Outcome   // bounded by the bundles in flight and the time between two looks of the loop
	waiting  []*clearing // that may begin, in the order in which they came
	free     int         // workers that no bundle has, or may come to have
	settled  chan struct{}
	open     atomic.Int64
}

// clearing is a bundle in flight.
type clearing struct {
	action   string
	bundle   engine.Bundle
	decided  uint64       // Plan.Generation
	deadline time.Time    // when the decision does not stand any more
	victims  []int        // indices of the intents that evict
	lanes    atomic.Int32 // that are at it
	most     int          // lanes that it may come to have

	mu      sync.Mutex
	begun   int // lanes
	next    int // of victims
	looked  time.Time
	evicted map[string]bool
	torn    map[cluster.Key]bool // gangs that have lost a pod and cannot stay without it: the rest of them goes too
	err     error
}

// lane is what evicts one victim of a bundle after the other.
type lane struct {
	c  *clearing
	at *engine.Intent
}

// errLate is why an eviction is not carried out any more: the Store will soon not count on it.
var errLate = errors.New("it took too long")

// freshLook is for how long a look at the whole world of a bundle counts: less than news takes to come. In a bundle of a
// thousand pods for a thousand pods, every eviction would otherwise look at them all.
const freshLook = 10 * time.Millisecond

// backlog is how many bundles may be open before the next cycle. Evictions take longer to decide than to write, but one
// cycle may decide on all that a day brought; the loop goes on binding what is free meanwhile.
const backlog = 1024

// lastCall is how long before the Store stops counting on an eviction the eviction is given up.
const lastCall = 5 * time.Second

// NewEvictions returns a writer of evictions, which pool runs. A bundle that is half carried out when the pool ends has no outcome: the next
// process decides on what it finds.
func NewEvictions(pool *Pool, kit *write.Kit, cache client.Reader, o EvictionOptions) *Evictions {
	if o.Mode == "" {
		o.Mode = ByEviction
	}
	if o.Fates == nil {
		o.Fates = &Fates{}
	}
	if o.Written == nil {
		o.Written = func() {}
	}
	if o.Workers <= 0 {
		o.Workers = 96
	}
	if o.Lanes <= 0 {
		o.Lanes = 8
	}
	kind := evictWork
	kind.Workers = o.Workers
	e := &Evictions{kit: kit, cache: cache, o: o, room: make(chan struct{}, 1), settled: make(chan struct{}, 1), free: o.Workers}
	e.work = NewQueue(pool, kind, Job[*lane]{About: (*lane).about, Try: e.try, End: e.end})
	return e
}

// Submit queues the evicting bundles of a plan, and waits for nothing.
func (e *Evictions) Submit(p engine.Plan) {
	deadline := time.Now().Add(p.EvictionsStand() - lastCall)
	for i := range p.Bundles {
		c := &clearing{action: p.Action, bundle: p.Bundles[i], decided: p.Generation, deadline: deadline, evicted: map[string]bool{}, torn: map[cluster.Key]bool{}}
		for j := range c.bundle.Intents {
			if c.bundle.Intents[j].Verb == engine.Evict {
				c.victims = append(c.victims, j)
			}
		}
		if len(c.victims) == 0 {
			continue
		}
		e.open.Add(1)
		e.o.Fates.begin(c.bundle.ID)
		c.most = min(max(e.o.Lanes, len(c.victims)/16), max(e.o.Workers/2, 1), len(c.victims))
		start := sync.OnceFunc(func() { e.begin(c) })
		late := time.AfterFunc(time.Until(deadline), start)
		e.o.Fates.then(c.bundle.DependsOn, func() { late.Stop(); start() })
	}
}

// begin has bundles begin, one after the other, while there are workers for them; c, if it is not nil, is the last of them.
func (e *Evictions) begin(c *clearing) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c != nil {
		e.waiting = append(e.waiting, c)
	}
	for len(e.waiting) > 0 && e.waiting[0].most <= e.free {
		c := e.waiting[0]
		e.waiting[0] = nil
		e.waiting = e.waiting[1:]
		e.free -= c.most
		e.work.Put(0, c.widen(min(max(e.o.Lanes/2, 1), c.most))...)
	}
}

// widen gives a bundle up to n lanes more, of those that it may have, while there are victims for them.
func (c *clearing) widen(n int) (more []*lane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; n > 0 && c.begun < c.most; n-- {
		at := c.take()
		if at == nil {
			break
		}
		c.begun++
		c.lanes.Add(1)
		more = append(more, &lane{c, at})
	}
	return more
}

// Full says that as many bundles are open as may be, or more.
func (e *Evictions) Full() bool { return e.open.Load() >= backlog }

// Room is signalled when Full has come to an end.
func (e *Evictions) Room() <-chan struct{} { return e.room }

// Open is how many bundles have been submitted and have no outcome yet.
func (e *Evictions) Open() int64 { return e.open.Load() }

// Settled is signalled when there are outcomes to take.
func (e *Evictions) Settled() <-chan struct{} { return e.settled }

// Outcomes returns what became of bundles since the last call.
func (e *Evictions) Outcomes() []Outcome {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.outcomes
	e.outcomes = nil
	return out
}

// try evicts until the lane is at its end, or something is in the way that may pass.
func (e *Evictions) try(ctx context.Context, l *lane) error {
	ctx, stop := context.WithDeadline(ctx, l.c.deadline)
	defer stop()
	for l.at != nil {
		going := false
		err := e.work.guard.Catch(e.work.Name, named(l.at), func() (err error) {
			going, err = e.evict(ctx, l.c, l.at)
			return err
		})
		if err != nil && passes(err) {
			return err
		}
		l.next(going, err)
		e.work.items.Forget(l)
		if going {
			e.work.Put(0, l.c.widen(1)...)
		}
	}
	return nil
}

// end takes in that a lane is at its end, or that an eviction was given up; whoever has the last of a bundle tells what became of it.
func (e *Evictions) end(ctx context.Context, l *lane, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		l.next(false, err)
		e.work.Put(0, l)
		return
	}
	c := l.c
	last := c.lanes.Add(-1) == 0
	e.mu.Lock()
	e.free++
	if last {
		e.free += c.most - c.begun
		e.outcomes = append(e.outcomes, Outcome{Action: c.action, Bundle: c.bundle, Evicted: c.evicted, Err: c.err})
	}
	e.mu.Unlock()
	e.begin(nil)
	if !last {
		return
	}
	e.o.Fates.end(c.bundle.ID, c.err)
	if e.open.Add(-1) == backlog-1 {
		signal(e.room)
	}
	signal(e.settled)
}

// about is the victim, or, at the end of a lane, the bundle.
func (l *lane) about() any {
	if l.at == nil {
		return "bundle " + l.c.bundle.ID
	}
	return named(l.at)
}

// next notes what became of an eviction, and goes on to the next one.
func (l *lane) next(going bool, err error) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.c.done(l.at, going, err)
	l.at = l.c.take()
}

// take returns the next eviction, nil when there is none or the rest is spared; mu is held.
func (c *clearing) take() *engine.Intent {
	for c.next < len(c.victims) {
		in := &c.bundle.Intents[c.victims[c.next]]
		c.next++
		if c.err == nil || c.torn[in.Gang] {
			return in
		}
	}
	return nil
}

// done notes what became of an eviction; mu is held.
func (c *clearing) done(in *engine.Intent, going bool, err error) {
	if going {
		c.evicted[in.UID] = true
		if in.BelowMinimum {
			c.torn[in.Gang] = true
		}
	}
	if err != nil && c.err == nil {
		c.err = err
	}
}

// evict makes one pod go, if everything still stands, and says whether it goes.
func (e *Evictions) evict(ctx context.Context, c *clearing, in *engine.Intent) (bool, error) {
	if ctx.Err() != nil {
		return false, errLate
	}
	if err := e.stands(ctx, c, in); err != nil {
		return false, err
	}
	pod, err := e.victim(ctx, in)
	if pod == nil {
		return err == nil, err // it goes, or has gone, already
	}
	result, err := e.write(ctx, c, in, pod)
	switch {
	case err == nil && result == write.Blocked:
		err = fmt.Errorf("%s/%s: %w", in.Namespace, in.Pod, ErrBlocked)
	case err == nil:
		e.o.Written()
	}
	return err == nil, err // written; or gone, or another pod by now
}

// stands looks whether all is there that the bundle's pods have to go for: the gang, its pods, still waiting, and the nodes
// on which they, and those that are moved, are to run, with room enough. What is left of a gang that was torn has nothing to stay for.
func (e *Evictions) stands(ctx context.Context, c *clearing, in *engine.Intent) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.torn[in.Gang] {
		return nil
	}
	if c.err != nil {
		return c.err
	}
	if err := e.o.Fates.check(c.bundle.DependsOn); err != nil {
		return err
	}
	if time.Since(c.looked) < freshLook {
		return nil
	}
	b := &c.bundle
	switch pg, err := groupOf(ctx, e.cache, b.Gang, func(o client.Object) bool { return isGang(o, b) }); {
	case b.Gang.Remnant(): // what is released of one helps nobody, and there is no object of it
	case len(dialect.Groups(b.Gang)) == 0: // it is pods alone, of which is asked below
	case err != nil:
		return err
	case pg == nil && e.itself(ctx, b): // the same
	case pg == nil, pg.GetDeletionTimestamp() != nil:
		return fmt.Errorf("gang %s: %w: it is gone", b.Gang, ErrMoved)
	}
	nodes := map[string]bool{}
	for i := range b.Intents {
		in := &b.Intents[i]
		to := in.To
		if in.Verb == engine.Nominate {
			if _, err := stillWaits(ctx, e.cache, in); err != nil {
				return err
			}
			to = in.Node
		}
		if to == "" || nodes[to] {
			continue
		}
		nodes[to] = true
		if err := e.usable(ctx, to); err != nil {
			return err
		}
	}
	if err := e.o.Latest.checkPromises(c.decided, b); err != nil {
		return err
	}
	c.looked = time.Now()
	return nil
}

// isGang says whether a PodGroup is the gang of a bundle: the one that was decided on, or the one that a pod got which was that gang by itself. That
// gang's UID is that of what the PodGroup is made for.
func isGang(pg client.Object, b *engine.Bundle) bool {
	return string(pg.GetUID()) == b.UID || slices.ContainsFunc(pg.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return string(o.UID) == b.UID })
}

// itself says whether the gang of a bundle is a pod by itself, for which there is no PodGroup, and the pod is there.
func (e *Evictions) itself(ctx context.Context, b *engine.Bundle) bool {
	for i := range b.Intents {
		in := &b.Intents[i]
		if in.Verb != engine.Nominate {
			continue
		}
		p, err := stillWaits(ctx, e.cache, in)
		if err != nil {
			return false
		}
		p = e.o.Links.With(p)
		if b.Gang.Face == volcano.Face {
			own := volcano.Own(p)
			return own != nil && own.Name == b.Gang.Name && string(own.UID) == b.UID
		}
		own := kai.OwnGang(p)
		return own != nil && own.Name == b.Gang.Name && string(own.UID) == b.UID
	}
	return false
}

// usable looks whether a node takes pods.
func (e *Evictions) usable(ctx context.Context, name string) error {
	var n v1.Node
	switch err := e.cache.Get(ctx, types.NamespacedName{Name: name}, &n); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("node %s: %w: it is gone", name, ErrMoved)
	case err != nil:
		return fmt.Errorf("read node %s: %w", name, err)
	}
	if problem := core.NodeProblem(&n); problem != "" {
		return fmt.Errorf("node %s: %w: %s", name, ErrMoved, problem)
	}
	return nil
}

// victim returns the pod that is to go; nil when nothing needs to be done: it is gone, going, or has ended.
func (e *Evictions) victim(ctx context.Context, in *engine.Intent) (*v1.Pod, error) {
	var p v1.Pod
	err := e.cache.Get(ctx, types.NamespacedName{Namespace: in.Namespace, Name: in.Pod}, &p)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read pod %s/%s: %w", in.Namespace, in.Pod, err)
	case string(p.UID) != in.UID, p.DeletionTimestamp != nil, p.Status.Phase == v1.PodSucceeded, p.Status.Phase == v1.PodFailed:
		return nil, nil
	case p.Spec.NodeName != "" && p.Spec.NodeName != in.Node:
		return nil, fmt.Errorf("%s/%s: %w: it is on node %s", in.Namespace, in.Pod, ErrMoved, p.Spec.NodeName)
	}
	return &p, nil
}

// write evicts the pod in the configured way.
func (e *Evictions) write(ctx context.Context, c *clearing, in *engine.Intent, pod *v1.Pod) (write.Result, error) {
	mark, within := e.o.Mark, write.Within(pod, e.o.MaxGrace)
	if e.o.Mode == ByEviction {
		result, err := e.kit.Evict(ctx, named(in), within...)
		over := result == write.Blocked && in.Budget != "" || result == write.Unjudged // the decision has judged them all
		if err != nil || !over {
			return result, err
		}
		mark = true
	}
	if mark {
		if err := e.mark(ctx, c, in, pod); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "a pod is deleted without the condition that says why")
		}
	}
	return e.kit.Delete(ctx, named(in), within...)
}

// named is the pod that the intent is about, by name and UID alone.
func named(in *engine.Intent) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: in.Namespace, Name: in.Pod, UID: types.UID(in.UID)}}
}

// mark writes on the pod who disturbs it.
func (e *Evictions) mark(ctx context.Context, c *clearing, in *engine.Intent, pod *v1.Pod) error {
	for i := range pod.Status.Conditions {
		if k := &pod.Status.Conditions[i]; k.Type == v1.DisruptionTarget && k.Status == v1.ConditionTrue {
			return nil
		}
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": in.UID}, "status": map[string]any{"conditions": []map[string]any{{
		"type": v1.DisruptionTarget, "status": v1.ConditionTrue, "reason": keys.ReasonPreempted,
		"message": cut(why(c.action, &c.bundle), maxText), "lastTransitionTime": metav1.Now(),
	}}}})
	if err != nil {
		return fmt.Errorf("encode the condition of pod %s/%s: %w", in.Namespace, in.Pod, err)
	}
	_, err = e.kit.StrategicStatus(ctx, named(in), body)
	return err
}

// why is what a pod is told of why it goes: by which action, for whom, or, where it is for nobody, why.
func why(action string, b *engine.Bundle) string {
	if b.Eviction != nil && b.Eviction.Cause == engine.Shuffle && len(b.Eviction.Victims) > 0 {
		return action + ": " + b.Eviction.Victims[0].Rule
	}
	return fmt.Sprintf("%s for %s", action, b.Gang)
}

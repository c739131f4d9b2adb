package sim

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// Options say how a Cluster goes.
type Options struct {
	// Engine decides. Required.
	Engine *engine.Engine
	// Start is the first moment; the zero time means 2026-01-01.
	Start time.Time
	// Cycle is the least time from one decision to the next; 0 means one second.
	Cycle time.Duration
	// Grace is how long an evicted pod takes to go. Its room comes back then, and its owner makes a new one.
	Grace time.Duration
	// Arrivals and Outages return what comes next, in time order, and false when no more comes. Nil means nothing comes.
	Arrivals func() (Gang, bool)
	Outages  func() (Outage, bool)
	// Coarse is for worlds that decide more seldom than a scheduler does: a gang that starts is taken to have started when it could, once the last pod had left
	// where it runs and it was there, no earlier than the decision before this one. Its end is counted from then. Otherwise work would wait for decisions. (Work
	// that is shorter than the time between two still does: one follows the other at each. To decide as often as it ends costs forty times as much.)
	Coarse bool
	// Started is told of a gang that has got its minimum: the nodes of its pods so far, which gang left one of them last, the zero
	// key where none has, and since when it runs. Nil for nobody.
	Started func(gang cluster.Key, on []string, after cluster.Key, since cluster.Instant)
	// Check is called after each decision with what was decided on, what was decided, and why. Its error ends the cluster.
	Check func(snap *cluster.Snapshot, plans []engine.Plan, trace *engine.Trace) error
}

// Node is a node of a Cluster.
type Node struct {
	Name   string
	Labels map[string]string
	// Allocatable is what pods may take; see [Room].
	Allocatable []cluster.Quantity
}

// Gang is a gang of equal pods that are made again whenever they go before the gang's end.
type Gang struct {
	Name  string // unique
	Queue string
	// At is when it arrives, from the start.
	At time.Duration
	// Pods is how many it wants, Min how many it needs to work; 0 means all.
	Pods, Min int
	// Requests is what each pod takes; see [Room].
	Requests []cluster.Quantity
	// Share is what it takes of GPUs that it has not to itself, by portion.
	Share    cluster.Share
	Priority int32
	// Fixed gangs may not be preempted.
	Fixed bool
	// Duration is for how long it needs its minimum without a break; then it ends. 0 means for ever.
	Duration time.Duration
}

// Outage is a node that takes no pods, and loses those it has, for a time.
type Outage struct {
	Node    string
	At, For time.Duration
}

// Room is an amount of GPUs (in thousandths), milli-CPUs, bytes of memory and pods, as nodes have and pods take them.
func Room(gpu, cpu, memory, pods int64) []cluster.Quantity {
	return []cluster.Quantity{{Name: "gpu", Value: gpu}, {Name: "cpu", Value: cpu}, {Name: "memory", Value: memory}, {Name: "pods", Value: pods}}
}

// Cluster is a cluster that lives: gangs arrive, run and end, nodes fail and come back, evicted pods take their time to go and are
// made again. It stands still between calls. It is not safe for concurrent use.
type Cluster struct {
	// Store is what the scheduler sees. Callers may apply events about things that the Cluster does not make: queues, usage.
	// Restart puts another one in its place.
	Store *cluster.Store
	// Figures count what happened so far.
	Figures Figures

	o      Options
	start  cluster.Instant
	now    cluster.Instant
	agenda agenda
	serial uint64
	nodes  map[string]*nodeState
	gangs  map[cluster.Key]*gangState
	pods   map[string]*pod  // by UID; those that exist
	held   map[string]int64 // milli-GPU of running pods by leaf queue
	err    error            // of an arrival or outage that makes no sense

	decided, before cluster.Instant // when it was decided last, and the time before

	frozen bool // nothing comes, ends, fails or is repaired any more
	driver *engine.Driver
}

// NewCluster returns an empty cluster at its start.
func NewCluster(o Options) *Cluster {
	if o.Start.IsZero() {
		o.Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if o.Cycle == 0 {
		o.Cycle = time.Second
	}
	w := &Cluster{
		Store: cluster.NewStore(cluster.Options{}), o: o, start: cluster.InstantOf(o.Start), now: cluster.InstantOf(o.Start),
		nodes: map[string]*nodeState{}, gangs: map[cluster.Key]*gangState{}, pods: map[string]*pod{}, held: map[string]int64{},
		Figures: newFigures(),
	}
	w.driver = engine.NewDriver(o.Engine, w.Store)
	w.expect(w.nextArrival)
	w.expect(w.nextOutage)
	return w
}

// expect asks a source for what comes next and puts it on the agenda.
func (w *Cluster) expect(next func() (at time.Duration, happen func(), ok bool)) {
	at, happen, ok := next()
	if !ok {
		return
	}
	w.at(w.start.Add(at), func() {
		if w.frozen {
			return
		}
		happen()
		w.expect(next)
	})
}

func (w *Cluster) nextArrival() (time.Duration, func(), bool) {
	if w.o.Arrivals == nil {
		return 0, nil, false
	}
	g, ok := w.o.Arrivals()
	return g.At, func() { w.fail(w.Submit(g)) }, ok
}

func (w *Cluster) nextOutage() (time.Duration, func(), bool) {
	if w.o.Outages == nil {
		return 0, nil, false
	}
	out, ok := w.o.Outages()
	return out.At, func() { w.fail(w.outage(out)) }, ok
}

func (w *Cluster) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// Now is the moment at which the cluster stands.
func (w *Cluster) Now() cluster.Instant { return w.now }

// Elapsed is how long the cluster has lived.
func (w *Cluster) Elapsed() time.Duration { return w.now.Sub(w.start) }

// Held is what the running pods of a leaf queue take, in milli-GPU.
func (w *Cluster) Held(queue string) int64 { return w.held[queue] }

// Gangs is how many gangs there are that have not ended.
func (w *Cluster) Gangs() int { return len(w.gangs) }

// Next is when the next thing happens by itself; [cluster.Forever] for never.
func (w *Cluster) Next() cluster.Instant {
	if len(w.agenda) == 0 {
		return cluster.Forever
	}
	return w.agenda[0].at
}

// Advance lets everything happen that happens until then, and stands there. It never goes back. Its error
// is that of an arrival or outage that makes no sense.
func (w *Cluster) Advance(to cluster.Instant) error {
	for len(w.agenda) > 0 && !w.agenda[0].at.After(to) {
		h := heap.Pop(&w.agenda).(happening)
		w.now = cluster.Latest(w.now, h.at)
		h.do()
		if w.err != nil {
			return w.err
		}
	}
	w.now = cluster.Latest(w.now, to)
	return nil
}

// Due says whether a decision could differ from the last one: something happened, or a time has come that the scheduler waits for.
func (w *Cluster) Due() bool { return w.driver.Due(w.now) }

// Restart puts another scheduler in the place of this one, which knows what is in the store and remembers nothing else.
func (w *Cluster) Restart(s *cluster.Store) { w.Store, w.driver = s, engine.NewDriver(w.o.Engine, s) }

// Seen tells the cluster that the store's last change was looked at and needs no decision.
func (w *Cluster) Seen() { w.driver.Skip() }

// Decide runs one cycle of the scheduler on the cluster as it stands, and lets what was decided begin. It costs what the engine does.
func (w *Cluster) Decide(ctx context.Context) (engine.Result, error) {
	w.before, w.decided = cluster.Latest(w.start, w.decided), w.now
	snap, plans, result := w.driver.Cycle(ctx, w.now)
	w.Figures.Decisions++
	if w.o.Check != nil {
		if err := w.o.Check(snap, plans, &result.Trace); err != nil {
			return result, fmt.Errorf("after %s, cycle %d: %w", w.Elapsed(), w.Figures.Decisions, err)
		}
	}
	for i := range plans {
		if err := w.enact(snap, &plans[i]); err != nil {
			return result, fmt.Errorf("after %s, cycle %d, %s: %w", w.Elapsed(), w.Figures.Decisions, plans[i].Action, err)
		}
	}
	return result, nil
}

// Step goes to the next moment at which there is something to decide, at least a cycle from now, and decides. It returns false
// when nothing will ever happen again.
func (w *Cluster) Step(ctx context.Context) (bool, error) { return w.StepAfter(ctx, w.o.Cycle) }

// StepAfter is Step with another least time from the last decision, for worlds that may be looked at more coarsely later on.
func (w *Cluster) StepAfter(ctx context.Context, least time.Duration) (bool, error) {
	at := w.now.Add(least)
	if !w.Due() {
		next := cluster.Earliest(w.Next(), w.driver.Wake())
		if next == cluster.Forever {
			return false, nil
		}
		at = cluster.Latest(at, next)
	}
	if err := w.Advance(at); err != nil {
		return false, err
	}
	_, err := w.Decide(ctx)
	return err == nil, err
}

// enact lets the decisions of a plan begin: evicted pods are on their way out, bound ones run.
func (w *Cluster) enact(snap *cluster.Snapshot, p *engine.Plan) error {
	for i := range p.Bundles {
		b := &p.Bundles[i]
		var victims []*gangState // one entry for each pod
		for j := range b.Intents {
			in := &b.Intents[j]
			pod := w.pods[in.UID]
			if pod == nil {
				return fmt.Errorf("%s %s/%s: there is no pod of UID %s", in.Verb, in.Namespace, in.Pod, in.UID)
			}
			switch in.Verb {
			case engine.Bind:
				if pod.state.Phase != cluster.Pending {
					return fmt.Errorf("bind %s/%s: it is %s", in.Namespace, in.Pod, pod.state.Phase)
				}
				w.run(pod, in.Node, in.Groups)
			case engine.Nominate:
				w.Figures.Nominated++
			case engine.Evict:
				if pod.state.Phase != cluster.Running || pod.state.NodeName != in.Node {
					return fmt.Errorf("evict %s/%s from %s: it is %s on %q", in.Namespace, in.Pod, in.Node, pod.state.Phase, pod.state.NodeName)
				}
				w.Figures.evicted(snap, b, pod, in)
				w.evict(pod)
				victims = append(victims, pod.gang)
			}
		}
		for _, g := range victims {
			if g.whole {
				w.Figures.ShrunkPods++
			}
		}
	}
	return nil
}

// happening is something that happens by itself at a moment.
type happening struct {
	at  cluster.Instant
	seq uint64
	do  func()
}

// agenda is what will happen, by time, and in the order in which it was put down at one moment.
type agenda []happening

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at.Before(a[j].at) || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(happening)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	h := (*a)[last]
	(*a)[last] = happening{}
	*a = (*a)[:last]
	return h
}

func (w *Cluster) at(when cluster.Instant, do func()) {
	w.serial++
	heap.Push(&w.agenda, happening{at: when, seq: w.serial, do: do})
}

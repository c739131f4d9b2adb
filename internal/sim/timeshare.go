package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/fairshare"
	"github.com/muster-scheduler/muster/internal/profile"
)

// Series is who had what, and when.
type Series struct {
	// Step is how long a cycle is, Timed whether the input said so.
	Step  time.Duration
	Timed bool
	// GPUs is what the cluster has, in milli-GPU.
	GPUs int64
	// Queues are all queues, by name.
	Queues []Trail
	// Figures count what happened.
	Figures Figures
}

// Trail is one queue over time: an entry per cycle, milli-GPU but for Usage.
type Trail struct {
	Name string
	// Leaf says whether the queue has gangs of its own, and no queue below it.
	Leaf       bool
	Allocation []int64
	FairShare  []int64
	Usage      []int32 // what it used lately of the cluster, in millionths, as the division of the cycle saw it
}

// Cycles is how many cycles there are.
func (s *Series) Cycles() int {
	if len(s.Queues) == 0 {
		return 0
	}
	return len(s.Queues[0].Allocation)
}

// Timeshare plays a simulation: queues compete under the engine's built-in profile for nodes, cycle by cycle, while what they used
// lately moves their shares. registry is what the profile's names stand for. report, if not nil, is told every so often how many
// cycles are done. An aborted ctx is an error.
//
// Cycle k is at the time k · step. What happens by then (arrivals, ends) has happened; usage is what was sampled before it, one
// sample per cycle; the shares follow, and the engine decides. What is allocated then is the cycle's sample.
//
// The engine is asked only when its answer can be new: when something happened since it last decided, when the shares moved, or
// when a time has come that it waits for.
func Timeshare(ctx context.Context, c *Config, registry engine.Registry, report func(done, of int)) (*Series, error) {
	set, err := c.resolve()
	if err != nil {
		return nil, err
	}
	t, err := newTimeshare(c, set, registry)
	if err != nil {
		return nil, err
	}
	return t.play(ctx, report)
}

// play plays all cycles.
func (t *timeshareRun) play(ctx context.Context, report func(done, of int)) (*Series, error) {
	for k := range t.cycles {
		if k%256 == 0 {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("stopped after %d of %d cycles: %w", k, t.cycles, err)
			}
			if report != nil {
				report(k, t.cycles)
			}
		}
		if err := t.cycle(ctx, k); err != nil {
			return nil, err
		}
	}
	if report != nil {
		report(t.cycles, t.cycles)
	}
	t.out.Figures = t.cluster.Figures
	return t.out, nil
}

// timeshareRun is a simulation under way.
type timeshareRun struct {
	*settings
	cluster *Cluster
	shares  *engine.Driver // without actions: only divides
	out     *Series
	index   map[string]int // of out.Queues
	parent  []int          // index of the parent queue, -1 at the top
	used    []*Fading      // by queue
	whole   *Fading        // what there was to use
	seen    []int64        // fair shares at the last decision
	held    []int64
	always  bool // decide in every cycle, for the proof that it changes nothing
}

func newTimeshare(c *Config, set *settings, registry engine.Registry) (*timeshareRun, error) {
	p := profile.BuiltIn()
	for i, use := range p.Tiers[0] {
		if use.Name == "proportion" {
			p.Tiers[0][i].Arguments = policy.Arguments{"kValue": strconv.FormatFloat(c.kValue(), 'f', -1, 64)}
		}
	}
	decides, err := engine.New(p, registry)
	if err != nil {
		return nil, err
	}
	p.Actions = nil
	divides, err := engine.New(p, registry)
	if err != nil {
		return nil, err
	}
	t := &timeshareRun{settings: set, index: map[string]int{}, whole: NewFading(set.window, set.halfLife)}
	t.out = &Series{Step: set.step, Timed: c.Step != nil, GPUs: set.gpus}
	t.cluster = NewCluster(Options{Engine: decides, Cycle: set.step, Grace: set.grace, Arrivals: Arrivals(c.Seed, set.streams)})
	t.shares = engine.NewDriver(divides, t.cluster.Store)
	if err := t.nodes(c); err != nil {
		return nil, err
	}
	t.queues(c)
	return t, nil
}

func (t *timeshareRun) nodes(c *Config) error {
	n := 0
	for i := range c.Nodes {
		for range or(c.Nodes[i].Count, 1) {
			room := Room(int64(c.Nodes[i].GPUs)*1000, 1_000_000, 1<<40, 10_000)
			if err := t.cluster.AddNode(Node{Name: fmt.Sprintf("node-%05d", n), Allocatable: room}); err != nil {
				return err
			}
			n++
		}
	}
	return nil
}

func (t *timeshareRun) queues(c *Config) {
	byName := map[string]*ConfigQueue{}
	for i := range c.Queues {
		byName[c.Queues[i].Name] = &c.Queues[i]
	}
	names := slices.Sorted(maps.Keys(byName))
	for i, name := range names {
		t.index[name] = i
	}
	t.out.Queues = make([]Trail, len(names))
	t.parent = make([]int, len(names))
	t.used, t.seen, t.held = make([]*Fading, len(names)), make([]int64, len(names)), make([]int64, len(names))
	for i := range c.Queues { // in the order of the file, which is the order of their age
		q := &c.Queues[i]
		at := t.index[q.Name]
		t.out.Queues[at] = Trail{
			Name: q.Name, Leaf: true, Allocation: make([]int64, 0, t.cycles), FairShare: make([]int64, 0, t.cycles), Usage: make([]int32, 0, t.cycles),
		}
		t.parent[at] = -1
		t.used[at] = NewFading(t.window, t.halfLife)
		gpus := func(v float64) []cluster.Quantity {
			amount := cluster.Unlimited
			if v >= 0 {
				amount = int64(v*1000 + 0.5)
			}
			return []cluster.Quantity{{Name: "gpu", Value: amount}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}}
		}
		t.cluster.Store.Apply(cluster.QueueState{
			Name: q.Name, UID: q.Name, Parent: q.Parent, Priority: int32(or(q.Priority, defaultPriority)), Created: t.cluster.Now().Add(-time.Duration(len(c.Queues)-i) * time.Second),
			Quota: gpus(q.DeservedGPUs), Limit: gpus(or(q.LimitGPUs, -1)),
			Weight: []cluster.Quantity{{Name: "gpu", Value: fairshare.Fixed(or(q.Weight, defaultWeight)) / 1000}},
		})
	}
	for i, name := range names {
		if up := byName[name].Parent; up != "" {
			t.parent[i] = t.index[up]
			t.out.Queues[t.index[up]].Leaf = false
		}
	}
}

// cycle plays cycle k.
func (t *timeshareRun) cycle(ctx context.Context, k int) error {
	w := t.cluster
	if err := w.Advance(w.start.Add(time.Duration(k) * t.step)); err != nil {
		return err
	}
	due := w.Due()
	t.publishUsage()
	generation := w.Store.Generation()
	_, _, divided := t.shares.Cycle(ctx, w.Now())
	due = due || w.Store.Generation() != generation
	for i := range divided.Trace.Queues {
		q := &divided.Trace.Queues[i]
		at := t.index[q.Name]
		share := q.FairShare.At(cluster.GPU)
		t.out.Queues[at].FairShare = append(t.out.Queues[at].FairShare, share)
		if t.seen[at] != share {
			t.seen[at], due = share, true
		}
	}
	if due || t.always {
		if _, err := w.Decide(ctx); err != nil {
			return err
		}
	} else {
		w.Seen()
	}
	t.sample()
	return nil
}

// publishUsage tells the scheduler what the queues used lately.
func (t *timeshareRun) publishUsage() {
	usage := make(map[string][]cluster.Quantity, len(t.used))
	for i := range t.used {
		part := t.used[i].Part(t.whole)
		t.out.Queues[i].Usage = append(t.out.Queues[i].Usage, int32(part))
		usage[t.out.Queues[i].Name] = []cluster.Quantity{{Name: "gpu", Value: part}}
	}
	t.cluster.Store.Apply(cluster.UsageState{Queues: usage})
}

// sample notes what is allocated, of every queue with all below it.
func (t *timeshareRun) sample() {
	clear(t.held)
	for i := range t.out.Queues {
		held := t.cluster.Held(t.out.Queues[i].Name)
		for at := i; at >= 0 && held > 0; at = t.parent[at] {
			t.held[at] += held
		}
	}
	for i, held := range t.held {
		t.out.Queues[i].Allocation = append(t.out.Queues[i].Allocation, held)
		t.used[i].Add(held)
	}
	t.whole.Add(t.gpus)
}

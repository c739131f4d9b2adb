package climb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/climb/genome"
)

// Options are how to climb.
type Options struct {
	// Seed is what all that is drawn depends on. What is kept depends on times too, so that two climbs of a seed begin alike and part soon.
	Seed uint64
	// For is how long to climb, shrinking included. A measurement that is under way then is waited for.
	For time.Duration
	// Limits bound the clusters.
	Limits genome.Limits
	// Cycles, Runs and Limit are those of an Ask.
	Cycles, Runs int
	Limit        time.Duration
	// Patience is how many changes in a row may bring nothing before a climb ends and the next one begins.
	Patience int
	// Stages are those of which a climb may be to make one slow, and not the whole cycle: each climb draws one of them, or the cycle.
	Stages []string
	// Above is what a climb must have come to for its end to be shrunk and kept.
	Above time.Duration
	// Enough, if above 0, is what ends a climb: who comes to it has found a cliff, and need not know how deep it is.
	Enough time.Duration
	// Start are genomes to begin the first climbs with.
	Start []genome.Genome
	// Measure measures.
	Measure func(context.Context, Ask) (Measured, error)
	// Now is the clock. Say is told, in a line, how it goes.
	Now func() time.Time
	Say func(line string)
}

// DefaultLimits are a thousand nodes, and ten thousand queues and gangs.
func DefaultLimits() genome.Limits {
	return genome.Limits{Nodes: 1000, Queues: 10_000, Gangs: 10_000, Pods: 12_000}
}

// Found is the end of a climb: a case.
type Found struct {
	// Name says what is slow: the stage, and what is not plain.
	Name     string        `json:"name"`
	Measured Measured      `json:"measured"`
	Genome   genome.Genome `json:"genome"`
	// Before is the size before it was shrunk, Size after, in objects about.
	Before int `json:"sizeBefore"`
	Size   int `json:"size"`
}

// Report is what came of climbing.
type Report struct {
	Seed   uint64        `json:"seed"`
	Took   time.Duration `json:"tookNanoseconds"`
	Climbs int           `json:"climbs"`
	Tried  int           `json:"tried"` // clusters measured
	// Slowest is the slowest cycle of all, whether or not its cluster was kept.
	Slowest Measured      `json:"slowest"`
	Slow    genome.Genome `json:"slowestGenome"`
	// Found are the slowest of each kind, the slowest first.
	Found []Found `json:"found"`
	// Failed are genomes that ended in an error, each with it; at most mostFailed.
	Failed []Failure `json:"failed,omitempty"`
}

// Failure is a genome that could not be measured.
type Failure struct {
	Error  string        `json:"error"`
	Genome genome.Genome `json:"genome"`
}

const mostFailed = 10

// climber is a climb, or several of them, under way.
type climber struct {
	Options
	r     *rand.Rand
	stage string // of the climb that is under way
	until time.Time
	began time.Time
	out   Report
}

// errOver says that the time is over.
var errOver = errors.New("the time is over")

// Climb climbs until the time is over or ctx ends. Its error means that nothing could be measured.
func Climb(ctx context.Context, o Options) (Report, error) {
	c := &climber{Options: o, r: rand.New(rand.NewPCG(o.Seed, 17)), began: o.Now()}
	c.until = c.began.Add(o.For)
	c.out.Seed = o.Seed
	err := func() error {
		for {
			if err := c.climb(ctx); err != nil {
				return err
			}
		}
	}()
	c.out.Took = c.Now().Sub(c.began)
	if !errors.Is(err, errOver) && ctx.Err() == nil {
		return c.out, err
	}
	return c.out, nil
}

// place is where a climb is.
type place struct {
	genome   genome.Genome
	measured Measured
	stage    string // the one that the climb is to make slow, "" for the whole cycle
}

// slow is what the climb is to make large.
func (a *place) slow() time.Duration {
	if a.stage == "" || a.measured.Cut {
		return a.measured.CPU
	}
	return a.measured.Stages[a.stage]
}

// better says whether a is slower than b by more than chance, or as slow and smaller.
func (a *place) better(b *place) bool {
	const chance = 50 // a fiftieth
	by := b.slow() / chance
	return a.slow() > b.slow()+by || a.slow() > b.slow()-by/2 && a.genome.Size() < b.genome.Size()
}

// measure measures one cluster, several times if it is above floor.
func (c *climber) measure(ctx context.Context, g genome.Genome, floor time.Duration) (place, error) {
	if err := ctx.Err(); err != nil {
		return place{}, err
	}
	if !c.Now().Before(c.until) {
		return place{}, errOver
	}
	m, err := c.Measure(ctx, Ask{Genome: g, Cycles: c.Cycles, Runs: c.Runs, Floor: floor, Limit: c.Limit})
	if err != nil {
		return place{}, err
	}
	c.out.Tried++
	if m.Error != "" {
		if len(c.out.Failed) < mostFailed {
			c.out.Failed = append(c.out.Failed, Failure{m.Error, g})
		}
		first, _, _ := strings.Cut(m.Error, "\n")
		c.say("failed: %s", first)
		m.CPU = 0
	}
	if m.CPU > c.out.Slowest.CPU {
		c.out.Slowest, c.out.Slow = m, g
	}
	return place{g, m, c.stage}, nil
}

func (c *climber) say(format string, args ...any) {
	c.Say(fmt.Sprintf("%6.0f s  %5d  ", c.Now().Sub(c.began).Seconds(), c.out.Tried) + fmt.Sprintf(format, args...))
}

// begin finds where to begin: the slowest of a few random clusters, or one of those that were given.
func (c *climber) begin(ctx context.Context, p genome.Palette) (place, error) {
	if k := c.out.Climbs - 1; k < len(c.Start) {
		g := c.Start[k]
		g.Fit(c.Limits)
		return c.measure(ctx, g, 0)
	}
	const few = 12
	var best place
	for range few {
		x, err := c.measure(ctx, genome.Random(c.r, p, c.Limits), best.slow())
		if err != nil {
			return best, err
		}
		if best.genome.Nodes == nil || x.slow() > best.slow() {
			best = x
		}
	}
	return best, nil
}

// climb is one climb, to where nothing gets slower any more, and what is kept of it.
func (c *climber) climb(ctx context.Context) error {
	c.out.Climbs++
	palette := genome.NewPalette(c.r)
	c.stage = append([]string{""}, c.Stages...)[c.r.IntN(1+len(c.Stages))]
	at, err := c.begin(ctx, palette)
	if err != nil {
		return err
	}
	c.say("climb %d for %s begins at %s, %s", c.out.Climbs, cmp.Or(c.stage, "the cycle"), brief(at.slow()), at.measured.Stage)
	for idle := 0; idle < c.Patience && !c.enough(&at); idle++ {
		other := &at.genome
		if len(c.out.Found) > 0 {
			other = &c.out.Found[c.r.IntN(len(c.out.Found))].Genome
		}
		x, err := c.measure(ctx, genome.Mutate(c.r, &at.genome, other, palette, c.Limits), at.slow())
		if err != nil {
			c.keep(at, at) // as it is: there is no time to shrink it
			return err
		}
		if !x.better(&at) {
			continue
		}
		if x.slow() > at.slow()+at.slow()/20 {
			c.say("%s, %s: %s", brief(x.slow()), x.measured.Stage, shape(&x.genome))
			idle = -1
		}
		at = x
	}
	small, err := c.shrink(ctx, at)
	c.keep(at, small)
	return err
}

// enough says whether nothing slower is looked for: nothing is slower than what is cut short.
func (c *climber) enough(at *place) bool {
	return at.measured.Cut || c.Enough > 0 && at.slow() >= c.Enough
}

// shrink makes a cluster smaller as long as it stays as slow, or nearly. Where the time is over, it is as small as it has become.
func (c *climber) shrink(ctx context.Context, top place) (place, error) {
	const nearly = 85 // percent
	at := top
	if top.slow() < c.Above {
		return at, nil
	}
	floor := top.slow() * nearly / 100
	if c.Enough > 0 {
		floor = min(floor, c.Enough)
	}
	for again := true; again; {
		again = false
		for _, g := range at.genome.Smaller() {
			if g.Size() >= at.genome.Size() {
				continue
			}
			x, err := c.measure(ctx, g, floor)
			if err != nil {
				return at, err
			}
			if x.slow() >= floor {
				at, again = x, true
				break
			}
		}
	}
	return at, nil
}

// keep keeps the end of a climb, if it is the slowest of its kind and slow enough.
func (c *climber) keep(top, small place) {
	m := small.measured
	if small.slow() < c.Above || m.CPU == 0 {
		return
	}
	f := Found{Name: name(&small), Measured: m, Genome: small.genome, Before: top.genome.Size(), Size: small.genome.Size()}
	c.say("found %s: %s (at most %s), size %d from %d", f.Name, brief(m.CPU), brief(top.measured.CPU), f.Size, f.Before)
	if i := slices.IndexFunc(c.out.Found, func(o Found) bool { return o.Name == f.Name }); i >= 0 {
		if c.out.Found[i].Measured.CPU >= m.CPU {
			return
		}
		c.out.Found = slices.Delete(c.out.Found, i, i+1)
	}
	c.out.Found = append(c.out.Found, f)
	slices.SortStableFunc(c.out.Found, func(a, b Found) int { return int(b.Measured.CPU - a.Measured.CPU) })
}

// dull are features that say nothing of the kind of a cluster: amounts.
var dull = []string{
	"gangs.running", "gangs.queue", "gangs.milliCPU", "gangs.age", "gangs.mixed", "nodes.cpus", "nodes.gpus", "queues.priority", "queues.weight",
	"gangs.priority", "gangs.min", "nodes.own", "nodes.tainted", "nodes.rack", "nodes.block", "nodes.zones", "queues.limit", "gangs.of=all", "gangs.perNode",
}

// name names the kind of a slow cluster.
func name(p *place) string {
	words := []string{cmp.Or(p.stage, p.measured.Stage)}
	queues := 0
	for i := range p.genome.Queues {
		queues += p.genome.Queues[i].Count
	}
	if queues >= 100 {
		words = append(words, "queues")
	}
	for _, f := range p.genome.Features() {
		if slices.Contains(dull, f) {
			continue
		}
		_, f, _ = strings.Cut(f, ".")
		word := strings.ReplaceAll(f, "=", "-")
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return strings.Join(words, "_")
}

// shape is a genome in a few words.
func shape(g *genome.Genome) string {
	nodes, queues, gangs, pods := 0, 0, 0, 0
	for i := range g.Nodes {
		nodes += g.Nodes[i].Count
	}
	for i := range g.Queues {
		queues += g.Queues[i].Count
	}
	for i := range g.Gangs {
		gangs += g.Gangs[i].Count
		pods += g.Gangs[i].Count * g.Gangs[i].Pods
	}
	return fmt.Sprintf("%d nodes, %d queues, %d gangs, %d pods, %d genes", nodes, queues, gangs, pods, len(g.Features()))
}

// brief is a time in three digits.
func brief(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

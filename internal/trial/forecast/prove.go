package forecast

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/see"
	"github.com/muster-scheduler/muster/internal/sim"
)

// Proof says how much is proven.
type Proof struct {
	// Forecasts is how many are scored for each load; the first Young of them, while records are young, are left out for all methods.
	Forecasts, Young int
	// Warm is how long the cluster lives before the first forecast.
	Warm time.Duration
	// Every is the least time from one forecast to the next.
	Every time.Duration
	Draws see.Draws
}

// Bars are a method's bands against what came.
type Bars struct {
	N, Held, Low, High int     // how many; how many held; how many starts were earlier, later
	Score              float64 // mean interval score, seconds
}

// Scored is one forecast of one gang, the first of its wait, with what three methods said. Waits are from the forecast on.
type Scored struct {
	At, Wait           time.Duration
	Drawn, Shown       see.Band
	Past, Bounds       see.Band
	HasPast, HasBounds bool

	pastDrawn see.Band
	queue     string
	pastOf    int // how many were told at that moment in the queue
	size      int
}

// Outcome is how a load went.
type Outcome struct {
	Load    *Load
	Scored  []Scored // of which all methods had a band
	Lived   time.Duration
	Calls   int           // of see.Forecast
	Spent   time.Duration // in them, if a clock was given
	NoBand  int           // first forecasts that said "not within the horizon"
	Missing int           // first forecasts to which a rival had nothing to say
	Figures sim.Figures
	// LaterHeld of LaterOf later forecasts, of gangs that had been told before and waited on, held: of the last hundred of each team.
	LaterHeld, LaterOf int
	// Shown and Drawn are see's bands, as told and before they were scaled.
	Shown, Drawn, Past, QBETS Bars
}

// alpha is the part of waits that may be outside a band.
const alpha = 0.2

// add scores a band: Gneiting and Raftery's interval score ("Strictly proper scoring rules, prediction, and estimation", 2007),
// (u − l) + 2/α (l − y) [y < l] + 2/α (y − u) [y > u]. All is cut at the horizon: behind it no method says anything.
func (b *Bars) add(band see.Band, wait, horizon time.Duration) {
	y, l, u := min(wait, horizon).Seconds(), min(band.Low, horizon).Seconds(), min(band.High, horizon).Seconds()
	b.N++
	score := u - l
	switch {
	case y < l:
		b.Low++
		score += 2 / alpha * (l - y)
	case y > u:
		b.High++
		score += 2 / alpha * (y - u)
	default:
		b.Held++
	}
	b.Score += (score - b.Score) / float64(b.N)
}

// Coverage is the part of the bands that held.
func (b *Bars) Coverage() float64 { return float64(b.Held) / float64(max(b.N, 1)) }

// Run lets a cluster live under a load until enough forecasts are scored, or ctx ends; then what is scored by then counts. clock, if not nil, tells what forecasts cost.
func (p Proof) Run(ctx context.Context, load *Load, clock func() time.Duration) (*Outcome, error) {
	// Who is evicted works anew, and asks for more than the load says: so nobody is moved, and nobody is reclaimed in his first two days.
	prof := profile.BuiltIn()
	prof.Settings.ConsolidationVictims = 0
	e, err := engine.New(prof, builtin.Registry())
	if err != nil {
		return nil, err
	}
	out := &Outcome{Load: load}
	works := map[cluster.Key]see.Work{}
	since := map[cluster.Key]cluster.Instant{} // of those that wait
	sizes, queue := map[cluster.Key]int{}, map[cluster.Key]string{}
	pending := map[cluster.Key]*Scored{}
	past, bounds := newPastWaits(), newQBETS()
	var w *sim.Cluster
	o := sim.Options{Engine: e, Cycle: 10 * time.Second}
	o.Arrivals = func() (sim.Gang, bool) {
		j, ok := load.next()
		key := sim.Key(j.Name)
		works[key], queue[key] = j.work, j.Queue
		gpu := j.Share.Charge(0)
		for _, q := range j.Requests {
			if q.Name == "gpu" {
				gpu += q.Value
			}
		}
		sizes[key] = bits.Len64(uint64((gpu*int64(j.Pods) - 1) / cluster.Whole))
		return j.Gang, ok
	}
	o.Started = func(g cluster.Key, _ []string, _ cluster.Key, _ cluster.Instant) {
		from, waited := since[g]
		delete(since, g)
		if !waited || w.Now().Sub(from) <= o.Cycle {
			return
		}
		took := w.Now().Sub(from)
		if s := pending[g]; s != nil {
			delete(pending, g)
			s.Wait = w.Elapsed() - s.At
			past.record(s.queue).Take(s.pastDrawn, s.Past, s.Wait, s.pastOf)
			out.Scored = append(out.Scored, *s)
		}
		past.started(queue[g], sizes[g], took)
		bounds.started(queue[g], sizes[g], took)
	}
	o.Check = func(snap *cluster.Snapshot, plans []engine.Plan, _ *engine.Trace) error {
		for g := range snap.PendingGangs() {
			if _, known := since[g.Key]; !known {
				since[g.Key] = cluster.Latest(g.Created, g.LastEviction)
			}
		}
		return nil
	}
	w = sim.NewCluster(o)
	for i := range nodes {
		if err := w.AddNode(sim.Node{Name: fmt.Sprintf("node-%d", i), Allocatable: sim.Room(nodeGPUs*cluster.Whole, 256_000, 1<<40, 250)}); err != nil {
			return nil, err
		}
	}
	for name, quota := range queues() { // order: each on its own
		any := cluster.Quantity{Value: cluster.Unlimited}
		cpu, memory := any, any
		cpu.Name, memory.Name = "cpu", "memory"
		w.Store.Apply(cluster.QueueState{
			Name: name, UID: name, Priority: 100, Created: w.Now(), Quota: []cluster.Quantity{{Name: "gpu", Value: quota * cluster.Whole}, cpu, memory},
			ReclaimMinRuntime: cluster.Maybe[time.Duration]{Set: true, Value: 48 * time.Hour},
			Weight:            []cluster.Quantity{{Name: "gpu", Value: 1000}},
		})
	}
	start := w.Now()
	h := &see.History{}
	next := start.Add(p.Warm)
	for len(out.Scored) < p.Forecasts && ctx.Err() == nil {
		more, err := w.Step(ctx)
		if err != nil {
			return out, err
		}
		if !more || ctx.Err() != nil {
			break
		}
		im := w.Store.Snapshot(w.Now()).Image()
		c := &see.Cycle{Cluster: "proof", Case: &replay.Case{Profile: prof, Image: im}, Registry: builtin.Registry(), Works: works}
		fresh := false
		for g := range since { // order: any is enough
			fresh = fresh || pending[g] == nil && since[g].Before(w.Now())
		}
		if w.Now().Before(next) || !fresh {
			if err := h.Learn(c); err != nil {
				return out, err
			}
			continue
		}
		next = w.Now().Add(p.Every)
		d := p.Draws
		d.Seed += uint64(out.Calls)
		began := time.Duration(0)
		if clock != nil {
			began = clock()
		}
		look, err := see.Forecast(ctx, c, h, d)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return out, err
		}
		if clock != nil {
			out.Spent += clock() - began
		}
		out.Calls++
		first := map[string]int{} // how many gangs of each queue are told for the first time
		for i := range look.Gangs {
			if pending[look.Gangs[i].Gang] == nil {
				first[look.Gangs[i].Queue]++
			}
		}
		for i := range look.Gangs {
			p.note(out, &look.Gangs[i], w, pending, since, past, bounds, sizes, first[look.Gangs[i].Queue])
		}
	}
	out.Lived, out.Figures = w.Elapsed(), w.Figures
	for key, r := range h.Records { // order: a sum
		if key.Later {
			out.LaterHeld, out.LaterOf = out.LaterHeld+r.Held, out.LaterOf+r.Of
		}
	}
	horizon := cmp.Or(p.Draws.Horizon, 24*time.Hour)
	for i := min(p.Young, len(out.Scored)); i < len(out.Scored); i++ {
		s := &out.Scored[i]
		out.Shown.add(s.Shown, s.Wait, horizon)
		out.Drawn.add(s.Drawn, s.Wait, horizon)
		out.Past.add(s.Past, s.Wait, horizon)
		out.QBETS.add(s.Bounds, s.Wait, horizon)
	}
	return out, nil
}

// note keeps a first forecast, with what the rivals say at that moment.
func (p Proof) note(out *Outcome, g *see.GangOutlook, w *sim.Cluster, pending map[cluster.Key]*Scored, since map[cluster.Key]cluster.Instant, past *pastWaits, bounds *qbets, sizes map[cluster.Key]int, first int) {
	if pending[g.Gang] != nil {
		return
	}
	if g.Word != see.Between {
		out.NoBand++
		return
	}
	horizon := cmp.Or(p.Draws.Horizon, 24*time.Hour)
	wait := func(t time.Time) time.Duration {
		if t.IsZero() {
			return horizon
		}
		return cluster.InstantOf(t).Sub(w.Now())
	}
	s := &Scored{At: w.Elapsed(), queue: g.Queue, size: sizes[g.Gang], pastOf: first, Drawn: g.Drawn, Shown: see.Band{Low: wait(g.P10), Middle: wait(g.P50), High: wait(g.P90)}}
	age := w.Now().Sub(since[g.Gang])
	s.pastDrawn, s.Past, s.HasPast = past.tell(s.queue, s.size, age)
	s.Bounds, s.HasBounds = bounds.tell(s.queue, s.size, age)
	if !s.HasPast || !s.HasBounds {
		out.Missing++
		return
	}
	pending[g.Gang] = s
}

// Median is the median of numbers.
func Median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	if len(xs) == 0 {
		return 0
	}
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}

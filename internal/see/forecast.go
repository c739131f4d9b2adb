package see

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/sim"
)

// Draws say how a forecast is made. The zero value is 32 draws of a day.
type Draws struct {
	// N is how many futures are played, 1 to 1000; 0 for 32.
	N int
	// Seed decides what is random: one seed, cycle and history give one Outlook.
	Seed uint64
	// Horizon is how far they go, a minute to 31 days; 0 for 24 h.
	Horizon time.Duration
	// Cycle is the least time from one decision of a future to the next, a second to an hour; 0 for a minute. Starts are as coarse as that, and later on as a
	// sixtieth of the wait; the cost falls with it.
	Cycle time.Duration
	// Past is how much of the past arrivals are drawn from, at most what a History keeps; 0 for 7 days.
	Past time.Duration
	// Grace is how long evicted pods take to go; 0 for at once.
	Grace time.Duration
}

// resolve fills in what is left out.
func (d Draws) resolve() (Draws, error) {
	d.N, d.Horizon, d.Cycle, d.Past = cmp.Or(d.N, 32), cmp.Or(d.Horizon, 24*time.Hour), cmp.Or(d.Cycle, time.Minute), cmp.Or(d.Past, keepArrivals)
	refuse := func(field string, got any, rule string) (Draws, error) {
		return d, &Refusal{Object: "draws", Field: field, Rule: fmt.Sprintf("is %v; it must be %s", got, rule)}
	}
	switch {
	case d.N < 1 || d.N > 1000:
		return refuse("n", d.N, "between 1 and 1000")
	case d.Horizon < time.Minute || d.Horizon > 31*24*time.Hour:
		return refuse("horizon", d.Horizon, "between a minute and 31 days")
	case d.Cycle < time.Second || d.Cycle > time.Hour:
		return refuse("cycle", d.Cycle, "between a second and an hour")
	case d.Past < time.Minute || d.Past > keepArrivals:
		return refuse("past", d.Past, "between a minute and 7 days")
	case d.Grace < 0 || d.Grace > time.Hour:
		return refuse("grace", d.Grace, "between 0 and an hour")
	}
	return d, nil
}

// Forecast says when each gang that waits starts. It plays futures of the cycle: each draws for every gang how long it runs, and what work comes, and
// lets the engine decide as it will. A draw gives every gang's start; all draws together give the bands.
//
// The history learns from the cycle first ([History.Learn]), and keeps what is told, to score it when the gangs start. A nil history is an
// empty one. A gang of which nothing can be said is told so; what cannot be forecast at all is a [Refusal]. An aborted ctx, and an engine that
// panics on what it is given, are errors. The cost is that of N times some hundred decisions (for a day, by the minute: 250); draws end when all gangs
// that wait have started.
func Forecast(ctx context.Context, c *Cycle, h *History, d Draws) (out *Outlook, err error) {
	d, err = d.resolve()
	if err != nil {
		return nil, err
	}
	if h == nil {
		h = &History{}
	}
	if err := h.Learn(c); err != nil {
		return nil, err
	}
	defer func() {
		if what := recover(); what != nil {
			out, err = nil, fmt.Errorf("the engine panics on a future of this cycle: %v\n%s", what, debug.Stack())
		}
	}()
	e, err := engine.New(c.Case.Profile, c.Registry)
	if err != nil {
		return nil, fmt.Errorf("forecast: %w", err)
	}
	f := &forecaster{cycle: c, history: h, draws: d, engine: e, now: c.Case.Image.Now, index: map[cluster.Key]int{}, gangs: map[cluster.Key]*prospect{}, told: map[RecordKey]int{}}
	f.prepare()
	out = &Outlook{APIVersion: APIVersion, Kind: "Outlook", Cluster: c.Cluster, At: f.now.Time().UTC(), Draws: d.N, Seed: d.Seed, Horizon: d.Horizon, Past: f.past, Unknown: f.unknown, Notes: f.notes}
	starts := make([][]float64, len(f.waiting))           // seconds from now, by gang and draw
	causes := make([]map[cluster.Key]int, len(f.waiting)) // whose end starts it, in how many draws
	for i := range starts {
		starts[i], causes[i] = make([]float64, d.N), map[cluster.Key]int{}
	}
	if len(f.waiting) > 0 {
		for k := range d.N {
			if err := f.play(ctx, k, starts, causes); err != nil {
				return nil, fmt.Errorf("forecast, draw %d of %d: %w", k+1, d.N, err)
			}
		}
	}
	for _, p := range f.waiting {
		f.told[f.recordKey(p)]++
	}
	for i, p := range f.waiting {
		out.Gangs = append(out.Gangs, f.conclude(p, starts[i], causes[i]))
	}
	slices.SortFunc(out.Gangs, func(a, b GangOutlook) int { return compareKeys(a.Gang, b.Gang) })
	return out, nil
}

// forecaster is one call of Forecast.
type forecaster struct {
	cycle   *Cycle
	history *History
	draws   Draws
	engine  *engine.Engine
	now     cluster.Instant

	runtimes *runtimes
	gangs    map[cluster.Key]*prospect
	waiting  []*prospect
	index    map[cluster.Key]int // in waiting
	past     time.Duration
	arrivals map[string][]coming // by queue
	queues   []string            // of arrivals, sorted
	unknown  int
	groups   uint64            // of runtimes that were drawn from
	told     map[RecordKey]int // how many are told by each record
	notes    []Note
}

// coming is a gang that came, as one of its kind may come again.
type coming struct {
	*Arrival
	runtime runtime
}

// prospect is a gang of the cycle, and how long it may run.
type prospect struct {
	*member
	runtime runtime
	age     time.Duration
	strata  []float64 // a number in (0, 1) for each draw
}

func (f *forecaster) note(code NoteCode, object, text string, args ...any) {
	f.notes = append(f.notes, Note{Code: code, Object: object, Text: fmt.Sprintf(text, args...)})
}

// prepare reads what all draws have in common.
func (f *forecaster) prepare() {
	members := f.cycle.members()
	f.runtimes = learn(f.history, f.now, members)
	source := newRandom(f.draws.Seed, 1<<32)
	for _, m := range members {
		p := &prospect{member: m, runtime: f.runtimes.of(m.asker(), m.work), strata: source.strata(f.draws.N)}
		f.gangs[m.state.Key] = p
		switch {
		case m.over:
		case m.whole:
			p.age = age(m, f.now)
			if m.started.After(f.now) {
				f.note(StartAhead, m.state.Key.String(), "it started at %s, ahead of the cycle; it is taken to start now", m.started.Time().UTC().Format(time.RFC3339))
			}
			if m.work.Deadline > 0 && p.age > m.work.Deadline {
				f.note(DeadlinePast, m.state.Key.String(), "it has run for %s, beyond its deadline of %s; it is taken to end now", p.age.Round(time.Second), m.work.Deadline)
			}
			if p.runtime.How == RuntimeUnknown {
				f.unknown++
			}
		case m.waits:
			f.index[m.state.Key] = len(f.waiting)
			f.waiting = append(f.waiting, p)
		}
	}
	f.judge()
	from := cluster.Latest(f.history.Began, f.now.Add(-f.draws.Past))
	f.arrivals = map[string][]coming{}
	for i := range f.history.Arrivals {
		a := &f.history.Arrivals[i]
		if !a.At.Before(from) && !a.At.After(f.now) {
			f.arrivals[a.Queue] = append(f.arrivals[a.Queue], coming{a, f.runtimes.of(asker{a.Queue, a.Shape.size(), a.Shape.ask()}, a.Work)})
		}
	}
	for q := range f.arrivals { // order: sorted below
		f.queues = append(f.queues, q)
	}
	slices.Sort(f.queues)
	switch f.past = f.now.Sub(from); {
	case f.past < briefest:
		f.note(NoArrivals, "", "what comes has been watched for %s, less than %s: the draws have nothing come", f.past.Round(time.Second), briefest)
		f.past = 0
	case len(f.queues) == 0:
		f.note(NoArrivals, "", "no gang has come while it was watched: the draws have none come")
		f.past = 0
	}
}

// judge notes what the history lacks.
func (f *forecaster) judge() {
	ended := 0
	for i := range f.history.Runs {
		if f.history.Runs[i].Ended {
			ended++
		}
	}
	switch cut := len(f.history.Runs) - ended; {
	case ended == 0 && cut > 0:
		f.note(OnlyCensored, "", "%d runs were cut short and none has ended by itself: nothing is learned from them", cut)
	case ended == 0:
		f.note(NoRuns, "", "no run has ended yet: only what owners declare is known")
	case ended < enough:
		f.note(FewRuns, "", "%d runs have ended, and nothing is learned from fewer than %d", ended, enough)
	}
	if f.unknown > 0 {
		f.note(UnknownRuntimes, "", "nobody knows how long %d of the running gangs run: the draws have them run on", f.unknown)
	}
	if f.history.SetBack > 0 {
		f.note(ClockSetBack, "", "the clock was set back by %s in all; the history went back with it", f.history.SetBack)
	}
}

// strata returns n numbers in (0, 1), one in each n-th part, in random order: draws that share them out differ less from seed to seed.
func (r *random) strata(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = (float64(i) + r.unit()) / float64(n)
	}
	for i := n - 1; i > 0; i-- {
		j := r.below(int64(i + 1))
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// finer is into how many parts a wait is told apart: who waits for ten hours is not told minutes, and most of a day need not be decided by them.
const finer = 60

// toCome begins the names of gangs that a draw has come.
const toCome = "yet-to-come-"

// play plays the k-th future.
func (f *forecaster) play(ctx context.Context, k int, starts [][]float64, causes []map[cluster.Key]int) error {
	for i := range starts {
		starts[i][k] = math.Inf(1)
	}
	left := len(starts)
	end := f.now.Add(f.draws.Horizon)
	var w *sim.Cluster
	o := sim.Options{Engine: f.engine, Cycle: f.draws.Cycle, Grace: f.draws.Grace, Arrivals: f.come(newRandom(f.draws.Seed, uint64(k)), k)}
	o.Coarse = true
	o.Started = func(gang cluster.Key, _ []string, after cluster.Key, since cluster.Instant) {
		i, ok := f.index[gang]
		if !ok || !math.IsInf(starts[i][k], 1) || w.Now().After(end) {
			return
		}
		starts[i][k] = max(0, since.Sub(f.now).Seconds())
		left--
		switch {
		case after == cluster.Key{}:
		case strings.HasPrefix(after.Name, toCome) && f.gangs[after] == nil:
			causes[i][cluster.Key{Name: toCome}]++
		default:
			causes[i][after]++
		}
	}
	w = sim.NewClusterFrom(o, &f.cycle.Case.Image, func(g *cluster.GangState) time.Duration {
		p := f.gangs[g.Key]
		return p.runtime.draw(p.age, f.alike(&p.runtime, k, p.strata[k]))
	})
	for left > 0 && w.Now().Before(end) {
		more, err := w.StepAfter(ctx, max(f.draws.Cycle, w.Elapsed()/finer))
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !more {
			break
		}
	}
	return nil
}

// common is the part of the variance of runtimes, on the scale of a normal distribution, that the runs of one group in one draw have in common. Work that is sent
// together is much alike, and what is not known of a group is unknown of all its gangs at once: were each drawn for itself, a queue of a hundred would seem to move
// by the mean.
const common = 0.3

// alike is u as the k-th draw has it for a runtime: with what the draw has all runs of its group have in common. It is uniform in (0, 1) as u is.
func (f *forecaster) alike(r *runtime, k int, u float64) float64 {
	if r.curve == nil {
		return u
	}
	if r.curve.draws == nil {
		f.groups++
		r.curve.draws = newRandom(f.draws.Seed, 1<<33+f.groups).strata(f.draws.N)
	}
	normal := func(u float64) float64 { return math.Sqrt2 * math.Erfinv(2*u-1) }
	x := math.Sqrt(common)*normal(r.curve.draws[k]) + math.Sqrt(1-common)*normal(u)
	return min(max(math.Erfc(-x/math.Sqrt2)/2, 1e-12), 1-1e-12)
}

// briefest is the shortest past from which arrivals are drawn: what came within minutes, repeated for a day, is a flood.
const briefest = time.Hour

// block is how long a piece of the past is that is repeated as it was.
const block = 2 * time.Hour

// come draws what comes: by queue, one piece of the past after another (a moving block bootstrap: Künsch, "The jackknife and the bootstrap for
// general stationary observations", 1989), so that what came together comes together, and shapes come as often as they did. Of three days and
// more, a piece is from about the same time of another day.
func (f *forecaster) come(r *random, k int) func() (sim.Gang, bool) {
	var out []sim.Gang
	length := min(block, f.past)
	if length <= 0 {
		return nil
	}
	const day = 24 * time.Hour
	for _, q := range f.queues {
		list := f.arrivals[q]
		for at := time.Duration(0); at < f.draws.Horizon; at += length {
			start := f.now.Add(-f.past).Add(time.Duration(r.below(int64(f.past-length) + 1)))
			if days := int64(f.past / day); days >= 3 {
				start = f.now.Add(at%day - time.Duration(1+r.below(days))*day + time.Duration(r.below(2*int64(time.Hour))) - time.Hour)
				start = cluster.Earliest(cluster.Latest(start, f.now.Add(-f.past)), f.now.Add(-length))
			}
			i, _ := slices.BinarySearchFunc(list, start, func(a coming, t cluster.Instant) int { return a.At.Compare(t) })
			for ; i < len(list) && list[i].At.Before(start.Add(length)); i++ {
				a := &list[i]
				out = append(out, sim.Gang{
					Queue: q, At: list[i].At.Add(at).Sub(start), Pods: a.Shape.Pods, Min: a.Shape.Min, Requests: a.Shape.Requests, Share: a.Shape.Share,
					Priority: a.Shape.Priority, Fixed: a.Shape.Fixed, Duration: a.runtime.draw(0, f.alike(&a.runtime, k, r.unit())),
				})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b sim.Gang) int { return cmp.Compare(a.At, b.At) })
	next := 0
	return func() (sim.Gang, bool) {
		if next == len(out) {
			return sim.Gang{}, false
		}
		g := out[next]
		next++
		g.Name = fmt.Sprintf("%s%d", toCome, next)
		return g, true
	}
}

// recordKey is the record by which a gang is told.
func (f *forecaster) recordKey(p *prospect) RecordKey {
	return RecordKey{p.state.Queue, len(f.history.Gangs[p.state.Key].Told) > 0}
}

// conclude makes an outlook of a gang's starts, and has the history keep it.
func (f *forecaster) conclude(p *prospect, waits []float64, causes map[cluster.Key]int) GangOutlook {
	known, by := f.history.Gangs[p.state.Key], f.recordKey(p)
	record := f.history.record(by)
	g := GangOutlook{Gang: p.state.Key, UID: p.state.UID, Queue: p.state.Queue, Runtime: p.runtime.Source, Word: NotWithinHorizon, Held: record.Held, Of: record.Of}
	slices.Sort(waits)
	never := 0
	for _, x := range waits {
		if math.IsInf(x, 1) {
			never++
		}
	}
	g.Never = float64(never) / float64(len(waits))
	middle, high := quantile(waits, 0.5), quantile(waits, 0.9)
	if math.IsInf(middle, 1) {
		if f.unknown > 0 {
			g.Word = Unknown
		}
		return g
	}
	wait := func(x float64) time.Duration { return min(time.Duration(x*float64(time.Second)), f.draws.Horizon) }
	g.Word = Between
	g.Drawn = Band{Low: wait(quantile(waits, 0.1)), Middle: wait(middle), High: f.draws.Horizon}
	if !math.IsInf(high, 1) {
		g.Drawn.High = wait(high)
	}
	shown := record.Scale(g.Drawn)
	at := func(d time.Duration) time.Time { return f.now.Add(d).Time().UTC() }
	if g.P50 = at(g.Drawn.Middle); shown.Low <= f.draws.Horizon {
		g.P10 = at(shown.Low)
	}
	if shown.High <= f.draws.Horizon && !math.IsInf(high, 1) {
		g.P90 = at(shown.High)
	} else {
		shown.High = math.MaxInt64
	}
	known.tell(Told{At: f.now, Drawn: g.Drawn, Shown: shown, Of: f.told[by]})
	ends := slices.SortedFunc(maps.Keys(causes), func(a, b cluster.Key) int { return cmp.Or(cmp.Compare(causes[b], causes[a]), compareKeys(a, b)) })
	if len(ends) > 0 {
		if part := float64(causes[ends[0]]) / float64(len(waits)-never); part >= 0.25 {
			g.Decides, g.Part = ends[0].Name+" ends", part
			if ends[0].Name == toCome {
				g.Decides = "work that has yet to come ends"
			} else {
				g.Awaits = &ends[0]
			}
		}
	}
	return g
}

package ui

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/cycles"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/journal"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/see"
)

const (
	// fresh is how old a look may be that a question is answered from while there is a newer cycle; see patience.
	fresh = time.Second
	// aging is how old its look may be until a question has the next one made beside its answer, so that those after it find it done.
	aging = fresh / 2
	// lookFor is how long it may take to decide on a cycle again.
	lookFor = time.Minute
	// rest is how many times as long as a look took passes before the next one that nobody has asked for: a tenth of one processor.
	rest = 9
	// shardsEvery is the time between two looks at which shards there are, and quietAfter how long no news may come before answers say so.
	shardsEvery, quietAfter = 10 * time.Second, 5 * time.Second
	// maxShards bounds how many schedulers are followed.
	maxShards = 64
)

// ErrNoCycle says that no cycle of a shard's scheduler has come; the log says why.
var ErrNoCycle = errors.New("no cycle of the scheduler is known")

// ErrUndecided says that a scheduler's cycle cannot be decided on again, as when it is of a version that knows more; the log says why.
var ErrUndecided = errors.New("the scheduler's cycle cannot be decided on again here: is the scheduler of another version?")

// Following has the latest cycle of the scheduler of each shard, decided again. Make one with its first fields set.
type Following struct {
	// Shards lists the partition values of the shards that there are, "" for the one without; it is asked every ten seconds.
	Shards func(context.Context) ([]string, error)
	// Find says where the scheduler of a shard serves its cycles; it is asked before each connection.
	Find func(ctx context.Context, shard string) (cycles.Place, error)
	// Token is the bearer token to show there.
	Token func() (string, error)
	// Registry returns what profiles' names stand for, with or without the scheduler's --schedule-csi-storage.
	Registry func(storageCapacity bool) engine.Registry
	// Works, if set, says what gangs' owners say of them. What it returns is not changed.
	Works func(context.Context) (map[cluster.Key]see.Work, error)
	// Log is told of cycles that are not decided as the scheduler did.
	Log logr.Logger
	// Metrics count; nil for none.
	Metrics *Metrics
	// Journal keeps what schedulers decide; nil for nobody.
	Journal *journal.Journal
	// ForecastEvery is the time between two forecasts of each shard; 0 for none. The first one is made then.
	ForecastEvery time.Duration

	mu     sync.Mutex
	shards map[string]*shard
}

// Metrics are what a Following counts.
type Metrics struct{ cycles *prometheus.CounterVec }

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "muster", Subsystem: "ui", Name: "cycles_total",
		Help: "Cycles of schedulers that were decided on again, by what came of it: same, other plans than the scheduler's, or failed.",
	}, []string{"outcome"})}
	for _, outcome := range []string{"same", "other", "failed"} {
		m.cycles.WithLabelValues(outcome)
	}
	if err := r.Register(m.cycles); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

func (m *Metrics) count(outcome string) {
	if m != nil {
		m.cycles.WithLabelValues(outcome).Inc()
	}
}

// shard is the scheduler of one.
type shard struct {
	name   string
	client *cycles.Client
	news   chan struct{} // a cycle has come
	came   atomic.Uint64 // how many have
	asked  chan struct{} // somebody asks, of a cycle that is about to be too old
	stop   func()
	said   string // of why cycles do not come

	looking chan struct{} // holds a token while somebody looks
	mu      sync.Mutex
	cycle   *see.Cycle
	of      *replay.Case // what it was made of
	err     error        // of the look
	looked  time.Time
	took    time.Duration // the look

	seer *seer // nil: nothing is forecast

	gauges gauges
}

// Outlook is the latest forecast of a shard's starts; nil for none yet.
func (f *Following) Outlook(name string) *see.Outlook {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.shards[name]; s != nil && s.seer != nil {
		return s.seer.outlook.Load()
	}
	return nil
}

// Names lists the shards that are followed, sorted.
func (f *Following) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.shards))
}

// Run follows until ctx ends, and all that it has begun has ended then.
func (f *Following) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		names, err := f.Shards(ctx)
		if err != nil && ctx.Err() == nil {
			f.Log.Info("which shards there are is not known", "error", err.Error())
		}
		if err == nil {
			f.adjust(ctx, names, &all)
		}
		f.complain()
		again := time.NewTimer(shardsEvery)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil
		}
	}
}

// adjust follows the shards of these names, and no others.
func (f *Following) adjust(ctx context.Context, names []string, all *sync.WaitGroup) {
	if len(names) > maxShards {
		f.Log.Info("there are more shards than are followed", "shards", len(names), "followed", maxShards)
		names = names[:maxShards]
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shards == nil {
		f.shards = map[string]*shard{}
	}
	for name, s := range f.shards { // order: each on its own
		if !slices.Contains(names, name) {
			s.stop()
			delete(f.shards, name)
		}
	}
	for _, name := range names {
		if f.shards[name] != nil {
			continue
		}
		life, stop := context.WithCancel(ctx)
		s := &shard{name: name, news: make(chan struct{}, 1), asked: make(chan struct{}, 1), stop: stop, looking: make(chan struct{}, 1)}
		s.client = &cycles.Client{
			Find:  func(ctx context.Context) (cycles.Place, error) { return f.Find(ctx, name) },
			Token: f.Token,
			Changed: func(kind replay.EntryKind) {
				if kind == replay.Keyframe || kind == replay.Change {
					s.came.Add(1)
					select {
					case s.news <- struct{}{}:
					default:
					}
				}
			},
		}
		if f.ForecastEvery > 0 {
			s.seer = newSeer(name, f.Journal, time.Now, f.Log)
			s.seer.tell = s.client.Tell
			all.Go(func() {
				tick := time.NewTicker(f.ForecastEvery)
				defer tick.Stop()
				s.seer.run(life, tick.C)
			})
		}
		if f.Journal != nil {
			k := &journal.Keeper{Shard: name, Journal: f.Journal, Log: f.Log, Decide: func(ctx context.Context, c *replay.Case, id string) (cycle *see.Cycle, err error) {
				decided := make(chan struct{})
				go func() { // on a thread that does not yield: people wait for the same look
					defer close(decided)
					cycle, err = f.again(ctx, s, c, id)
				}()
				<-decided
				return cycle, err
			}}
			s.client.Entry = k.Offer
			all.Go(func() { // nobody waits for what is written down
				runtime.LockOSThread() // it ends with this goroutine: nobody inherits its rank
				yields()
				k.Run(life)
			})
		} else {
			all.Go(func() { f.keepUp(life, s) })
		}
		f.shards[name] = s
		all.Go(func() { f.beside(life, s) })
		all.Go(func() { _ = s.client.Run(life) }) // it ends with its context alone
	}
}

// complain logs why cycles do not come, once for each reason.
func (f *Following) complain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.shards { // order: each on its own
		said := ""
		if _, err := s.client.Heard(); err != nil {
			said = err.Error()
		}
		if said != "" && said != s.said {
			f.Log.Info("the cycles of a scheduler do not come", "shard", s.name, "error", said)
		}
		s.said = said
	}
}

// keepUp looks at cycles nobody asks about, in a tenth of the time: so that one which is decided otherwise is noticed, and a question finds most of the work done.
func (f *Following) keepUp(ctx context.Context, s *shard) {
	for {
		select {
		case <-s.news:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		_, _ = f.look(ctx, s, fresh) // it is kept, and told to who asks
		pause := time.NewTimer(max(fresh, rest*time.Since(began)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// beside looks at cycles before those who ask have to wait for it.
func (f *Following) beside(ctx context.Context, s *shard) {
	for {
		select {
		case <-s.asked:
			_, _ = f.look(ctx, s, aging) // it is kept, and told to who asks
		case <-ctx.Done():
			return
		}
	}
}

// Look returns the latest cycle of a shard, decided again, or one that was looked at a second ago at most, or twice as long ago as that took; and what is to be known of it besides ("" for
// nothing). The first question of a cycle costs a run of the engine, for which others wait. The error wraps ErrNoCycle, or says why the cycle cannot be decided on.
func (f *Following) Look(ctx context.Context, name string) (c *see.Cycle, note string, err error) {
	f.mu.Lock()
	s := f.shards[name]
	f.mu.Unlock()
	if s == nil {
		return nil, "", &see.Refusal{Field: "shard", Rule: fmt.Sprintf("%q is no shard's partition value", name), Missing: true}
	}
	s.mu.Lock()
	c, looked, took := s.cycle, s.looked, s.took
	s.mu.Unlock()
	since := time.Since(looked)
	soon, late := patience(took)
	if c == nil || since >= late {
		if c, err = f.look(ctx, s, fresh); err != nil {
			return nil, "", err
		}
	} else if since >= soon {
		select {
		case s.asked <- struct{}{}:
		default:
		}
	}
	if heard, _ := s.client.Heard(); time.Since(heard) > quietAfter {
		note = "no news comes from the scheduler since " + heard.UTC().Format(time.RFC3339)
	}
	return c, note, nil
}

// patience is how old a look may be until the next one is made beside an answer, and until answers wait for it, by how long the last one took. Where a look takes seconds, to have those who ask wait for each would tell them no more than that the
// cluster is large: they get what is there, and the next is ready before that is twice as old as a look takes.
func patience(took time.Duration) (soon, late time.Duration) {
	return max(aging, took/2), max(fresh, 2*took)
}

// look looks at the latest cycle, unless that was done so recently.
func (f *Following) look(ctx context.Context, s *shard, recently time.Duration) (*see.Cycle, error) {
	select {
	case s.looking <- struct{}{}:
		defer func() { <-s.looking }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a look at the cycle: %w", ctx.Err())
	}
	s.mu.Lock()
	held, err, looked, of := s.cycle, s.err, s.looked, s.of
	s.mu.Unlock()
	if (held != nil || err != nil) && time.Since(looked) < recently {
		return held, err
	}
	now, _, id, _, _ := s.client.Latest() // that the line is broken is told elsewhere
	switch {
	case now == nil && held != nil: // a gap, or another leader, whose first cycle is yet to come
		return held, nil
	case now == nil:
		return nil, ErrNoCycle
	case of != nil && of.Image.Now == now.Image.Now && (held != nil || err != nil):
		s.mu.Lock()
		s.looked = time.Now()
		s.mu.Unlock()
		return held, err
	}
	return f.decide(ctx, s, now, id, time.Now())
}

// again decides on a cycle for the journal, unless that was done for who asked. One cycle of a shard at a time is decided on: each takes as much memory as the cluster.
func (f *Following) again(ctx context.Context, s *shard, now *replay.Case, id string) (*see.Cycle, error) {
	select {
	case s.looking <- struct{}{}:
		defer func() { <-s.looking }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a look at the cycle: %w", ctx.Err())
	}
	s.mu.Lock()
	held, err, of := s.cycle, s.err, s.of
	s.mu.Unlock()
	if of != nil && of.Image.Now == now.Image.Now && (held != nil || err != nil) {
		return held, err
	}
	latest := time.Now()
	if s.client.At() != now.Image.Now {
		latest = time.Time{} // there is a later one
	}
	return f.decide(ctx, s, now, id, latest)
}

// decide decides on a cycle of a shard again, which was the latest one at that moment (zero: that is not known). What came of it is what questions are answered from, until there is a later one.
func (f *Following) decide(ctx context.Context, s *shard, now *replay.Case, id string, latest time.Time) (*see.Cycle, error) {
	began := time.Now()
	c := &see.Cycle{Cluster: id, Case: now, Registry: f.Registry(now.StorageCapacity)}
	var err error
	if f.Works != nil {
		if c.Works, err = f.Works(ctx); err != nil {
			f.Log.Info("what owners say of their gangs is not known", "error", err.Error())
		}
	}
	// Others wait for the same look: it does not end because the one who began it has gone.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookFor)
	defer cancel()
	_, err = c.Look(within)
	switch {
	case err != nil:
		f.Metrics.count("failed")
		f.Log.Error(err, "a cycle cannot be decided on again", "shard", s.name, "version", now.Version)
		c, err = nil, fmt.Errorf("%w: %w", ErrUndecided, err)
	case c.Own():
		f.Metrics.count("same")
	default:
		f.Metrics.count("other")
		f.Log.Info("a cycle is decided otherwise than by the scheduler", "shard", s.name, "version", now.Version, "at", now.Image.Now.Time())
	}
	if c != nil && s.seer != nil {
		s.seer.learn(c)
	}
	if c != nil {
		if run, err := c.Look(within); err == nil { // it has been looked at
			s.gauges.take(run, time.Now())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = time.Since(began)
	if s.of == nil || !now.Image.Now.Before(s.of.Image.Now) || !latest.IsZero() {
		s.cycle, s.err, s.of = c, err, now
		if !latest.IsZero() { // otherwise it is no older than what was the latest then
			s.looked = time.Now()
		}
	}
	return c, err
}

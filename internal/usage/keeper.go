package usage

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// History is where samples are recorded.
type History interface {
	// Record keeps what a sample says as of a time.
	Record(ctx context.Context, at time.Time, s Sample) error
}

// Keeper fetches from a source again and again and keeps the last answer. If it has a history, it also records what the
// scheduler sees. Create it with [NewKeeper]. Run is one goroutine; the other methods are the scheduler loop's.
type Keeper struct {
	config  Config
	source  Source
	history History
	metrics *Metrics

	settled atomic.Bool
	changed chan struct{}
	seen    atomic.Pointer[cluster.Snapshot]

	mu     sync.Mutex
	shares Shares
	fresh  bool // shares that Drain has not handed over yet
}

// NewKeeper returns a keeper; Run starts it. Without a history (nil), nothing is recorded: somebody else does that.
func NewKeeper(c Config, source Source, history History, m *Metrics) *Keeper {
	return &Keeper{config: c, source: source, history: history, metrics: m, changed: make(chan struct{}, 1)}
}

// firstRetry is after how long a first fetch that failed is tried again. It doubles up to the interval.
const firstRetry = time.Second

// Run fetches and records until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	began := time.Now()
	fetch := time.NewTimer(0)
	defer fetch.Stop()
	record := time.NewTimer(k.untilSample())
	defer record.Stop()
	if k.history == nil {
		record.Stop()
	}
	give := time.AfterFunc(k.config.Wait, func() { k.settle() })
	defer give.Stop()
	defer k.settle() // nobody waits for what has ended

	st := state{log: log, last: began, retry: min(firstRetry, k.config.Interval)}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-record.C:
			k.record(ctx, &st)
			record.Reset(k.untilSample())
		case <-fetch.C:
			at := time.Now()
			k.fetch(ctx, &st)
			next := k.config.Interval
			if !st.ever {
				next, st.retry = st.retry, min(2*st.retry, k.config.Interval)
			}
			fetch.Reset(max(0, next-time.Since(at)))
		}
	}
}

// state is what Run remembers.
type state struct {
	log       logr.Logger
	last      time.Time // of the last good fetch, or of the start
	ever      bool      // there was one
	stale     bool      // and it has been complained about
	unwritten bool      // the last sample could not be recorded
	retry     time.Duration
}

func (k *Keeper) fetch(ctx context.Context, st *state) {
	began := time.Now()
	shares, err := k.source.Fetch(ctx, began)
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	k.metrics.fetched(began, took, err)
	if err != nil {
		st.log.Error(err, "the usage of queues could not be fetched; shares go on with what is known", "lastFetched", st.last, "ever", st.ever)
		if age := time.Since(st.last); age > k.config.Stale && !st.stale {
			st.stale = true
			st.log.Info("WARNING: the usage of queues is stale, and used all the same", "age", age.Round(time.Second).String(), "stalenessPeriod", k.config.Stale.String())
		}
		return
	}
	if st.stale {
		st.log.Info("the usage of queues is fresh again")
	}
	st.last, st.ever, st.stale = began, true, false
	k.mu.Lock()
	news := !maps.EqualFunc(shares, k.shares, func(a, b map[string]int64) bool { return maps.Equal(a, b) })
	if news {
		k.shares, k.fresh = shares, true
	}
	k.mu.Unlock()
	if news {
		k.wake()
	}
	k.settle()
}

// untilSample is the time to the next multiple of the resolution.
func (k *Keeper) untilSample() time.Duration {
	now := time.Now()
	return sampleTime(now, k.config.Resolution).Add(k.config.Resolution).Sub(now)
}

// sampleTime is the latest multiple of the resolution, counted as PromQL counts its steps: from the Unix epoch.
func sampleTime(now time.Time, resolution time.Duration) time.Time {
	return time.Unix(0, now.UnixNano()-now.UnixNano()%int64(resolution))
}

// record writes down what the loop saw last. What it saw is still true, however long ago: it looks at each change.
func (k *Keeper) record(ctx context.Context, st *state) {
	snap := k.seen.Load()
	if snap == nil {
		return
	}
	err := k.history.Record(ctx, sampleTime(time.Now(), k.config.Resolution), Measure(snap))
	switch {
	case err != nil && !st.unwritten:
		st.log.Error(err, "usage is not recorded; time without samples counts for no queue")
	case err == nil && st.unwritten:
		st.log.Info("usage is recorded again")
	}
	st.unwritten = err != nil
	k.metrics.recorded(err)
}

func (k *Keeper) settle() {
	if k.settled.CompareAndSwap(false, true) {
		k.wake()
	}
}

func (k *Keeper) wake() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// Settled says whether scheduling may begin: the first answer is there, or has been waited for long enough.
func (k *Keeper) Settled() bool { return k.settled.Load() }

// Changed is readable when the keeper has settled or there is something to drain.
func (k *Keeper) Changed() <-chan struct{} { return k.changed }

// Observe tells the keeper what the cluster looks like now. It costs nothing.
func (k *Keeper) Observe(snap *cluster.Snapshot) { k.seen.Store(snap) }

// Drain hands what is new over to the scheduler's state and returns how many events that took: none or one. The
// scheduler decides anew only if a queue's usage is another than before.
func (k *Keeper) Drain(store *cluster.Store) int {
	k.mu.Lock()
	shares, fresh := k.shares, k.fresh
	k.fresh = false
	k.mu.Unlock()
	if !fresh {
		return 0
	}
	store.Apply(shares.Event())
	return 1
}

package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/cycles"
	"github.com/muster-scheduler/muster/internal/journal"
	"github.com/muster-scheduler/muster/internal/see"
)

const (
	// draws is how many futures are played; where the time does not suffice, half as many the next time, and not fewer than leastDraws.
	draws, leastDraws = 32, 8
	// forForecast is how long the draws may take.
	forForecast = 4 * time.Minute
	// forTelling is how long the scheduler may take to read a forecast.
	forTelling = 20 * time.Second
	// toldMost bounds the forecasts that one entry of the journal keeps.
	toldMost = 2000
)

// seer forecasts when the gangs of one shard start, scores what it said, and remembers both.
type seer struct {
	shard   string
	journal *journal.Journal // nil: nothing is remembered beyond this process
	now     func() time.Time
	log     logr.Logger
	n       int
	latest  atomic.Pointer[see.Cycle] // without what came of deciding on it again
	outlook atomic.Pointer[see.Outlook]
	// tell gives the scheduler a forecast, which writes it into gangs' objects if it is told to; nil: nobody.
	tell func(ctx context.Context, outlook []byte) error
	said string // of why it does not take one

	mu      sync.Mutex // of the history, for as long as a forecast takes
	history *see.History
}

// newSeer begins with the history that the journal has, or with none.
func newSeer(shard string, j *journal.Journal, now func() time.Time, log logr.Logger) *seer {
	s := &seer{shard: shard, journal: j, now: now, log: log, n: draws, history: &see.History{}}
	if j == nil {
		return s
	}
	text, err := j.Get("history-" + shard)
	if err == nil && text != nil {
		var h *see.History
		if h, err = see.ReadHistory(text); err == nil {
			s.history = h
		}
	}
	if err != nil {
		log.Error(err, "the history of runtimes begins anew", "shard", shard)
	}
	return s
}

// learn shows the history a cycle that was decided on again. While a forecast is made nothing is learned: the next cycle says the same, later.
func (s *seer) learn(c *see.Cycle) {
	s.latest.Store(c.Bare()) // a forecast takes minutes, in which there are others
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	s.take(c)
}

// take learns, and has the journal keep what became of forecasts. The history is the caller's.
func (s *seer) take(c *see.Cycle) {
	told := map[cluster.Key][]see.Told{}
	for k, known := range s.history.Gangs { // order: into a map
		if len(known.Told) > 0 {
			told[k] = known.Told
		}
	}
	err := s.history.Learn(c)
	if err != nil { // another cluster: what is known of the one before is of no use
		s.log.Error(err, "the history of runtimes begins anew", "shard", s.shard)
		s.history = &see.History{}
		_ = s.history.Learn(c)
		return
	}
	e := &journal.Entry{At: s.now().UTC(), Shard: s.shard, Kind: journal.Came}
	for _, k := range slices.SortedFunc(maps.Keys(told), func(a, b cluster.Key) int {
		return cmp.Or(cmp.Compare(a.String(), b.String()), cmp.Compare(a.Face, b.Face))
	}) {
		known := s.history.Gangs[k]
		if known == nil || known.Started.IsZero() || len(known.Told) > 0 {
			continue
		}
		first := &told[k][0]
		out := journal.Start{Gang: k, Queue: known.Queue, Started: known.Started.Time().UTC(), Of: len(told[k])}
		out.Low, out.High = band(first)
		for i := range told[k] {
			t := &told[k][i]
			if wait := max(0, known.Started.Sub(t.At)); wait >= t.Shown.Low && wait <= t.Shown.High {
				out.Held++
			}
		}
		e.Starts = append(e.Starts, out)
	}
	s.append(e)
}

// band is what was told, as moments.
func band(t *see.Told) (low, high time.Time) {
	low = t.At.Add(t.Shown.Low).Time().UTC()
	if t.Shown.High < 366*24*time.Hour {
		high = t.At.Add(t.Shown.High).Time().UTC()
	}
	return low, high
}

func (s *seer) append(e *journal.Entry) {
	if s.journal == nil || len(e.Starts) == 0 {
		return
	}
	if _, err := s.journal.Append(e, nil); err != nil {
		s.log.Error(err, "the journal lacks forecasts", "shard", s.shard)
	}
}

// forecast makes an outlook from the latest cycle that was seen.
func (s *seer) forecast(ctx context.Context) {
	c := s.latest.Load()
	if c == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	within, cancel := context.WithTimeout(ctx, forForecast)
	defer cancel()
	o, err := see.Forecast(within, c, s.history, see.Draws{N: s.n, Seed: uint64(c.Case.Image.Now.UnixNano())})
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, context.DeadlineExceeded):
		s.n = max(leastDraws, s.n/2)
		s.log.Info("forecasts take too long: fewer draws from now on", "shard", s.shard, "draws", s.n)
		return
	case err != nil:
		s.log.Error(err, "starts cannot be forecast", "shard", s.shard)
		return
	}
	s.outlook.Store(o)
	s.pass(ctx, o)
	e := &journal.Entry{At: s.now().UTC(), Shard: s.shard, Kind: journal.Told}
	for i := range o.Gangs[:min(len(o.Gangs), toldMost)] {
		g := &o.Gangs[i]
		e.Starts = append(e.Starts, journal.Start{Gang: g.Gang, Queue: g.Queue, Word: string(g.Word), Low: g.P10, High: g.P90})
	}
	s.append(e)
	if s.journal == nil {
		return
	}
	text, err := s.history.Text()
	if err == nil {
		err = s.journal.Set("history-"+s.shard, text)
	}
	if err != nil {
		s.log.Error(err, "the history of runtimes is not kept", "shard", s.shard)
	}
}

// pass gives the scheduler a forecast. That it wants none is nobody's fault; another reason is logged once.
func (s *seer) pass(ctx context.Context, o *see.Outlook) {
	if s.tell == nil {
		return
	}
	text, err := json.Marshal(o)
	if err == nil {
		within, cancel := context.WithTimeout(ctx, forTelling)
		defer cancel()
		err = s.tell(within, text)
	}
	said := ""
	if err != nil && !errors.Is(err, cycles.ErrUnwanted) && ctx.Err() == nil {
		said = err.Error()
	}
	if said != "" && said != s.said {
		s.log.Info("the scheduler does not take forecasts: gangs' objects do not say when they start", "shard", s.shard, "error", said)
	}
	s.said = said
}

// run forecasts at each tick, on a thread that yields to everybody else on the machine.
func (s *seer) run(ctx context.Context, ticks <-chan time.Time) {
	runtime.LockOSThread() // it ends with this goroutine: nobody inherits its rank
	yields()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			s.forecast(ctx)
		}
	}
}

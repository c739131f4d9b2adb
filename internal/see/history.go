package see

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// How much a History keeps.
const (
	keepRuns     = 30 * 24 * time.Hour
	maxRuns      = 20_000
	keepArrivals = 7 * 24 * time.Hour
	maxArrivals  = 50_000
	maxForecasts = 16 // of one gang: the first and the latest
)

// History is what forecasts learn from: how long work ran, what came, what was forecast and what became of it. It is plain data, bounded, and
// not safe for concurrent use. [History.Learn] feeds it with cycles; the zero value knows nothing.
type History struct {
	// Cluster is the one that it is of, as Cycle.Cluster.
	Cluster string
	// Began and Now are the first and the latest cycle that it learned from.
	Began, Now cluster.Instant
	// Gangs are those of the latest cycle.
	Gangs map[cluster.Key]*Known
	// Runs are over; Arrivals are gangs that came while it watched. Oldest first.
	Runs     []Run
	Arrivals []Arrival
	// Records say how bands have held.
	Records map[RecordKey]*Record
	// SetBack is by how much clocks were set back in all while it watched.
	SetBack time.Duration
}

// RecordKey says which bands a record is of: a queue's, those that were told when a gang was new, or later ones.
type RecordKey struct {
	Queue string
	Later bool
}

// Run is a time of work that is over.
type Run struct {
	Queue string
	Size  int // class of GPUs; see [Shape]
	// Ask is what exactly it asked for, as equal gangs do; "" of a run that an earlier version kept.
	Ask  string `json:",omitempty"`
	Work Work
	At   cluster.Instant // when it was over
	Took time.Duration
	// Ended says that it ended by itself; else it was cut short, by an eviction or a fault, and would have lasted longer.
	Ended bool
}

// Arrival is a gang that came.
type Arrival struct {
	At    cluster.Instant
	Queue string
	Shape Shape
	Work  Work
}

// Known is a gang that is there.
type Known struct {
	UID     string
	Queue   string
	Size    int
	Ask     string `json:",omitempty"`
	Work    Work
	Started cluster.Instant // zero while it waits
	Said    cluster.Instant // what its object said of that then
	Done    bool            // its pods have ended
	// Told are forecasts of its start that are to be scored.
	Told []Told
}

// Told is a forecast of one gang's start.
type Told struct {
	At cluster.Instant
	// Drawn is the band as drawn, Shown as it was told.
	Drawn, Shown Band
	// First says that it was the first for this wait.
	First bool
	// Of is how many gangs of the queue were told such a band at that moment, this one included; 0 if an earlier version told it.
	Of int `json:",omitempty"`
}

// record is that of some bands.
func (h *History) record(key RecordKey) *Record {
	if h.Records[key] == nil {
		if h.Records == nil {
			h.Records = map[RecordKey]*Record{}
		}
		h.Records[key] = &Record{}
	}
	return h.Records[key]
}

// Learn takes a cycle in: what came, started, was cut short and ended since the one before. Cycles that are further apart make runtimes and
// starts as coarse as that. A cycle of another cluster is a [Refusal]. If the clock was set back, what is known goes back with it, and no
// time is negative.
func (h *History) Learn(c *Cycle) error {
	if c == nil || c.Case == nil {
		return &Refusal{Object: "cycle", Field: "case", Rule: "is missing"}
	}
	if h.Cluster != "" && c.Cluster != "" && h.Cluster != c.Cluster {
		return &Refusal{Object: "history", Field: "cluster", Rule: "is " + h.Cluster + "; the cycle is of " + c.Cluster}
	}
	h.learn(c, c.members())
	return nil
}

func (h *History) learn(c *Cycle, members []*member) {
	now := c.Case.Image.Now
	first := h.Gangs == nil
	if h.Cluster == "" {
		h.Cluster = c.Cluster
	}
	if first {
		h.Began, h.Gangs = now, map[cluster.Key]*Known{}
	} else if now.Before(h.Now) {
		h.rewind(h.Now.Sub(now))
	}
	before := h.Now
	h.Now = now
	there := map[cluster.Key]bool{}
	for _, m := range members {
		there[m.state.Key] = true
		k := h.Gangs[m.state.Key]
		if k != nil && k.UID != m.state.UID {
			h.gone(k)
			k = nil
		}
		if k == nil {
			k = &Known{UID: m.state.UID}
			h.Gangs[m.state.Key] = k
			if at := cluster.Earliest(m.state.Created, now); !first && m.shape.Pods > 0 {
				if at.Before(before) { // it came without pods, or nobody says when
					at = now
				}
				h.Arrivals = append(h.Arrivals, Arrival{At: at, Queue: m.state.Queue, Shape: m.shape, Work: m.work})
			}
		}
		k.Queue, k.Size, k.Ask, k.Work = m.state.Queue, m.shape.size(), m.shape.ask(), m.work
		switch {
		case m.over && !k.Done:
			k.Done = true
			h.over(k, true)
		case m.over:
		case m.whole && k.Started.IsZero():
			k.Done = false
			k.Started, k.Said = now, m.started
			if at := m.started; at.After(cluster.Instant{}) && !at.After(now) && (first || at.After(before)) {
				k.Started = at
			}
			h.score(k)
		case !m.whole && !k.Started.IsZero():
			h.over(k, false)
		case m.whole && m.started != k.Said && m.started.After(before) && !m.started.After(now): // evicted and started anew in between
			h.over(k, false)
			k.Started, k.Said = m.started, m.started
		}
	}
	var gone []cluster.Key
	for key := range h.Gangs { // order: sorted below
		if !there[key] {
			gone = append(gone, key)
		}
	}
	slices.SortFunc(gone, compareKeys)
	for _, key := range gone {
		h.gone(h.Gangs[key])
		delete(h.Gangs, key)
	}
	h.forget()
}

func compareKeys(a, b cluster.Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Face, b.Face))
}

// gone is when a gang is there no more.
func (h *History) gone(k *Known) {
	if !k.Done {
		h.over(k, true)
	}
}

// over ends a run, if there was one.
func (h *History) over(k *Known, ended bool) {
	if !k.Started.IsZero() {
		h.Runs = append(h.Runs, Run{Queue: k.Queue, Size: k.Size, Ask: k.Ask, Work: k.Work, At: h.Now, Took: max(0, h.Now.Sub(k.Started)), Ended: ended})
	}
	k.Started = cluster.Instant{}
}

// score compares what was told with the start.
func (h *History) score(k *Known) {
	for i := range k.Told {
		t := &k.Told[i]
		h.record(RecordKey{k.Queue, !t.First}).Take(t.Drawn, t.Shown, max(0, k.Started.Sub(t.At)), t.Of)
	}
	k.Told = nil
}

// tell keeps a forecast until the gang starts.
func (k *Known) tell(t Told) {
	t.First = len(k.Told) == 0
	if len(k.Told) == maxForecasts {
		copy(k.Told[1:], k.Told[2:])
		k.Told = k.Told[:maxForecasts-1]
	}
	k.Told = append(k.Told, t)
}

// rewind moves what is known back with the clock.
func (h *History) rewind(by time.Duration) {
	h.SetBack += by
	d := by
	h.Began = h.Began.Add(-d)
	for i := range h.Runs {
		h.Runs[i].At = h.Runs[i].At.Add(-d)
	}
	for i := range h.Arrivals {
		h.Arrivals[i].At = h.Arrivals[i].At.Add(-d)
	}
	for _, k := range h.Gangs { // order: each on its own
		if !k.Started.IsZero() {
			k.Started = k.Started.Add(-d)
		}
		for i := range k.Told {
			k.Told[i].At = k.Told[i].At.Add(-d)
		}
	}
}

// forget drops what is old or too much.
func (h *History) forget() {
	drop := 0
	for drop < len(h.Runs) && (h.Runs[drop].At.Before(h.Now.Add(-keepRuns)) || len(h.Runs)-drop > maxRuns) {
		drop++
	}
	h.Runs = h.Runs[drop:]
	drop = 0
	for drop < len(h.Arrivals) && (h.Arrivals[drop].At.Before(h.Now.Add(-keepArrivals)) || len(h.Arrivals)-drop > maxArrivals) {
		drop++
	}
	h.Arrivals = h.Arrivals[drop:]
}

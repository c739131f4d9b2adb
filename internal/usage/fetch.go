package usage

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
)

// One is the whole cluster in [Shares].
const One = 1_000_000

// Shares are parts of the cluster that queues used, in millionths ([One] is all of it), by queue and dimension. What is
// not in it was not used, or nobody knows. Whoever holds one does not change it.
type Shares map[string]map[string]int64

// Source knows the history of usage.
type Source interface {
	// Fetch returns what every queue used over the window that ends now. It may take as long as ctx lets it.
	Fetch(ctx context.Context, now time.Time) (Shares, error)
}

// Ask answers a PromQL expression at a moment. An answer that is not a list of series is an error.
type Ask func(ctx context.Context, query string, at time.Time) (model.Vector, error)

// queueLabel is the label of the Held series that names the queue.
const queueLabel = "queue_name"

// Reader puts the questions of a configuration to whatever answers them. It is not safe for concurrent use.
type Reader struct {
	config Config
	ask    Ask
	piece  time.Duration // 0: the window is asked for as a whole
	chunk  time.Duration
	past   map[span]sums // pieces that no sample is added to any more
}

// span is the time after from, up to to, in Unix milliseconds.
type span struct{ from, to int64 }

// sums are what the samples of a span come to, seen from its end, for each configured dimension.
type sums []sum

type sum struct {
	had  float64
	held map[string]float64
}

// pieces is into about how many pieces a window is cut, and least is how many samples a piece has at least.
const (
	pieces = 84
	least  = 120
	// most is how many samples one question asks for of each series.
	most = 720
)

// NewReader returns a reader that asks for a window's sums as a whole: for each dimension two questions per fetch.
func NewReader(c Config, ask Ask) *Reader { return &Reader{config: c, ask: ask} }

// NewPatientReader returns a reader for a source in the same process. It asks for a window piece by piece, remembers what
// pieces came to that have passed, and asks anew only for the ends of the window. That bounds the memory of a question
// and makes a fetch cost a fiftieth. No sample may come in later than one resolution after its time.
func NewPatientReader(c Config, ask Ask) *Reader {
	steps := max(least, c.Window.Longest()/c.Resolution/pieces)
	return &Reader{config: c, ask: ask, piece: steps * c.Resolution, chunk: most * c.Resolution, past: map[span]sums{}}
}

// Fetch asks for the usage over the window that ends now: what each queue held and what the cluster had, for each of
// the configured dimensions.
//
// A dimension the cluster has nothing of is left out. If the source knows no dimension of the cluster at all, Fetch
// returns nil, except right after the beginning of a window, before its first sample: then nobody has used anything,
// and the result is empty.
func (r *Reader) Fetch(ctx context.Context, now time.Time) (Shares, error) {
	c := &r.config
	now = now.Truncate(time.Millisecond) // what PromQL counts in
	start := c.Window.Start(now)
	for s := range r.past { // order: each on its own
		if s.from < start.UnixMilli() {
			delete(r.past, s)
		}
	}
	all := make(sums, len(c.Dimensions))
	for i := range all {
		all[i].held = map[string]float64{}
	}
	for from := start; from.Before(now); {
		to := r.end(from, now)
		part, err := r.sums(ctx, from, to, now, start)
		if err != nil {
			return nil, err
		}
		all.add(part, c.decay(now.Sub(to)))
		from = to
	}
	out, known := Shares{}, false
	for i, d := range c.Dimensions {
		if all[i].had <= 0 {
			continue
		}
		known = true
		for queue, held := range all[i].held { // order: each queue its own entry
			if part := fixed(held / all[i].had); part > 0 {
				if out[queue] == nil {
					out[queue] = map[string]int64{}
				}
				out[queue][d.Name] = part
			}
		}
	}
	if !known && now.Sub(start) > 2*c.Resolution {
		return nil, nil
	}
	return out, nil
}

// end is where the piece that begins at from ends: at a multiple of the piece's length, or now.
func (r *Reader) end(from, now time.Time) time.Time {
	if r.piece == 0 {
		return now
	}
	length := r.piece.Milliseconds()
	if to := time.UnixMilli((from.UnixMilli()/length + 1) * length); to.Before(now) {
		return to
	}
	return now
}

// sums are those of one piece, asked for or remembered.
func (r *Reader) sums(ctx context.Context, from, to, now, start time.Time) (sums, error) {
	key := span{from.UnixMilli(), to.UnixMilli()}
	if known, ok := r.past[key]; ok {
		return known, nil
	}
	c := &r.config
	out := make(sums, len(c.Dimensions))
	for i := range out {
		out[i].held = map[string]float64{}
	}
	for low := from; low.Before(to); {
		high := to
		if r.chunk > 0 && to.Sub(low) > r.chunk {
			high = low.Add(r.chunk)
		}
		length := high.Sub(low)
		if c.Window.Resets() && low.Equal(start) {
			// Servers before Prometheus 3 count a sample at the very start. It belongs to the window before.
			length -= time.Millisecond
		}
		if length > 0 {
			part, err := r.answers(ctx, length, high)
			if err != nil {
				return nil, err
			}
			out.add(part, c.decay(to.Sub(high)))
		}
		low = high
	}
	if r.piece > 0 && !to.After(now.Add(-c.Resolution)) {
		r.past[key] = out
	}
	return out, nil
}

// answers are the sums of the samples in the time of that length that ends at a moment.
func (r *Reader) answers(ctx context.Context, length time.Duration, at time.Time) (sums, error) {
	c := &r.config
	out := make(sums, len(c.Dimensions))
	for i, d := range c.Dimensions {
		out[i].held = map[string]float64{}
		query := func(expression string) (model.Vector, error) {
			q := c.query(expression, length, at)
			ctx, cancel := context.WithTimeout(ctx, c.Timeout)
			defer cancel()
			v, err := r.ask(ctx, q, at)
			if err != nil {
				return nil, fmt.Errorf("ask for the usage of %s (%s): %w", d.Name, q, err)
			}
			return v, nil
		}
		capacity, err := query(d.Had)
		if err != nil {
			return nil, err
		}
		if len(capacity) == 0 {
			continue
		}
		if v := float64(capacity[0].Value); finite(v) {
			out[i].had = v
		}
		held := d.Held
		if r.piece == 0 {
			// Of several that tell of a queue at a moment (a queue role that moved to another pod, two of which one stands by, somebody
			// who exports what is not theirs), the one that says most counts: nothing adds up.
			held = "max by (" + queueLabel + ") (" + held + ")"
		}
		series, err := query(held)
		if err != nil {
			return nil, err
		}
		for _, s := range series {
			queue := string(s.Metric[queueLabel])
			if v := float64(s.Value); queue != "" && finite(v) {
				out[i].held[queue] = max(out[i].held[queue], v)
			}
		}
	}
	return out, nil
}

// add adds what another span came to, decayed.
func (s sums) add(o sums, decay float64) {
	for i := range s {
		s[i].had += o[i].had * decay
		for queue, held := range o[i].held { // order: each queue its own entry
			s[i].held[queue] += held * decay
		}
	}
}

// decay is what a sample of an age counts.
func (c *Config) decay(age time.Duration) float64 {
	if c.HalfLife <= 0 {
		return 1
	}
	return math.Exp2(-age.Seconds() / c.HalfLife.Seconds())
}

// query is KAI's: the sum of an expression's samples over a span, each decayed by its age as seen from now.
func (c *Config) query(expression string, length time.Duration, now time.Time) string {
	if c.HalfLife > 0 {
		expression = fmt.Sprintf("(%s) * (0.5^((%s - time()) / %s))", expression, seconds(now), strconv.FormatFloat(c.HalfLife.Seconds(), 'f', -1, 64))
	}
	return fmt.Sprintf("sum_over_time((%s)[%s:%s])", expression, model.Duration(length), model.Duration(c.Resolution))
}

// seconds writes a time in Unix seconds.
func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// maxPart bounds a part of the cluster: more than a thousand clusters is a broken metric.
const maxPart = 1000 * One

// fixed turns a part into millionths, rounded.
func fixed(part float64) int64 {
	return int64(math.Round(min(max(part, 0)*One, maxPart)))
}

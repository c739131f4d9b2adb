package forecast

import (
	"math"
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/entry"
	"github.com/muster-scheduler/muster/internal/see"
)

// waited is a wait that is over.
type waited struct {
	size int
	took time.Duration
}

// pastWaits foretells a wait from those of the queue that are over: the tenth, half and nine tenths of what those that waited as long as this
// one has waited by now went on to wait, of the same size where there are at least twenty of it. Its bands are scaled as those of package see.
type pastWaits struct {
	over    map[string][]waited
	records map[string]*see.Record
}

// recent is how many waits of a queue count.
const recent = 200

func newPastWaits() *pastWaits {
	return &pastWaits{over: map[string][]waited{}, records: map[string]*see.Record{}}
}

// tell returns the band as drawn and as shown; false where there is nothing to go by.
func (p *pastWaits) tell(queue string, size int, age time.Duration) (drawn, shown see.Band, ok bool) {
	var same, all []time.Duration
	for _, w := range p.over[queue] {
		if w.took > age {
			all = append(all, w.took-age)
			if w.size == size {
				same = append(same, w.took-age)
			}
		}
	}
	if len(same) >= 20 {
		all = same
	}
	if len(all) < 5 {
		return drawn, shown, false
	}
	slices.Sort(all)
	at := func(part float64) time.Duration { return all[int(part*float64(len(all)-1)+0.5)] }
	drawn = see.Band{Low: at(0.1), Middle: at(0.5), High: at(0.9)}
	return drawn, p.record(queue).Scale(drawn), true
}

func (p *pastWaits) record(queue string) *see.Record { return entry.Of(p.records, queue) }

// started takes in a wait that is over.
func (p *pastWaits) started(queue string, size int, took time.Duration) {
	list := append(p.over[queue], waited{size, took})
	p.over[queue] = list[max(0, len(list)-recent):]
}

// qbets is the method of QBETS: Nurmi, Brevik and Wolski, "QBETS: queue bounds estimation from time series", 2008, written from its public description.
//
//   - A bound on a quantile q of the waits, with confidence C, is an order statistic: the number of n waits that lie below the quantile is binomial, so
//     the k-th smallest is above it with confidence C for the least k with Σ_{j<k} C(n,j) q^j (1−q)^{n−j} ≥ C; a lower bound is the same from the other side.
//   - When as many waits in a row lie beyond the bound as hardly ever do by chance, the past is no guide any more: the history is cut down to the
//     least from which a bound follows.
//   - Jobs are put into groups by their size, each with its own history; a group that is too small goes with the queue.
//
// The original groups sizes by a model of mixtures and takes the length of a row that is rare from the series' autocorrelation; here sizes
// are grouped by doublings, and three in a row are rare (0.1³). The band is the lower bound of q = 0.1 and the upper one of q = 0.9, both with C = 0.95.
type qbets struct{ series map[series]*history }

type series struct {
	queue string
	size  int // -1: all of the queue
}

type history struct {
	took        []time.Duration
	over, under int // in a row, beyond the bounds
}

// least is how many waits a bound with q = 0.9 and C = 0.95 takes: 1 − 0.9^n ≥ 0.95.
const least = 29

func newQBETS() *qbets { return &qbets{map[series]*history{}} }

func (h *history) bounds() (low, high time.Duration, ok bool) {
	n := len(h.took)
	if n < least {
		return 0, 0, false
	}
	sorted := slices.Sorted(slices.Values(h.took))
	k := orderStatistic(n, 0.9, 0.95)
	// The lower bound of q = 0.1 is the mirror image: as many from below as the upper one of 0.9 is from above.
	return sorted[n-k], sorted[k-1], true
}

// orderStatistic is the least k of which the k-th smallest of n is above the quantile q with this confidence; n where none is.
func orderStatistic(n int, q, confidence float64) int {
	sum := 0.0
	ln := func(x int) float64 { v, _ := math.Lgamma(float64(x + 1)); return v }
	for j := range n {
		sum += math.Exp(ln(n) - ln(j) - ln(n-j) + float64(j)*math.Log(q) + float64(n-j)*math.Log(1-q))
		if sum >= confidence {
			return j + 1
		}
	}
	return n
}

func (q *qbets) tell(queue string, size int, age time.Duration) (see.Band, bool) {
	for _, s := range []series{{queue, size}, {queue, -1}} {
		if h := q.series[s]; h != nil {
			if low, high, ok := h.bounds(); ok {
				return see.Band{Low: max(0, low-age), High: max(0, high-age)}, true
			}
		}
	}
	return see.Band{}, false
}

func (q *qbets) started(queue string, size int, took time.Duration) {
	for _, s := range []series{{queue, size}, {queue, -1}} {
		h := entry.Of(q.series, s)
		if low, high, ok := h.bounds(); ok {
			h.over, h.under = row(h.over, took > high), row(h.under, took < low)
			if h.over == 3 || h.under == 3 {
				h.took = slices.Clone(h.took[len(h.took)-least+1:])
				h.over, h.under = 0, 0
			}
		}
		if h.took = append(h.took, took); len(h.took) > 2000 {
			h.took = h.took[1:]
		}
	}
}

func row(n int, again bool) int {
	if again {
		return n + 1
	}
	return 0
}

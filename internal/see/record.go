package see

import (
	"math"
	"slices"
	"time"
)

// The band that is shown: from the tenth to the ninetieth of a hundred.
const (
	missed  = 0.1  // on each side
	step    = 0.02 // γ of the record's learning
	window  = 300  // how many scores count
	trusted = 20   // with how many a record speaks for itself
	prior   = 20   // how many scores good draws are given in advance
)

// Band is a wait from the forecast on: the tenth part of the draws waits at most Low, half Middle, nine tenths High.
type Band struct {
	Low, Middle, High time.Duration
}

// axis is where waits are compared: on a logarithmic scale, with a minute added, so that five minutes are as far from ten as five hours from
// ten, and seconds are no difference.
func axis(d time.Duration) float64 { return math.Log(max(d.Seconds(), 0) + 60) }

func back(x float64) time.Duration {
	return time.Duration(max(0, min(math.Exp(x)-60, 1e9)) * float64(time.Second))
}

// narrowest is the least distance of an edge from the middle, on the axis: draws that all agree are not believed beyond about a tenth.
const narrowest = 0.1

// reach is how far the edges are from the middle, on the axis.
func (b Band) reach() (down, up float64) {
	mid := axis(b.Middle)
	return max(mid-axis(b.Low), narrowest), max(axis(b.High)-mid, narrowest)
}

// Stretched is the band with its edges moved away from the middle: by factors, on the axis.
func (b Band) Stretched(down, up float64) Band {
	mid := axis(b.Middle)
	d, u := b.reach()
	return Band{Low: back(mid - d*down), Middle: b.Middle, High: back(mid + u*up)}
}

// Record is how bands of one queue have held, and what follows for the next: each edge is put where, by the latest scores, it would have been
// missed as often as it may be. It is adaptive conformal inference (Gibbs and Candès, "Adaptive conformal inference under distribution shift",
// 2021), for each edge by itself: with the score s = (y − middle) / (edge − middle) of a wait y on the axis, the edge that is shown is
//
//	middle + Q(1 − α_t) · (edge − middle),  Q the quantile of the latest scores,
//	α_{t+1} = α_t + γ (α − err_t),          err_t = 1 where y is beyond the edge that was shown, else 0
//
// with α = 0.1 and γ = 0.02, so that over time a tenth of the waits is beyond each edge, whatever the draws are worth and however the load
// drifts. The score of the edge itself is 1 by definition: a record of good draws leaves them as they are.
type Record struct {
	// Below and Above are the edges.
	Below, Above Edge
	// Held is how many of the last Of bands held, of at most 100.
	Held, Of int
	// Last says of the last hundred whether they held, oldest first.
	Last []bool
}

// Edge is the state of one edge.
type Edge struct {
	// Alpha is α_t.
	Alpha float64
	// Scores are the latest, oldest first.
	Scores []float64
}

// factor is Q(1 − α_t). A record begins with the scores of draws that are as good as normal ones, so that a few waits do not move it far; they
// count less and less as scores come.
func (e *Edge) factor() float64 {
	n := len(e.Scores)
	if n == 0 {
		return 1
	}
	all := slices.Clone(e.Scores)
	for i := range prior {
		all = append(all, math.Sqrt2*math.Erfinv(2*(float64(i)+0.5)/prior-1)/ninetieth)
	}
	slices.Sort(all)
	k := int(math.Ceil(float64(len(all)) * (1 - e.Alpha)))
	return max(0.02, all[min(max(k, 1), len(all))-1])
}

// ninetieth is the quantile 0.9 of the normal distribution: the score 1.
const ninetieth = 1.2815515655446004

// take learns from a score, and from whether the edge that was shown was missed.
func (e *Edge) take(score float64, beyond bool) {
	if len(e.Scores) == 0 {
		e.Alpha = missed
	}
	err := 0.0
	if beyond {
		err = 1
	}
	e.Alpha = min(max(e.Alpha+step*(missed-err), 0.005), 0.5)
	if e.Scores = append(e.Scores, score); len(e.Scores) > window {
		e.Scores = e.Scores[len(e.Scores)-window:]
	}
}

// Scale returns the band as this record would show it.
func (r *Record) Scale(b Band) Band {
	return b.Stretched(r.Below.factor(), r.Above.factor())
}

// Take learns from a wait: how it was forecast by the draws, and what was shown.
func (r *Record) Take(drawn, shown Band, wait time.Duration) {
	y, mid := axis(wait), axis(drawn.Middle)
	down, up := drawn.reach()
	r.Below.take((mid-y)/down, wait < shown.Low)
	r.Above.take((y-mid)/up, wait > shown.High)
	r.Last = append(r.Last, wait >= shown.Low && wait <= shown.High)
	if len(r.Last) > 100 {
		r.Last = r.Last[len(r.Last)-100:]
	}
	r.Held, r.Of = 0, len(r.Last)
	for _, held := range r.Last {
		if held {
			r.Held++
		}
	}
}

package see

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// The band that is shown: from the tenth to the ninetieth of a hundred.
const (
	missed  = 0.1  // on each side
	step    = 0.02 // γ of the record's learning, for all bands of one moment together
	window  = 300  // how many scores count, by weight
	trusted = 20   // with how many a record speaks for itself
	ofBurst = 20   // for how many scores those of one moment count together, at most, in the quantile
	prior   = 20   // how many scores good draws are given in advance

	maxScores = 3000 // are kept
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

// unseen is what draws leave out, as a distance on the axis: about from three fifths to five thirds of a wait, also where all draws agree.
const unseen = 0.5

// reach is how far the edges are from the middle, on the axis: what the draws say and what they leave out, which have nothing to do with each other.
func (b Band) reach() (down, up float64) {
	mid := axis(b.Middle)
	return math.Hypot(mid-axis(b.Low), unseen), math.Hypot(axis(b.High)-mid, unseen)
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
// drifts. The score of the edge itself, what draws leave out included, is 1 by definition: a record of good draws leaves them as they are.
//
// Bands that were told at one moment are missed together, as when a burst waits. So they are one round of that learning: each of n takes an n-th of the step
// γ. Were each a step, a burst that is missed would take α to its least and the next that holds far above 0.1, and the edge would swing from one of its scores' ends to the other.
// In the quantile each of n scores weighs 20/n where they are more than 20. Else it would be that of the last two bursts.
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
	// Scores are the latest, oldest first, and Weights what each counts for; where these are fewer, those of the first scores are 1.
	Scores, Weights []float64
}

// factor is Q(1 − α_t). A record begins with the scores of draws that are as good as normal ones, so that a few waits do not move it far; they
// count less and less as scores come.
func (e *Edge) factor() float64 {
	n := len(e.Scores)
	if n == 0 {
		return 1
	}
	type weighed struct{ score, weight float64 }
	all, total := make([]weighed, 0, n+prior), float64(prior)
	for i, score := range e.Scores {
		all = append(all, weighed{score, e.weight(i)})
		total += e.weight(i)
	}
	for i := range prior {
		all = append(all, weighed{math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/prior-1) / ninetieth, 1})
	}
	slices.SortFunc(all, func(a, b weighed) int { return cmp.Compare(a.score, b.score) })
	i, sum := 0, all[0].weight
	for i < len(all)-1 && sum < total*(1-e.Alpha)-1e-9 {
		i++
		sum += all[i].weight
	}
	return max(0.02, all[i].score)
}

// weight is what the i-th score counts for.
func (e *Edge) weight(i int) float64 {
	if i += len(e.Weights) - len(e.Scores); i >= 0 {
		return e.Weights[i]
	}
	return 1
}

// ninetieth is the quantile 0.9 of the normal distribution: the score 1.
const ninetieth = 1.2815515655446004

// take learns from a score, one of so many of its moment, and from whether the edge that was shown was missed.
func (e *Edge) take(score float64, beyond bool, of int) {
	if len(e.Scores) == 0 {
		e.Alpha = missed
	}
	err := 0.0
	if beyond {
		err = 1
	}
	e.Alpha = min(max(e.Alpha+step/float64(of)*(missed-err), 0.005), 0.5)
	e.Scores, e.Weights = append(e.Scores, score), append(e.Weights, min(1, ofBurst/float64(of)))
	sum := 0.0
	for i := len(e.Scores) - 1; i >= 0; i-- {
		if sum += e.weight(i); sum > window || len(e.Scores)-i > maxScores {
			e.Scores, e.Weights = e.Scores[i+1:], e.Weights[max(0, i+1-(len(e.Scores)-len(e.Weights))):]
			break
		}
	}
}

// Scale returns the band as this record would show it.
func (r *Record) Scale(b Band) Band {
	return b.Stretched(r.Below.factor(), r.Above.factor())
}

// Take learns from a wait: how it was forecast by the draws, what was shown, and of how many gangs such bands were told at that moment (0: of this one).
func (r *Record) Take(drawn, shown Band, wait time.Duration, of int) {
	of = max(of, 1)
	y, mid := axis(wait), axis(drawn.Middle)
	down, up := drawn.reach()
	r.Below.take((mid-y)/down, wait < shown.Low, of)
	r.Above.take((y-mid)/up, wait > shown.High, of)
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

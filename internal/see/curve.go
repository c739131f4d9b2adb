package see

import (
	"math"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// span is one run: for how long it was seen to run (in whatever unit the curve has), whether it ended then or was still running, and when it began.
type span struct {
	took  float64
	ended bool
	began cluster.Instant
}

// curve is the part of runs that last longer than a time, estimated from runs of which some had not ended: Kaplan and Meier's product-limit
// estimator ("Nonparametric estimation from incomplete observations", 1958), S(t) = Π over ends t_i ≤ t of (1 − d_i / n_i), with d_i ends and
// n_i runs that lasted at least so long. Behind the last run it goes on as exp(−λt) with λ = −ln S(t_max) / t_max (Brown, Hollander and Korwar,
// 1974), with S(t_max) no less than 1/2n: that the longest of n runs has ended does not say that none will be longer.
type curve struct {
	at   []float64 // times of ends, rising
	left []float64 // the part that lasts longer
	rate float64   // λ
	last float64   // t_max
	ends int       // runs that ended
	runs int

	draws []float64 // what each draw's runs of it have in common; see forecaster.alike
}

func newCurve(spans []span) *curve {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b span) int {
		switch {
		case a.took < b.took:
			return -1
		case a.took > b.took:
			return 1
		}
		return 0
	})
	c := &curve{runs: len(spans)}
	left := 1.0
	for i := 0; i < len(spans); {
		j, ends := i, 0
		for ; j < len(spans) && spans[j].took == spans[i].took; j++ {
			if spans[j].ended {
				ends++
			}
		}
		if ends > 0 {
			left *= 1 - float64(ends)/float64(len(spans)-i)
			c.at, c.left = append(c.at, spans[i].took), append(c.left, left)
			c.ends += ends
		}
		c.last = spans[i].took
		i = j
	}
	if c.last > 0 {
		c.rate = -math.Log(max(min(left, 1-1e-9), 0.5/float64(max(c.runs, 1)))) / c.last
	}
	return c
}

// beyond is the part of runs that last longer than t.
func (c *curve) beyond(t float64) float64 {
	if t >= c.last {
		return c.tail(t)
	}
	i, found := slices.BinarySearch(c.at, t)
	if found {
		i++
	}
	if i == 0 {
		return 1
	}
	return max(c.left[i-1], c.tail(c.last))
}

func (c *curve) tail(t float64) float64 { return math.Exp(-c.rate * t) }

// draw returns how long a run lasts in all that has lasted for age, for u uniform in (0, 1). It is above age.
func (c *curve) draw(age, u float64) float64 {
	want := u * c.beyond(age)
	if age < c.last {
		// The first end after age at which no more than want is left.
		from, found := slices.BinarySearch(c.at, age)
		if found {
			from++
		}
		if i, _ := slices.BinarySearchFunc(c.left[from:], want, func(left, want float64) int {
			if left > want {
				return -1
			}
			return 1
		}); from+i < len(c.at) && want > c.tail(c.last)*0.999 {
			return c.at[from+i]
		}
	}
	if c.rate <= 0 {
		return math.Inf(1)
	}
	return max(-math.Log(want)/c.rate, math.Nextafter(max(age, c.last), math.Inf(1)))
}

package sim

import "math"

// Fading is how much of a cluster a queue, or all of them, used lately: a sum of equidistant samples in which the newest counts
// whole, one that is a half-life older half, and one that has left the window not at all:
//
//	Σ  sample(k) · 0.5^(k / half-life)      over ages k = 0, 1, … window−1 samples
//
// It is the sum that KAI asks Prometheus for, kept up to date instead of asked for: adding a sample costs the same whatever the
// window is. Without a half-life sums are exact; with one, their relative error stays near 1e-16 times the half-life in samples,
// since what is old fades together with its error. Stretches of equal samples are kept as one.
type Fading struct {
	window int
	decay  float64 // of one sample's age
	leave  float64 // weight of a sample that leaves the window
	sum    float64
	count  int // samples within the window
	runs   []stretch
	head   int
}

// stretch is a number of equal samples in a row.
type stretch struct {
	value int64
	n     int
}

// NewFading returns a sum of nothing. window counts samples, 0 for all there ever were; halfLife is in samples, 0 or less for
// none.
func NewFading(window int, halfLife float64) *Fading {
	h := &Fading{window: window, decay: 1, leave: 1}
	if halfLife > 0 {
		h.decay = math.Exp2(-1 / halfLife)
		h.leave = math.Exp2(-float64(window) / halfLife)
	}
	return h
}

// Add takes a sample.
func (h *Fading) Add(value int64) {
	h.sum = float64(h.sum*h.decay) + float64(value)
	if h.window == 0 {
		return
	}
	if last := len(h.runs) - 1; last >= h.head && h.runs[last].value == value {
		h.runs[last].n++
	} else {
		h.runs = append(h.runs, stretch{value, 1})
	}
	if h.count++; h.count <= h.window {
		return
	}
	h.count--
	old := &h.runs[h.head]
	h.sum -= float64(float64(old.value) * h.leave)
	if old.n--; old.n == 0 {
		h.head++
		if h.head*2 > len(h.runs) {
			h.runs = h.runs[:copy(h.runs, h.runs[h.head:])]
			h.head = 0
		}
	}
}

// Sum returns the sum.
func (h *Fading) Sum() float64 { return max(0, h.sum) }

// Part returns how much of whole, a sum over as many samples, this one is, in millionths; 0 of nothing.
func (h *Fading) Part(whole *Fading) int64 {
	if whole.Sum() <= 0 {
		return 0
	}
	return int64(math.Round(h.Sum() / whole.Sum() * 1e6))
}

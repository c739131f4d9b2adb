package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestFading: the sum that is kept equals the sum by definition, after every sample, to the millionth that counts.
func TestFading(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			window := []int{0, 1, 2, 7, 256, 1008}[r.IntN(6)]
			halfLife := []float64{0, 0.5, 1, 13.7, 128, 4000}[r.IntN(6)]
			capacity := int64(8000 * (1 + r.IntN(100)))
			h, all := NewFading(window, halfLife), NewFading(window, halfLife)
			var samples, wholes []int64
			value, whole := int64(0), capacity
			for range 3000 {
				if r.IntN(10) == 0 {
					value = r.Int64N(capacity + 1)
				}
				if r.IntN(200) == 0 {
					whole = value + r.Int64N(capacity) // nodes come and go
				}
				samples, wholes = append(samples, value), append(wholes, max(whole, value))
				h.Add(value)
				all.Add(max(whole, value))
				if len(samples)%7 != 0 {
					continue
				}
				a, b := 0.0, 0.0
				for k := range samples {
					if window > 0 && k >= window {
						break
					}
					weight := 1.0
					if halfLife > 0 {
						weight = math.Pow(0.5, float64(k)/halfLife)
					}
					a += weight * float64(samples[len(samples)-1-k])
					b += weight * float64(wholes[len(wholes)-1-k])
				}
				want := int64(0)
				if b > 0 {
					want = int64(math.Round(a / b * 1e6))
				}
				if got := h.Part(all); got != want || math.Abs(h.Sum()-a) > 1e-9*max(1, a) {
					t.Fatalf("window %d, half-life %v, after %d samples: %d millionths of %v, want %d of %v", window, halfLife, len(samples), got, h.Sum(), want, a)
				}
			}
		})
	}
}

// TestFadingOfNothing: no samples and no capacity are a usage of 0.
func TestFadingOfNothing(t *testing.T) {
	t.Parallel()
	h, all := NewFading(3, 0), NewFading(3, 0)
	if got := h.Part(all); got != 0 {
		t.Errorf("before any sample: %d", got)
	}
	h.Add(0)
	all.Add(0)
	if got := h.Part(all); got != 0 {
		t.Errorf("of no capacity: %d", got)
	}
}

package fairshare

import (
	"math"
	"math/bits"
)

// Unlimited as a quota or a limit means that there is no bound. It compares above every amount.
const Unlimited int64 = -1

const (
	// One is 1.0 in the fixed-point numbers of this package: weights, usage, k-value.
	One int64 = 1_000_000

	// MaxWeight is the largest weight that counts, about 1.1 million times One. It keeps the sum of eight million
	// siblings' weights inside 63 bits.
	MaxWeight int64 = 1 << 40

	// MaxFactor is the largest usage and the largest k-value that count: 1000.0.
	MaxFactor = 1000 * One

	// maxAmount is what sums saturate at.
	maxAmount int64 = math.MaxInt64
)

// Fixed converts a non-negative real, such as an over-quota weight or a fraction of usage, to fixed-point with [One] =
// 1.0, rounded to the nearest millionth. A positive value stays positive however small it is, because weight 0 means
// "never over quota". NaN and negative values give 0, values above [MaxWeight] give MaxWeight.
func Fixed(v float64) int64 {
	switch scaled := float64(v * float64(One)); {
	case math.IsNaN(v) || v <= 0:
		return 0
	case scaled >= float64(MaxWeight):
		return MaxWeight
	default:
		return max(1, int64(math.Round(scaled)))
	}
}

// at reads an amount; missing entries and negative values are 0.
func at(v []int64, dim int) int64 {
	if dim >= len(v) {
		return 0
	}
	return max(0, v[dim])
}

// quotaAt reads a quota: an amount, or Unlimited; missing entries are 0.
func quotaAt(v []int64, dim int) int64 {
	if dim < len(v) && v[dim] == Unlimited {
		return Unlimited
	}
	return at(v, dim)
}

// limitAt reads a limit: an amount, or Unlimited, which missing entries are.
func limitAt(v []int64, dim int) int64 {
	if dim >= len(v) {
		return Unlimited
	}
	return quotaAt(v, dim)
}

// sharesDim tells whether queues share a dimension.
func sharesDim(mask []bool, dim int) bool {
	return mask == nil || dim < len(mask) && mask[dim]
}

// unitAt reads the whole unit of a dimension, at least 1.
func unitAt(v []int64, dim int) int64 {
	return max(1, at(v, dim))
}

// addSat adds two non-negative amounts.
func addSat(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// mulSat multiplies two non-negative amounts.
func mulSat(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// atMost caps an amount by a bound.
func atMost(amount, limit int64) int64 {
	if limit == Unlimited {
		return amount
	}
	return min(amount, limit)
}

// compareBounds orders bounds, Unlimited above every amount.
func compareBounds(a, b int64) int {
	// As unsigned numbers -1 is the largest and the order of the others is unchanged.
	switch l, r := uint64(a), uint64(b); {
	case l < r:
		return -1
	case l > r:
		return 1
	}
	return 0
}

// portion returns amount × part / whole and the remainder of that division, exactly. It needs part <= whole, whole > 0
// and amount >= 0; then the product's upper half is below whole, which is what the division asks for.
func portion(amount int64, part, whole uint64) (quotient int64, remainder uint64) {
	hi, lo := bits.Mul64(uint64(amount), part)
	q, r := bits.Div64(hi, lo, whole)
	return int64(q), r
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

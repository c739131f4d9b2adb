package fairshare_test

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/fairshare"
)

// fixedPoint draws a factor that is often round and sometimes has six digits.
func fixedPoint(most int64) *rapid.Generator[int64] {
	return rapid.Custom(func(t *rapid.T) int64 {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return 0
		case 1, 2:
			return fairshare.One * rapid.Int64Range(0, most).Draw(t, "whole")
		default:
			return rapid.Int64Range(0, most*fairshare.One).Draw(t, "micro")
		}
	})
}

// amount draws amounts of one scale per dimension, small enough to collide and to run out.
func amount(dim int, most int64) *rapid.Generator[int64] {
	return rapid.Custom(func(t *rapid.T) int64 {
		n := rapid.Int64Range(0, most).Draw(t, "n")
		switch dim {
		case 0: // milli-GPU, mostly whole, halves and hundredths
			return n * rapid.SampledFrom([]int64{1000, 1000, 1000, 500, 10}).Draw(t, "step")
		case 1: // bytes
			return n * rapid.SampledFrom([]int64{1, 1 << 30, 999_999_937}).Draw(t, "step")
		}
		return n
	})
}

func bounded(dim int, most int64) *rapid.Generator[int64] {
	return rapid.Custom(func(t *rapid.T) int64 {
		if rapid.IntRange(0, 3).Draw(t, "unlimited") == 0 {
			return fairshare.Unlimited
		}
		return amount(dim, most).Draw(t, "bound")
	})
}

type shape struct {
	history bool // draw a k-value and usage
	flat    bool // one level
}

// wellFormed draws an input with numbers that a cluster could have.
func wellFormed(s shape) *rapid.Generator[*fairshare.Input] {
	return rapid.Custom(func(t *rapid.T) *fairshare.Input {
		dims := rapid.IntRange(1, 3).Draw(t, "dims")
		in := &fairshare.Input{Unit: []int64{1000, 1, 1}[:dims]}
		if s.history {
			in.KValue = fixedPoint(3).Draw(t, "k")
		}
		for dim := range dims {
			in.Total = append(in.Total, amount(dim, 60).Draw(t, "total"))
		}
		n := rapid.IntRange(1, 12).Draw(t, "queues")
		for i := range n {
			q := fairshare.Queue{
				Parent:   -1,
				Priority: rapid.SampledFrom([]int32{100, 100, 100, 50, 200}).Draw(t, "priority"),
				Created:  rapid.Int64Range(0, 3).Draw(t, "created"),
				UID:      fmt.Sprintf("q%02d", i),
			}
			if !s.flat {
				q.Parent = rapid.Int32Range(-1, int32(i)-1).Draw(t, "parent")
			}
			for dim := range dims {
				q.Quota = append(q.Quota, bounded(dim, 12).Draw(t, "quota"))
				q.Limit = append(q.Limit, bounded(dim, 40).Draw(t, "limit"))
				q.Request = append(q.Request, amount(dim, 40).Draw(t, "request"))
				q.Weight = append(q.Weight, fixedPoint(5).Draw(t, "weight"))
				q.Usage = append(q.Usage, fixedPoint(1).Draw(t, "usage"))
			}
			in.Queues = append(in.Queues, q)
		}
		return in
	})
}

// divide copies the shares out of a fresh Divider.
func divide(in *fairshare.Input) [][]int64 {
	var d fairshare.Divider
	shares := d.Divide(in)
	out := make([][]int64, len(in.Queues))
	for i := range out {
		out[i] = append([]int64{}, shares.Of(i)...)
	}
	return out
}

func TestDivideEqualsOracle(t *testing.T) {
	t.Parallel()
	var d fairshare.Divider // reused: scratch of one input must not show in the next
	rapid.Check(t, func(t *rapid.T) {
		in := wellFormed(shape{history: rapid.Bool().Draw(t, "history")}).Draw(t, "input")
		shares := d.Divide(in)
		for i, want := range oracle(in) {
			if diff := cmp.Diff(want, shares.Of(i)); diff != "" {
				t.Fatalf("queue %d (-oracle +got):\n%s", i, diff)
			}
		}
	})
}

func TestDivideIgnoresOrderOfInput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := wellFormed(shape{history: true}).Draw(t, "input")
		n := len(in.Queues)
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		order = rapid.Permutation(order).Draw(t, "order")
		place := make([]int32, n)
		for to, from := range order {
			place[from] = int32(to)
		}
		shuffled := *in
		shuffled.Queues = make([]fairshare.Queue, n)
		for from, q := range in.Queues {
			if q.Parent >= 0 {
				q.Parent = place[q.Parent]
			}
			shuffled.Queues[place[from]] = q
		}
		want, got := divide(in), divide(&shuffled)
		for i := range want {
			if diff := cmp.Diff(want[i], got[place[i]]); diff != "" {
				t.Fatalf("queue %s (-before +shuffled):\n%s", in.Queues[i].UID, diff)
			}
		}
	})
}

// wild draws any numbers at all, slices of any length, and parents that need not exist.
func wild() *rapid.Generator[*fairshare.Input] {
	number := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-3, 3),
		rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, math.MaxInt64 - 1, fairshare.Unlimited}))
	vector := rapid.SliceOfN(number, 0, 3)
	return rapid.Custom(func(t *rapid.T) *fairshare.Input {
		in := &fairshare.Input{Total: vector.Draw(t, "total"), Unit: vector.Draw(t, "unit"), KValue: number.Draw(t, "k")}
		for i := range rapid.IntRange(0, 8).Draw(t, "queues") {
			in.Queues = append(in.Queues, fairshare.Queue{
				Parent: rapid.OneOf(rapid.Int32Range(-2, 9), rapid.Int32()).Draw(t, "parent"), Priority: rapid.Int32().Draw(t, "priority"),
				Created: number.Draw(t, "created"), UID: fmt.Sprint(i),
				Quota: vector.Draw(t, "quota"), Limit: vector.Draw(t, "limit"), Request: vector.Draw(t, "request"),
				Weight: vector.Draw(t, "weight"), Usage: vector.Draw(t, "usage"),
			})
		}
		return in
	})
}

func amountOf(v []int64, dim int) int64 {
	if dim >= len(v) || v[dim] < 0 {
		return 0
	}
	return v[dim]
}

func boundOf(v []int64, dim int) int64 {
	if dim < len(v) && v[dim] == fairshare.Unlimited {
		return math.MaxInt64
	}
	return amountOf(v, dim)
}

func limitOf(v []int64, dim int) int64 {
	if dim >= len(v) {
		return math.MaxInt64
	}
	return boundOf(v, dim)
}

// checkConservation asserts what holds for every input: at most what was asked for and allowed, at least the quota, and
// over quota no more in sum than quotas leave.
func checkConservation(t *rapid.T, in *fairshare.Input, fair [][]int64) {
	total := func(parent int32, dim int) int64 {
		if parent < 0 {
			return amountOf(in.Total, dim)
		}
		return fair[parent][dim]
	}
	reached := make([]bool, len(in.Queues))
	for range in.Queues {
		for i, q := range in.Queues {
			reached[i] = q.Parent == -1 || q.Parent >= 0 && int(q.Parent) < len(in.Queues) && reached[q.Parent]
		}
	}
	type set struct {
		parent int32
		dim    int
	}
	quotas, overs := map[set]*big.Int{}, map[set]*big.Int{}
	for i, q := range in.Queues {
		for dim, got := range fair[i] {
			if !reached[i] {
				if got != 0 {
					t.Fatalf("queue %d dim %d: %d, but it hangs from nothing", i, dim, got)
				}
				continue
			}
			requestable := min(amountOf(q.Request, dim), limitOf(q.Limit, dim))
			promised := min(requestable, boundOf(q.Quota, dim))
			if len(q.Quota) > dim && q.Quota[dim] == fairshare.Unlimited {
				promised = min(requestable, total(q.Parent, dim))
			}
			if got < promised || got > requestable {
				t.Fatalf("queue %d dim %d: %d outside [quota %d, requestable %d]", i, dim, got, promised, requestable)
			}
			if amountOf(q.Weight, dim) == 0 && got != promised {
				t.Fatalf("queue %d dim %d: %d without a weight, want its quota %d", i, dim, got, promised)
			}
			key := set{q.Parent, dim}
			if quotas[key] == nil {
				quotas[key], overs[key] = new(big.Int), new(big.Int)
			}
			quotas[key].Add(quotas[key], big.NewInt(promised))
			overs[key].Add(overs[key], big.NewInt(got-promised))
		}
	}
	for key, over := range overs {
		left := new(big.Int).Sub(big.NewInt(total(key.parent, key.dim)), quotas[key])
		if left.Sign() < 0 {
			left.SetInt64(0)
		}
		if over.Cmp(left) > 0 {
			t.Fatalf("children of %d, dim %d: %v over quota, but quotas left %v", key.parent, key.dim, over, left)
		}
	}
}

func TestDivideConserves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := wellFormed(shape{history: true}).Draw(t, "input")
		checkConservation(t, in, divide(in))
	})
}

func TestDivideSurvivesAnyInput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := wild().Draw(t, "input")
		checkConservation(t, in, divide(in))
	})
}

// Without history nothing stays undivided that a queue with a weight wants; so more to divide means more divided.
func TestDivideLeavesNothingOver(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := wellFormed(shape{flat: true}).Draw(t, "input")
		for dim, total := range in.Total {
			var granted, want, promised int64
			for i, got := range divide(in) {
				q := &in.Queues[i]
				granted += got[dim]
				requestable := min(q.Request[dim], limitOf(q.Limit, dim))
				quota := q.Quota[dim]
				if quota == fairshare.Unlimited {
					quota = total
				}
				promised += min(quota, requestable)
				if q.Weight[dim] > 0 {
					want += requestable - min(quota, requestable)
				}
			}
			if expected := promised + min(want, max(0, total-promised)); granted != expected {
				t.Fatalf("dim %d: %d granted, want %d", dim, granted, expected)
			}
		}
	})
}

// Two queues that differ in weight (or, the other way round, usage) only: the heavier (less used) one gets no less.
// Queues that do not differ are at most one unit apart.
func TestDivideFavoursTheHeavierTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := wellFormed(shape{flat: true, history: true}).Draw(t, "input")
		heavy := in.Queues[0]
		heavy.UID = "twin"
		heavy.Weight = append([]int64{}, heavy.Weight...)
		heavy.Usage = append([]int64{}, heavy.Usage...)
		same := make([]bool, len(in.Total))
		for dim := range in.Total {
			heavier := rapid.Int64Range(0, 3).Draw(t, "heavier") * fairshare.One / 2
			less := min(heavy.Usage[dim], rapid.Int64Range(0, 3).Draw(t, "less")*fairshare.One/4)
			heavy.Weight[dim] += heavier
			heavy.Usage[dim] -= less
			same[dim] = heavier == 0 && (less == 0 || in.KValue == 0)
		}
		in.Queues = append(in.Queues, heavy)
		fair := divide(in)
		for dim := range in.Total {
			light, heavy := fair[0][dim], fair[len(fair)-1][dim]
			if same[dim] && max(light-heavy, heavy-light) > in.Unit[dim] {
				t.Fatalf("dim %d: equal queues got %d and %d", dim, light, heavy)
			}
			if !same[dim] && heavy < light {
				t.Fatalf("dim %d: the heavier queue got %d, the lighter %d", dim, heavy, light)
			}
		}
	})
}

// What a queue is granted as quota depends on nobody else's numbers.
func TestDivideQuotaIsUnconditional(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := wellFormed(shape{flat: true, history: true}).Draw(t, "input")
		in.Total = make([]int64, len(in.Total)) // nothing there: nothing but finite quotas is granted
		for i, fair := range divide(in) {
			q := &in.Queues[i]
			for dim, got := range fair {
				want := min(q.Request[dim], limitOf(q.Limit, dim), max(0, q.Quota[dim]))
				if got != want {
					t.Fatalf("queue %d dim %d: got %d, want %d", i, dim, got, want)
				}
			}
		}
	})
}

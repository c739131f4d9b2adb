package fairshare_test

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/fairshare"
)

// This page judges the division by a definition of its own, and shares no code with it: over quota, water is poured into vessels as
// wide as weights until each is as full as it may be, in rational numbers and without rounds. Whole units may differ from that by
// what rounding moves, never by more.

// pour divides left over vessels of these needs and widths: the level λ at which Σ min(need, λ·width) = left, found by raising it
// from one full vessel to the next.
func pour(left *big.Rat, need []*big.Int, width []int64) []*big.Rat {
	got := make([]*big.Rat, len(need))
	full := make([]bool, len(need))
	for i := range got {
		got[i] = new(big.Rat)
		full[i] = need[i].Sign() <= 0 || width[i] == 0
	}
	for left.Sign() > 0 {
		wide := new(big.Int)
		for i := range need {
			if !full[i] {
				wide.Add(wide, big.NewInt(width[i]))
			}
		}
		if wide.Sign() == 0 {
			return got
		}
		rise := new(big.Rat).Quo(left, new(big.Rat).SetInt(wide)) // of the level, if no vessel were full before
		for i := range need {
			if !full[i] {
				lacks := new(big.Rat).Sub(new(big.Rat).SetInt(need[i]), got[i])
				if until := lacks.Quo(lacks, big.NewRat(width[i], 1)); until.Cmp(rise) < 0 {
					rise = until
				}
			}
		}
		for i := range need {
			if !full[i] {
				more := new(big.Rat).Mul(rise, big.NewRat(width[i], 1))
				got[i].Add(got[i], more)
				left = new(big.Rat).Sub(left, more)
				full[i] = got[i].Cmp(new(big.Rat).SetInt(need[i])) == 0
			}
		}
	}
	return got
}

// vast draws trees of up to three levels with numbers of all sizes, weights of 0, and limits below what is asked.
func vast() *rapid.Generator[*fairshare.Input] {
	amount := rapid.OneOf(rapid.Int64Range(0, 9), rapid.Int64Range(0, 1<<40), rapid.SampledFrom([]int64{1 << 50, 1 << 61, math.MaxInt64 - 1, math.MaxInt64}))
	bound := rapid.OneOf(amount, rapid.Just(fairshare.Unlimited))
	return rapid.Custom(func(t *rapid.T) *fairshare.Input {
		in := &fairshare.Input{Total: []int64{rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, 1<<60)).Draw(t, "total")}, Unit: []int64{1}}
		for i := range rapid.IntRange(1, 10).Draw(t, "queues") {
			in.Queues = append(in.Queues, fairshare.Queue{
				Parent: rapid.Int32Range(-1, min(int32(i)-1, 4)).Draw(t, "parent"), Priority: rapid.SampledFrom([]int32{100, 100, 200}).Draw(t, "priority"), UID: fmt.Sprint(i),
				Quota: []int64{bound.Draw(t, "quota")}, Limit: []int64{bound.Draw(t, "limit")}, Request: []int64{amount.Draw(t, "request")},
				Weight: []int64{rapid.SampledFrom([]int64{0, 0, 1, 1_000_000, 3_000_000, fairshare.MaxWeight}).Draw(t, "weight")},
				Held:   []int64{rapid.SampledFrom([]int64{0, 0, 1, 5}).Draw(t, "held")}, Served: rapid.Int64Range(0, 3).Draw(t, "served"),
			})
		}
		for i := range in.Queues { // only leaves ask for themselves
			for k := range in.Queues {
				if in.Queues[k].Parent == int32(i) {
					in.Queues[i].Request = []int64{0}
				}
			}
		}
		return in
	})
}

// useful is what a queue can use, by the definition: of a leaf what it asks for, of others what their children can use; all
// within limits.
func useful(in *fairshare.Input, i int) *big.Int {
	sum, q := big.NewInt(in.Queues[i].Request[0]), &in.Queues[i]
	for k := range in.Queues {
		if in.Queues[k].Parent == int32(i) {
			sum.Add(sum, useful(in, k))
		}
	}
	if limit := big.NewInt(q.Limit[0]); q.Limit[0] != fairshare.Unlimited && limit.Cmp(sum) < 0 {
		return limit
	}
	return sum
}

// TestDivideIsWater: whatever the numbers, each queue gets what water would give it, to the unit per sibling.
func TestDivideIsWater(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := vast().Draw(t, "input")
		use := make([]*big.Int, len(in.Queues))
		for i := range use {
			use[i] = useful(in, i)
		}
		var d fairshare.Divider
		d.AddUp(in.Queues)
		shares := d.Divide(in)
		for parent := -1; parent < len(in.Queues); parent++ {
			total := in.Total[0]
			if parent >= 0 {
				total = shares.Of(parent)[0]
			}
			var group []int
			priorities := map[int32]bool{}
			for i := range in.Queues {
				if in.Queues[i].Parent == int32(parent) {
					group = append(group, i)
					priorities[in.Queues[i].Priority] = true
				}
			}
			left, ideal := new(big.Rat).SetInt64(total), map[int]*big.Rat{}
			for _, i := range group {
				promised := big.NewInt(in.Queues[i].Quota[0])
				if in.Queues[i].Quota[0] == fairshare.Unlimited {
					promised.SetInt64(total)
				}
				if use[i].Cmp(promised) < 0 {
					promised.Set(use[i])
				}
				ideal[i] = new(big.Rat).SetInt(promised)
				left = new(big.Rat).Sub(left, ideal[i])
			}
			for _, priority := range []int32{200, 100} {
				var need []*big.Int
				var width []int64
				var who []int
				for _, i := range group {
					if in.Queues[i].Priority == priority {
						lacks := new(big.Rat).Sub(new(big.Rat).SetInt(use[i]), ideal[i])
						need, width, who = append(need, lacks.Num()), append(width, in.Queues[i].Weight[0]), append(who, i)
					}
				}
				for k, more := range pour(left, need, width) {
					ideal[who[k]].Add(ideal[who[k]], more)
					left = new(big.Rat).Sub(left, more)
				}
			}
			for _, i := range group {
				apart := new(big.Rat).Sub(new(big.Rat).SetInt64(shares.Of(i)[0]), ideal[i])
				if apart.Abs(apart).Cmp(big.NewRat(int64(len(group)), 1)) > 0 && ideal[i].Cmp(new(big.Rat).SetInt64(math.MaxInt64)) < 0 {
					t.Fatalf("queue %d below %d: %d, water gives %s", i, parent, shares.Of(i)[0], ideal[i].FloatString(3))
				}
			}
		}
	})
}

// TestTurnsComeToAll: of any number of equal queues that all ask and never hold for long, each is given a unit before any is
// given a second one; and who holds one keeps it.
func TestTurnsComeToAll(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, units := rapid.IntRange(2, 9).Draw(t, "queues"), int64(rapid.IntRange(1, 8).Draw(t, "units"))
		units = min(units, int64(n)-1)
		in := &fairshare.Input{Total: []int64{units * 1000}, Unit: []int64{1000}}
		for i := range n {
			in.Queues = append(in.Queues, fairshare.Queue{
				Parent: -1, UID: fmt.Sprint(i), Created: int64(n - i), Limit: []int64{fairshare.Unlimited}, Request: []int64{5000}, Weight: []int64{fairshare.One}, Held: []int64{0},
			})
		}
		turns, holds := make([]int, n), map[int]bool{}
		for at := int64(1); at < int64(4*n); at++ {
			fair := divide(in)
			for i := range n {
				if holds[i] && fair[i][0] != 1000 {
					t.Fatalf("queue %d holds a unit, and its share is %d", i, fair[i][0])
				}
				if fair[i][0] == 1000 && !holds[i] {
					turns[i]++
					holds[i] = true
					in.Queues[i].Held[0], in.Queues[i].Served = 1000, at
				}
			}
			for i := range n {
				if more := turns[i] - turns[(i+1)%n]; more > 1 && units == 1 {
					t.Fatalf("turns: %v", turns)
				}
			}
			var busy []int
			for i := range n {
				if holds[i] {
					busy = append(busy, i)
				}
			}
			ends := rapid.SampledFrom(busy).Draw(t, "ends")
			in.Queues[ends].Held[0] = 0
			delete(holds, ends)
		}
		for i, had := range turns {
			if had == 0 {
				t.Fatalf("queue %d had no turn: %v", i, turns)
			}
		}
	})
}

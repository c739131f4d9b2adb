package fairshare_test

import (
	"math/big"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/fairshare"
)

// oracle divides as the package comment says, in rational numbers, by the plainest code that does: everything is looked
// up and computed again whenever it is needed. It expects well-formed input: no missing parent, amounts >= 0 or
// Unlimited, full slices.
func oracle(in *fairshare.Input) [][]int64 {
	fair := make([][]int64, len(in.Queues))
	for i := range fair {
		fair[i] = make([]int64, len(in.Total))
	}
	for dim := range in.Total {
		oracleChildren(in, fair, -1, dim, in.Total[dim])
	}
	return fair
}

func oracleChildren(in *fairshare.Input, fair [][]int64, parent, dim int, total int64) {
	var siblings []int
	for i := range in.Queues {
		if int(in.Queues[i].Parent) == parent {
			siblings = append(siblings, i)
		}
	}
	if len(siblings) == 0 {
		return
	}
	requestable := func(i int) int64 {
		q := &in.Queues[i]
		if q.Limit[dim] != fairshare.Unlimited && q.Limit[dim] < q.Request[dim] {
			return q.Limit[dim]
		}
		return q.Request[dim]
	}
	need := func(i int) int64 { return requestable(i) - fair[i][dim] }

	// Step 1.
	left := big.NewInt(total)
	for _, i := range siblings {
		quota := in.Queues[i].Quota[dim]
		if quota == fairshare.Unlimited {
			quota = total
		}
		fair[i][dim] = min(quota, requestable(i))
		left.Sub(left, big.NewInt(fair[i][dim]))
	}

	if left.Sign() > 0 {
		oracleOverQuota(in, fair, siblings, dim, left.Int64(), need)
	}
	for _, i := range siblings {
		oracleChildren(in, fair, i, dim, fair[i][dim])
	}
}

func oracleOverQuota(in *fairshare.Input, fair [][]int64, siblings []int, dim int, left int64, need func(int) int64) {
	priorities := map[int32]bool{}
	for _, i := range siblings {
		priorities[in.Queues[i].Priority] = true
	}
	var descending []int32
	for p := range priorities {
		descending = append(descending, p)
	}
	slices.Sort(descending)
	slices.Reverse(descending)

	rat := func(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }
	fixed := func(n int64) *big.Rat { return big.NewRat(n, fairshare.One) }
	unit := in.Unit[dim]
	fraction := map[int]*big.Rat{}

	// Step 2.
	for _, priority := range descending {
		for again := true; again && left > 0; {
			again = false
			var players []int
			weights := rat(0)
			for _, i := range siblings {
				if in.Queues[i].Priority == priority && need(i) > 0 && in.Queues[i].Weight[dim] > 0 {
					players = append(players, i)
					weights.Add(weights, fixed(in.Queues[i].Weight[dim]))
				}
			}
			if len(players) == 0 {
				break
			}
			parts, sum := map[int]*big.Rat{}, rat(0)
			for _, i := range players {
				n := new(big.Rat).Quo(fixed(in.Queues[i].Weight[dim]), weights)
				s := new(big.Rat).Sub(n, fixed(in.Queues[i].Usage[dim]))
				s.Mul(s, fixed(max(0, in.KValue))).Add(s, n)
				if s.Sign() < 0 {
					s = rat(0)
				}
				parts[i] = s
				sum.Add(sum, s)
			}
			if sum.Sign() == 0 {
				break
			}
			amount := rat(left)
			for _, i := range players {
				share := new(big.Rat).Quo(new(big.Rat).Mul(amount, parts[i]), sum)
				wants := rat(need(i))
				if wants.Cmp(share) <= 0 {
					again = again || wants.Cmp(share) < 0
					left -= need(i)
					fair[i][dim] += need(i)
					delete(fraction, i)
					continue
				}
				units := new(big.Rat).Quo(share, rat(unit))
				floor := new(big.Int).Quo(units.Num(), units.Denom()).Int64() * unit
				fair[i][dim] += floor
				left -= floor
				fraction[i] = share.Sub(share, rat(floor))
			}
		}
	}

	// Step 3.
	for _, priority := range descending {
		var waiting []int
		for _, i := range siblings {
			if fraction[i] != nil && in.Queues[i].Priority == priority {
				waiting = append(waiting, i)
			}
		}
		slices.SortFunc(waiting, func(a, b int) int {
			if c := fraction[b].Cmp(fraction[a]); c != 0 {
				return c
			}
			if in.KValue > 0 {
				if c := new(big.Rat).Quo(fixed(in.Queues[a].Usage[dim]), fixed(in.Queues[a].Weight[dim])).Cmp(new(big.Rat).Quo(fixed(in.Queues[b].Usage[dim]), fixed(in.Queues[b].Weight[dim]))); c != 0 {
					return c
				}
			}
			if l, r := in.Queues[a].Created, in.Queues[b].Created; l != r {
				if l < r {
					return -1
				}
				return 1
			}
			return strings.Compare(in.Queues[a].UID, in.Queues[b].UID)
		})
		for _, i := range waiting {
			grant := min(unit, left, need(i))
			fair[i][dim] += grant
			left -= grant
		}
	}
}

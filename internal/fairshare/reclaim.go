package fairshare

import (
	"cmp"
	"math/bits"
)

// Reclaim is the policy of taking from one queue for another. A chain is a leaf queue and its ancestors, leaf first, as
// in [OverLimit]; the states' Allocated is a ledger that changes as victims are taken, so that every answer is about the
// moment it is given. All methods cost a few operations per level and dimension and allocate nothing.
//
// Two queues meet at a level: the first two different queues on their ways down from the top, which are siblings. One
// team may take from another only what the two ancestors at that level owe each other.
//
// Relevant are the first Core dimensions, requested or not, and every further shared dimension that is requested. So,
// as in KAI Scheduler, a queue that is above its share of CPU reclaims no GPU, while a dimension that some queue happens
// to name matters only to those who ask for it.
type Reclaim struct {
	// Shared is that of [Input].
	Shared []bool

	// Core is how many leading dimensions are always relevant: 3 (CPU, memory, GPU) in KAI Scheduler.
	Core int

	// Multiplier, fixed-point, makes a reclaimer that is above its fair share look that much more saturated: from [One],
	// which smaller values count as, to MaxFactor.
	Multiplier int64
}

// relevant tells whether a dimension counts for a reclaimer with that request.
func (r *Reclaim) relevant(request []int64, dim int) bool {
	return sharesDim(r.Shared, dim) && (dim < r.Core || at(request, dim) > 0)
}

// dims is the number of dimensions that can be relevant.
func (r *Reclaim) dims(request []int64) int { return max(r.Core, len(request)) }

// OverFairShare tells whether request would lift the leaf queue of the chain above its fair share in a relevant
// dimension. If so the queue has no claim on what others hold. The first excess is returned.
func (r *Reclaim) OverFairShare(chain []*State, request []int64) (Excess, bool) {
	if len(chain) == 0 {
		return Excess{}, false
	}
	leaf := chain[0]
	for dim := range r.dims(request) {
		e := Excess{Dim: dim, Bound: at(leaf.Fair, dim), Used: at(leaf.Allocated, dim), Asked: at(request, dim)}
		if r.relevant(request, dim) && e.Asked > e.Bound-e.Used {
			return e, true
		}
	}
	return Excess{}, false
}

// OverQuota tells whether request as non-preemptible work would lift the non-preemptible part of a queue of the chain
// above its quota in a relevant dimension. It is stricter than the function [OverQuota], which looks only at what is
// requested: nobody is evicted for work that sits in a queue that owes already.
func (r *Reclaim) OverQuota(chain []*State, request []int64) (Excess, bool) {
	for level, s := range chain {
		for dim := range r.dims(request) {
			e := Excess{Level: level, Dim: dim, Bound: quotaAt(s.Quota, dim), Used: at(s.NonPreemptible, dim), Asked: at(request, dim)}
			if r.relevant(request, dim) && e.Bound != Unlimited && e.Asked > e.Bound-e.Used {
				return e, true
			}
		}
	}
	return Excess{}, false
}

// ReclaimRule is the rule by which something may be taken.
type ReclaimRule int8

const (
	// ReclaimNone means that nothing may be taken.
	ReclaimNone ReclaimRule = iota
	// ReclaimFairShare means that the queue it is taken from holds more than its allocatable share of something, and keeps that
	// share until the moment of taking.
	ReclaimFairShare
	// ReclaimQuota means that the reclaimer stays within its quota, and the queue it is taken from is above its own.
	ReclaimQuota
)

// String returns the rule as it stands in decision records.
func (r ReclaimRule) String() string {
	switch r {
	case ReclaimFairShare:
		return "OverFairShare"
	case ReclaimQuota:
		return "QuotaGuaranteed"
	}
	return "None"
}

// Refusal says why nothing may be taken. The zero Refusal is none.
type Refusal struct {
	Rule RefusalRule
	// Reclaimer and Victim are the two queues at the level where the chains meet.
	Reclaimer, Victim *State
	// Dim is the dimension that decided, or the first relevant one where all of them together did.
	Dim int
	// Have is what the victim's queue holds of Dim (after the taking, for RefusedSaturation), and Bound what it would
	// have to exceed: its allocatable share, its quota, or the amount that makes it more saturated than the reclaimer.
	Have, Bound int64
}

// RefusalRule names the rule that refused.
type RefusalRule int8

// The rules.
const (
	// RefusedNone: it may be taken.
	RefusedNone RefusalRule = iota
	// RefusedSameQueue: the two are one queue; inside a queue priority decides.
	RefusedSameQueue
	// RefusedFairShare: the reclaimer goes beyond its quota, and the victim's queue is within its allocatable share.
	RefusedFairShare
	// RefusedQuota: the reclaimer is within its quota, but so is the victim's queue.
	RefusedQuota
	// RefusedSaturation: the reclaimer's queue would be above its fair share, and not less so than the victim's.
	RefusedSaturation
)

// String returns the rule as words that complete "refused:".
func (r RefusalRule) String() string {
	switch r {
	case RefusedNone:
		return "no"
	case RefusedSameQueue:
		return "same queue"
	case RefusedFairShare:
		return "within its fair share"
	case RefusedQuota:
		return "within its quota"
	case RefusedSaturation:
		return "reclaimer no less saturated"
	}
	return "unknown rule"
}

// Levels returns the two queues where the chains meet: the first different ones from the top, or, if one chain is the
// upper part of the other, the last common one twice. Both are nil if a chain is empty.
func Levels(a, b []*State) (*State, *State) {
	i, j := len(a)-1, len(b)-1
	if i < 0 || j < 0 {
		return nil, nil
	}
	for i > 0 && j > 0 && a[i] == b[j] {
		i, j = i-1, j-1
	}
	return a[i], b[j]
}

// FilterVictim tells whether anything of the victim's queue can be a candidate at all for the reclaimer's request:
//
//   - If the request would lift the reclaimer's queue at the level above its quota in a relevant dimension, the victim's
//     queue there has to hold more than its allocatable share of one.
//   - Otherwise, over the dimensions that are requested and in which the victim's queue has a finite quota: it passes if
//     it is above quota in one, and if it is below quota in none.
//
// A candidate still has to pass [Reclaim.CheckUnit].
func (r *Reclaim) FilterVictim(reclaimer, victim []*State, request []int64) (Refusal, bool) {
	mine, theirs := Levels(reclaimer, victim)
	if mine == theirs {
		return Refusal{Rule: RefusedSameQueue, Reclaimer: mine, Victim: theirs}, false
	}
	if !r.withinQuota(mine, request) {
		if r.aboveAllocatable(theirs, request) {
			return Refusal{}, true
		}
		return r.refuse(RefusedFairShare, mine, theirs, request), false
	}
	refusal := Refusal{}
	for dim := range request {
		quota := quotaAt(theirs.Quota, dim)
		if request[dim] <= 0 || quota == Unlimited || !sharesDim(r.Shared, dim) {
			continue
		}
		switch held := at(theirs.Allocated, dim); {
		case held > quota:
			return Refusal{}, true
		case held < quota && refusal.Rule == RefusedNone:
			refusal = Refusal{Rule: RefusedQuota, Reclaimer: mine, Victim: theirs, Dim: dim, Have: held, Bound: quota}
		}
	}
	return refusal, refusal.Rule == RefusedNone
}

// Standing appends to key what FilterVictim looks at of a victim's queue at the level, over so many dimensions: whatever the
// request, it has one answer for siblings of one standing, but for the refusal's queue and amounts.
func (r *Reclaim) Standing(key []byte, s *State, dims int) []byte {
	for dim := range max(r.Core, dims) {
		x := byte('-')
		if sharesDim(r.Shared, dim) {
			quota, share, held := quotaAt(s.Quota, dim), s.Allocatable(dim), at(s.Allocated, dim)
			if x = '0'; quota != Unlimited {
				x = byte('2' + cmp.Compare(held, quota))
			}
			if share != Unlimited {
				x += 4
				if held > share {
					x += 4
				}
			}
		}
		key = append(key, x)
	}
	return key
}

// CheckUnit tells whether one more unit may be taken from the victim's chain for the reclaimer's request, after the
// units that the ledger shows as gone, and by which rule. A unit is what is evicted in one piece: the core of a gang,
// or one pod above its minimum. The rules are those by which KAI Scheduler judges a finished set of victims, so that
// units may be added one by one and each prefix is a legal set:
//
//   - Before the taking the victim's queue at the level is above its allocatable share of something relevant
//     ([ReclaimFairShare]), or the reclaimer's queue there stays within quota with the request and the victim's is above
//     its quota in something relevant ([ReclaimQuota]). The unit itself may take the queue below.
//   - After the taking, in each dimension that is requested or part of the unit: if the reclaimer's queue at the level,
//     with the request, is above its fair share, then its part of fair share times Multiplier is below that of the
//     victim's queue. (A victim's queue with no fair share does not mind.)
//
// Looking at the two queues of the level is enough: a unit touches no other sibling of a queue on the reclaimer's chain,
// those touched before are as they were, and taking never makes a queue of the reclaimer's chain more saturated. For
// that last reason a refusal can turn into a yes after a unit was taken below the reclaimer's own queue at the level,
// and only then.
func (r *Reclaim) CheckUnit(reclaimer, victim []*State, request, unit []int64) (ReclaimRule, Refusal) {
	mine, theirs := Levels(reclaimer, victim)
	if mine == theirs {
		return ReclaimNone, Refusal{Rule: RefusedSameQueue, Reclaimer: mine, Victim: theirs}
	}
	var rule ReclaimRule
	if r.aboveAllocatable(theirs, request) {
		rule = ReclaimFairShare
	} else if !r.withinQuota(mine, request) {
		return ReclaimNone, r.refuse(RefusedFairShare, mine, theirs, request)
	} else if r.aboveQuota(theirs, request) {
		rule = ReclaimQuota
	} else {
		return ReclaimNone, r.refuse(RefusedQuota, mine, theirs, request)
	}
	for dim := range max(r.Core, len(request)) {
		if !r.relevant(request, dim) || at(request, dim) == 0 && at(unit, dim) == 0 {
			continue
		}
		after := addSat(at(mine.Allocated, dim), at(request, dim))
		fair, theirFair := at(mine.Fair, dim), at(theirs.Fair, dim)
		if after <= fair || theirFair == 0 {
			continue
		}
		left := max(0, at(theirs.Allocated, dim)-at(unit, dim))
		if fair == 0 || compareProducts(after, r.multiplier(), theirFair, left, One, fair) >= 0 {
			return ReclaimNone, Refusal{
				Rule: RefusedSaturation, Reclaimer: mine, Victim: theirs, Dim: dim,
				Have: left, Bound: saturated(after, r.multiplier(), fair, theirFair),
			}
		}
	}
	return rule, Refusal{}
}

// multiplier is Multiplier within its range.
func (r *Reclaim) multiplier() int64 { return min(max(One, r.Multiplier), MaxFactor) }

// withinQuota tells whether the queue stays within its quota with the request in every relevant dimension.
func (r *Reclaim) withinQuota(s *State, request []int64) bool {
	for dim := range r.dims(request) {
		quota := quotaAt(s.Quota, dim)
		if r.relevant(request, dim) && quota != Unlimited && at(request, dim) > quota-at(s.Allocated, dim) {
			return false
		}
	}
	return true
}

// aboveQuota tells whether the queue is above its quota in some relevant dimension.
func (r *Reclaim) aboveQuota(s *State, request []int64) bool {
	for dim := range r.dims(request) {
		quota := quotaAt(s.Quota, dim)
		if r.relevant(request, dim) && quota != Unlimited && at(s.Allocated, dim) > quota {
			return true
		}
	}
	return false
}

// aboveAllocatable tells whether the queue is above its allocatable share in some relevant dimension.
func (r *Reclaim) aboveAllocatable(s *State, request []int64) bool {
	for dim := range r.dims(request) {
		if !r.relevant(request, dim) {
			continue
		}
		if share := s.Allocatable(dim); share != Unlimited && at(s.Allocated, dim) > share {
			return true
		}
	}
	return false
}

// refuse fills in the dimension that says most: the first requested one with a finite bound, else the first relevant
// one with a finite bound.
func (r *Reclaim) refuse(rule RefusalRule, mine, theirs *State, request []int64) Refusal {
	out := Refusal{Rule: rule, Reclaimer: mine, Victim: theirs, Bound: Unlimited}
	for dim := range r.dims(request) {
		if !r.relevant(request, dim) {
			continue
		}
		bound := quotaAt(theirs.Quota, dim)
		if rule == RefusedFairShare {
			bound = theirs.Allocatable(dim)
		}
		asked := at(request, dim) > 0
		if bound != Unlimited && (asked || out.Bound == Unlimited) {
			out.Dim, out.Have, out.Bound = dim, at(theirs.Allocated, dim), bound
			if asked {
				break
			}
		}
	}
	return out
}

// saturated is after × multiplier / fair × theirFair, rounded down and saturating: what a queue of fair share theirFair
// holds when it is exactly as saturated as the reclaimer.
func saturated(after, multiplier, fair, theirFair int64) int64 {
	if fair == 0 {
		return maxAmount
	}
	// Scaling by the multiplier first loses at most the last digits of an amount that only people read.
	hi, lo := bits.Mul64(uint64(after), uint64(multiplier))
	if hi >= uint64(One) {
		return maxAmount
	}
	scaled, _ := bits.Div64(hi, lo, uint64(One))
	hi, lo = bits.Mul64(scaled, uint64(theirFair))
	if hi >= uint64(fair) {
		return maxAmount
	}
	q, _ := bits.Div64(hi, lo, uint64(fair))
	return int64(min(q, uint64(maxAmount)))
}

// compareProducts compares a·b·c with x·y·z, all non-negative, exactly.
func compareProducts(a, b, c, x, y, z int64) int {
	lHi, lMid, lLo := product(a, b, c)
	rHi, rMid, rLo := product(x, y, z)
	return cmp.Or(cmp.Compare(lHi, rHi), cmp.Compare(lMid, rMid), cmp.Compare(lLo, rLo))
}

// product is a·b·c in 192 bits.
func product(a, b, c int64) (hi, mid, lo uint64) {
	abHi, abLo := bits.Mul64(uint64(a), uint64(b))
	mid, lo = bits.Mul64(abLo, uint64(c))
	hi, upper := bits.Mul64(abHi, uint64(c))
	mid, carry := bits.Add64(mid, upper, 0)
	return hi + carry, mid, lo
}

package fairshare

import (
	"cmp"
	"math/bits"
)

// State is what order and capacity checks need to know of a queue at one moment. Amounts have one entry per dimension;
// short slices go on with zeros, Limit with Unlimited. The same State serves a whole run while Allocated changes under it.
type State struct {
	Priority int32
	Created  int64
	UID      string

	// Quota and Limit are those of [Queue].
	Quota []int64
	Limit []int64

	// Fair is the queue's fair share, from [Shares.Of].
	Fair []int64

	// Allocated is what the queue's subtree holds, NonPreemptible the part of it that nobody may take away.
	Allocated      []int64
	NonPreemptible []int64

	// Stuck is what is held besides by pods that are being deleted, and not known to go; StuckNonPreemptible the part of it that
	// counts for quota. Holding is everything that is held now: by what is placed at once, and by all that is leaving until it
	// has gone; HoldingNonPreemptible likewise. They count for limits and quotas only: see [OverLimit].
	Stuck, StuckNonPreemptible     []int64
	Holding, HoldingNonPreemptible []int64
}

// Allocatable is what the queue may grow to in one dimension: its fair share, but at least its quota and at most its
// limit. It is Unlimited if quota and limit are.
func (s *State) Allocatable(dim int) int64 {
	quota, limit := quotaAt(s.Quota, dim), limitAt(s.Limit, dim)
	if quota == Unlimited {
		return limit
	}
	return atMost(max(quota, at(s.Fair, dim)), limit)
}

// Order compares sibling queues of one cluster.
type Order struct {
	// Total is what the cluster has; it stands in for an unlimited allocatable share.
	Total []int64

	// Unit is that of [Input]: it says how much of a dimension weighs like one of another where a queue's share is 0.
	Unit []int64

	// Shared is that of [Input]: other dimensions take no part in the order.
	Shared []bool

	// Core is how many leading dimensions a queue must exceed, all of them, to be over-utilised: 3 (CPU, memory, GPU)
	// in KAI Scheduler. 0 or less: every dimension of Total.
	Core int
}

// Key is what decides about a queue's turn, for one next gang. It stays valid until the State changes.
type Key struct {
	order     *Order
	state     *State
	dims      int
	over      bool
	overQuota bool
	hopeless  bool
	next      Share
	now       Share
}

// Key distils the state of a queue whose next gang asks for request, as if victims (the sum of what its victims hold)
// were gone. For the order of victims, request is nil. It costs a handful of operations per dimension and allocates
// nothing.
func (o *Order) Key(s *State, request, victims []int64) Key {
	dims := max(len(o.Total), len(s.Quota), len(s.Limit), len(s.Fair), len(s.Allocated), len(request))
	core := o.Core
	if core <= 0 {
		core = len(o.Total)
	}
	k := Key{order: o, state: s, dims: dims, over: core > 0, next: Share{den: 1}, now: Share{den: 1}}
	for dim := range dims {
		if !sharesDim(o.Shared, dim) {
			continue
		}
		allocated := at(s.Allocated, dim)
		wanted := addSat(allocated, at(request, dim))
		allocatable := s.Allocatable(dim)
		if quota := quotaAt(s.Quota, dim); quota != Unlimited && wanted > quota {
			k.overQuota = true
		}
		if allocatable == 0 && wanted > 0 {
			k.hopeless = true
		}
		k.now = k.now.larger(o.share(allocated, allocatable, dim))
		k.next = k.next.larger(o.share(max(0, wanted-at(victims, dim)), allocatable, dim))
	}
	for dim := range core {
		if at(s.Allocated, dim) <= at(s.Fair, dim) {
			k.over = false
		}
	}
	return k
}

// share is amount/allocatable. Of nothing every whole unit counts a thousandfold.
func (o *Order) share(amount, allocatable int64, dim int) Share {
	if allocatable == Unlimited {
		allocatable = at(o.Total, dim)
	}
	if allocatable == 0 {
		return Share{num: mulSat(amount, 1000), den: unitAt(o.Unit, dim)}
	}
	return Share{num: amount, den: allocatable}
}

// Rule names the step of the queue order that told two queues apart.
type Rule int8

// The rules, in the order in which [Compare] asks them. Who "goes first" is served first.
const (
	// RuleSame: nothing tells the two apart; they have the same UID.
	RuleSame Rule = iota
	// RuleOverUtilised: a queue that holds more than its fair share in all core dimensions goes last.
	RuleOverUtilised
	// RuleQuota: a queue that stays within quota in every dimension with its next gang goes first.
	RuleQuota
	// RulePriority: the higher priority goes first.
	RulePriority
	// RuleNoShare: a queue that holds or wants something of which its allocatable share is 0 goes last.
	RuleNoShare
	// RuleShareNext: the smaller dominant share, with the next gang and without the victims, goes first.
	RuleShareNext
	// RuleShareNow: the smaller dominant share as things are goes first.
	RuleShareNow
	// RuleAllocatable: the smaller allocatable share goes first, decided by the last dimension that differs.
	RuleAllocatable
	// RuleAge: the older queue goes first.
	RuleAge
	// RuleUID: the smaller UID goes first.
	RuleUID
)

// String returns the rule as words that complete "decided by".
func (r Rule) String() string {
	switch r {
	case RuleSame:
		return "nothing"
	case RuleOverUtilised:
		return "over-utilisation"
	case RuleQuota:
		return "quota"
	case RulePriority:
		return "priority"
	case RuleNoShare:
		return "use without a share"
	case RuleShareNext:
		return "dominant share with the next gang"
	case RuleShareNow:
		return "dominant share"
	case RuleAllocatable:
		return "allocatable share"
	case RuleAge:
		return "age"
	case RuleUID:
		return "UID"
	}
	return "unknown rule"
}

// Compare says which queue is served first: negative for a, positive for b, and 0 only for queues of the same UID that
// nothing tells apart. It is a strict total order over keys of one [Order]. Victims are taken in the reverse order.
func Compare(a, b *Key) int {
	order, _ := Decide(a, b)
	return order
}

// Decide is [Compare] and the rule that decided, for explanations.
func Decide(a, b *Key) (int, Rule) {
	if a.over != b.over {
		return falseFirst(a.over), RuleOverUtilised
	}
	if a.overQuota != b.overQuota {
		return falseFirst(a.overQuota), RuleQuota
	}
	if c := cmp.Compare(b.state.Priority, a.state.Priority); c != 0 {
		return c, RulePriority
	}
	if a.hopeless != b.hopeless {
		return falseFirst(a.hopeless), RuleNoShare
	}
	if c := a.next.Compare(b.next); c != 0 {
		return c, RuleShareNext
	}
	if c := a.now.Compare(b.now); c != 0 {
		return c, RuleShareNow
	}
	for dim := max(a.dims, b.dims) - 1; dim >= 0; dim-- {
		if !sharesDim(a.order.Shared, dim) {
			continue
		}
		if c := compareBounds(a.state.Allocatable(dim), b.state.Allocatable(dim)); c != 0 {
			return c, RuleAllocatable
		}
	}
	if c := cmp.Compare(a.state.Created, b.state.Created); c != 0 {
		return c, RuleAge
	}
	if c := cmp.Compare(a.state.UID, b.state.UID); c != 0 {
		return c, RuleUID
	}
	return 0, RuleSame
}

// falseFirst orders two queues of which exactly one has a flag: the one without goes first.
func falseFirst(a bool) int {
	if a {
		return 1
	}
	return -1
}

// Share is a non-negative fraction, compared exactly. Its zero value is 0.
type Share struct{ num, den int64 }

// Compare returns -1, 0 or 1.
func (s Share) Compare(t Share) int {
	lHi, lLo := bits.Mul64(uint64(s.num), uint64(max(1, t.den)))
	rHi, rLo := bits.Mul64(uint64(t.num), uint64(max(1, s.den)))
	return cmp.Or(cmp.Compare(lHi, rHi), cmp.Compare(lLo, rLo))
}

func (s Share) larger(t Share) Share {
	if s.Compare(t) < 0 {
		return t
	}
	return s
}

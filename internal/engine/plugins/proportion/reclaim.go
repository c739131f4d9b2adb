package proportion

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/fairshare"
)

// The rules that make a unit legal, as the record of the decision says them.
const (
	ruleFairShare = "its queue held more than its fair share"
	ruleQuota     = "its queue held more than its quota, and the other stays within its own"
)

// CheckReclaim implements policy.ReclaimGate: the queue must stay within its fair share, and non-preemptible work within
// quota at every level. It begins a search.
func (i *instance) CheckReclaim(g *ledger.GangState, request cluster.Resources) policy.Verdict {
	chain := i.chains[g.Leaf.ID]
	if e, over := i.take.OverFairShare(chain, request); over {
		return policy.Verdict{
			Code: policy.No, Reason: ReasonOverFairShare, Object: g.Leaf.Name, Dim: i.view.Snapshot().Dims.Name(e.Dim),
			Need: e.Used + min(e.Asked, cluster.MaxQuantity), Have: e.Bound,
		}
	}
	if !g.Preemptible {
		if e, over := i.take.OverQuota(chain, request); over {
			return i.verdict(ReasonNonPreemptibleOverQuota, g.Leaf, e)
		}
	}
	return policy.Verdict{}
}

// CheckVictimQueue implements policy.VictimQueueFilter for reclaim; the other causes have nothing to do with shares.
func (i *instance) CheckVictimQueue(r policy.EvictionCause, g *ledger.GangState, request cluster.Resources, leaf *ledger.QueueLedger) policy.Verdict {
	if r != policy.Reclaim {
		return policy.Verdict{}
	}
	refusal, ok := i.take.FilterVictim(i.chains[g.Leaf.ID], i.chains[leaf.ID], request)
	if ok {
		return policy.Verdict{}
	}
	return i.refused(leaf, refusal)
}

// Standing implements policy.SiblingFilter: see [fairshare.Reclaim.FilterVictim].
func (i *instance) Standing(key []byte, q cluster.QueueID) []byte {
	return i.take.Standing(key, i.states[q], i.view.Snapshot().Dims.Len())
}

// CheckUnit implements policy.UnitCheck for reclaim; what is only moved is not taken. A refusal can turn into a yes in one
// case only: after something was taken from a queue that g's own queue meets further down than it meets the unit's.
func (i *instance) CheckUnit(r policy.EvictionCause, g *ledger.GangState, request cluster.Resources, u *ledger.VictimUnit) (string, policy.Verdict) {
	if r != policy.Reclaim || u.Moved {
		return "", policy.Verdict{}
	}
	right, refusal := i.take.CheckUnit(i.chains[g.Leaf.ID], i.chains[u.Gang.Leaf.ID], request, u.Charge)
	switch right {
	case fairshare.ReclaimFairShare:
		return ruleFairShare, policy.Verdict{}
	case fairshare.ReclaimQuota:
		return ruleQuota, policy.Verdict{}
	}
	return "", i.refused(u.Gang.Leaf, refusal)
}

// refused says the rule that protects a victim whose leaf queue is given.
func (i *instance) refused(leaf *ledger.QueueLedger, r fairshare.Refusal) policy.Verdict {
	v := policy.Verdict{Code: policy.No, Reason: policy.ReasonVictimWithinShare, Dim: i.view.Snapshot().Dims.Name(r.Dim), Need: r.Bound, Have: r.Have}
	switch r.Rule {
	case fairshare.RefusedSameQueue:
		v.Reason = policy.ReasonOtherQueue
	case fairshare.RefusedSaturation:
		v.Reason = policy.ReasonSaturation
	}
	for range slices.Index(i.chains[leaf.ID], r.Victim) {
		leaf = leaf.Parent
	}
	v.Object = leaf.Name
	return v
}

// CompareVictimQueues implements policy.VictimOrder: queues above their share before queues that only a quota has a claim on (or
// those would take back from the first what was taken from them, and two would be evicted for one); then the reverse of
// the order in which queues are served, as if what each gives next were gone already.
func (i *instance) CompareVictimQueues(l, r cluster.QueueID, lUnit, rUnit cluster.Resources) int {
	if c := policy.First(i.aboveShare(l), i.aboveShare(r)); c != 0 {
		return c
	}
	return fairshare.Compare(i.key(r, rUnit, true), i.key(l, lUnit, true))
}

// aboveShare says whether a queue holds more of something than it may grow to.
func (i *instance) aboveShare(q cluster.QueueID) bool {
	st := i.states[q]
	for d, x := range st.Allocated {
		if bound := st.Allocatable(d); d < len(i.order.Shared) && i.order.Shared[d] && bound != fairshare.Unlimited && x > bound {
			return true
		}
	}
	return false
}

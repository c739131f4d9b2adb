package votes

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// The names of the plugins that bound what is admitted by queues, and the switches that reach them as arguments, each "true" or not there.
const (
	Proportion = "proportion"
	Capacity   = "capacity"
	// HierarchyArgument has capacity follow the tree of queues: a gang must be within what each queue on its way to the root may have.
	HierarchyArgument = "enableHierarchy"
	// ReclaimArgument says that room is reclaimed for gangs of the face.
	ReclaimArgument = "reclaim"
)

// ProportionFactory and CapacityFactory declare them: a gang is permitted where what it asks for, and what its queue holds and has admitted, less what the queue's gangs
// hold beyond their minimums, is no more than what the queue may have: the cluster less all that is guaranteed to others, and at most its limit.
//
// With the argument enableHierarchy capacity has each queue divide what it may have below itself, and asks all of them up to the root. With reclaim besides, what queues
// beside the gang's hold beyond their quota is no reason against a gang that stays within its own queue's quota: it can be taken back.
var (
	ProportionFactory = policy.Makes(func(args policy.Arguments) (func(*policy.View) *queueVote, []string, error) {
		return func(v *policy.View) *queueVote { return openQueues(v, false, false) }, args.Unknown(ReclaimArgument), nil
	}, ReasonQueueFull)
	CapacityFactory = policy.Makes(func(args policy.Arguments) (func(*policy.View) *queueVote, []string, error) {
		return func(v *policy.View) *queueVote {
			return openQueues(v, args[HierarchyArgument] == "true", args[ReclaimArgument] == "true")
		}, args.Unknown(HierarchyArgument, ReclaimArgument), nil
	})
)

type queueVote struct {
	view      *policy.View
	hierarchy bool
	reclaims  bool
	may       map[cluster.QueueID]cluster.Resources // what a queue may have: computed when asked for
	all       cluster.Resources
	promised  map[string]cluster.Resources // by face: what is guaranteed to all its queues but its root
}

func openQueues(v *policy.View, hierarchy, reclaims bool) *queueVote {
	q := &queueVote{
		view: v, hierarchy: hierarchy, reclaims: hierarchy && reclaims, may: map[cluster.QueueID]cluster.Resources{}, all: whole(v.Snapshot()),
		promised: map[string]cluster.Resources{},
	}
	for _, of := range v.Queues() {
		if !of.Lost && of.Parent != nil {
			face, _ := cluster.SplitQueue(of.Name)
			sum := q.promised[face]
			sum.AddCapped(of.Guarantee)
			q.promised[face] = sum
		}
	}
	return q
}

// mayHave is what a queue may have: of all there is, or, by hierarchy, of what its parent may have, what is guaranteed to no other queue, and at most its limit.
func (q *queueVote) mayHave(of *ledger.QueueLedger) cluster.Resources {
	if r, known := q.may[of.ID]; known {
		return r
	}
	from, promised := q.all, cluster.Resources(nil)
	switch {
	case !q.hierarchy:
		face, _ := cluster.SplitQueue(of.Name)
		promised = q.promised[face]
	case of.Parent != nil:
		from = q.mayHave(of.Parent)
		for _, sibling := range of.Parent.Children {
			if !sibling.Lost {
				promised.AddCapped(sibling.Guarantee)
			}
		}
	}
	out := from.Clone()
	for d := range out {
		if of.Parent != nil || !q.hierarchy {
			out[d] = max(0, out[d]-promised.At(d)) + of.Guarantee.At(d)
		}
		if limit := of.LimitAt(d); limit != cluster.Unlimited {
			out[d] = min(out[d], limit)
		}
	}
	q.may[of.ID] = out
	return out
}

// VoteAdmission implements policy.AdmissionVote.
func (q *queueVote) VoteAdmission(g *ledger.GangState, asks cluster.Resources) (policy.Vote, policy.Verdict) {
	for of := g.Leaf; of != nil; of = of.Parent {
		may, claims := q.mayHave(of), q.view.Claimed(of)
		left := func(d int) int64 {
			return may.At(d) - of.Allocated.At(d) - claims.Inqueue.At(d) + claims.Elastic.At(d)
		}
		if d, over := short(asks, left); over && !q.given(g, of, asks, left) {
			return policy.Reject, policy.Verdict{
				Code: policy.No, Reason: ReasonQueueFull, Object: of.Name, Dim: q.view.Snapshot().Dims.Name(d), Need: asks[d], Have: max(0, left(d)),
			}
		}
		if !q.hierarchy {
			break
		}
	}
	return policy.Permit, policy.Verdict{}
}

// given says whether a queue above the gang's has what is asked for once other queues below it have given back what they hold beyond their quota, and the gang's own
// stays within its quota.
func (q *queueVote) given(g *ledger.GangState, above *ledger.QueueLedger, asks cluster.Resources, left func(d int) int64) bool {
	if !q.reclaims || above == g.Leaf {
		return false
	}
	claims := q.view.Claimed(g.Leaf)
	if _, over := short(asks, func(d int) int64 { return g.Leaf.Quota.At(d) - g.Leaf.Allocated.At(d) - claims.Inqueue.At(d) }); over {
		return false
	}
	back := make(cluster.Resources, len(asks))
	var walk func(of *ledger.QueueLedger)
	walk = func(of *ledger.QueueLedger) {
		for _, c := range of.Children {
			walk(c)
		}
		if len(of.Children) == 0 && of != g.Leaf {
			for d := range back {
				back[d] += max(0, of.Allocated.At(d)-of.Quota.At(d))
			}
		}
	}
	walk(above)
	_, over := short(asks, func(d int) int64 { return left(d) + back[d] })
	return !over
}

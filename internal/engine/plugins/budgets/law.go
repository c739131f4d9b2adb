package budgets

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// LawName is the name by which Volcano's file has its plugin of PodDisruptionBudgets.
const LawName = "pdb"

// LawFactory declares it; it takes any arguments. A pod is not taken whose eviction a budget does not allow, whatever its queue says; all others may be, as far as this plugin goes. What uses a
// budget up is as for all work: see the package.
var LawFactory = policy.Makes(func(policy.Arguments) (func(*policy.View) *law, []string, error) {
	return func(v *policy.View) *law { return &law{of: plugin{}.open(v)} }, nil, nil
})

// law asks budgets about candidates. It has a part of its own without any budget: who is asked and refuses nobody permits all.
type law struct{ of *instance }

func (l *law) vote(c *policy.Candidate) (policy.Vote, policy.Verdict) {
	if l.of == nil {
		return policy.Permit, policy.Verdict{}
	}
	first := l.of.violated(&ledger.VictimUnit{Pods: append(c.Before[:len(c.Before):len(c.Before)], c.Pod)}) // by c.Pod: those before it were permitted
	if first == nil {
		return policy.Permit, policy.Verdict{}
	}
	return policy.Reject, policy.Verdict{Code: policy.No, Reason: policy.ReasonBudget, Object: first.key, Need: 1, Have: max(0, int64(first.left))}
}

// VotePreemptable implements policy.Preemptable.
func (l *law) VotePreemptable(_ *ledger.GangState, _ cluster.Resources, c *policy.Candidate) (policy.Vote, policy.Verdict) {
	return l.vote(c)
}

// VoteReclaimable implements policy.Reclaimable.
func (l *law) VoteReclaimable(_ *ledger.GangState, _ cluster.Resources, c *policy.Candidate) (policy.Vote, policy.Verdict) {
	return l.vote(c)
}

// Keeps implements policy.VictimKeeper.
func (l *law) Keeps(u *ledger.VictimUnit) bool { return l.of != nil && l.of.violated(u) != nil }

// Done implements policy.Observer.
func (l *law) Done(op ledger.Op) {
	if l.of != nil {
		l.of.Done(op)
	}
}

// Undone implements policy.Observer.
func (l *law) Undone(op ledger.Op) {
	if l.of != nil {
		l.of.Undone(op)
	}
}

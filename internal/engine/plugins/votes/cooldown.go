package votes

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Cooldown is the name of the plugin that leaves pods alone which started a short time ago.
const Cooldown = "cdp"

// CooldownFactory declares it; it takes any arguments. A pod that runs is not taken before its cooldown, counted from when it got its node, is over. That it got its node in the future counts
// for nothing. All other pods may be taken, as far as this plugin goes.
var CooldownFactory = policy.Makes(func(policy.Arguments) (func(*policy.View) cooldownLaw, []string, error) {
	return func(v *policy.View) cooldownLaw { return cooldownLaw{v} }, nil, nil
}, ReasonCooldown)

type cooldownLaw struct{ view *policy.View }

func (l cooldownLaw) vote(c *policy.Candidate) (policy.Vote, policy.Verdict) {
	snap := l.view.Snapshot()
	if since := snap.Past(c.Pod.Scheduled); c.Pod.Phase == cluster.Running && !since.IsZero() {
		if until := since.Add(c.Pod.Cooldown); until.After(snap.Now) {
			return policy.Reject, policy.Verdict{Code: policy.Wait, Reason: ReasonCooldown, Object: c.Gang.Key.String(), WakeAt: until}
		}
	}
	return policy.Permit, policy.Verdict{}
}

// VotePreemptable implements policy.Preemptable.
func (l cooldownLaw) VotePreemptable(_ *ledger.GangState, _ cluster.Resources, c *policy.Candidate) (policy.Vote, policy.Verdict) {
	return l.vote(c)
}

// VoteReclaimable implements policy.Reclaimable.
func (l cooldownLaw) VoteReclaimable(_ *ledger.GangState, _ cluster.Resources, c *policy.Candidate) (policy.Vote, policy.Verdict) {
	return l.vote(c)
}

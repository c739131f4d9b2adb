package votes

import (
	"fmt"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// The name and the argument of the plugin by which who has waited long enough is admitted.
const (
	SLA             = "sla"
	WaitingArgument = "sla-waiting-time"
)

// SLAFactory declares it: a gang is permitted once it has waited, since it was made, for as long as it says, or else the argument sla-waiting-time does; until then, and
// where nobody says, others decide. Who has to be admitted first goes first.
var SLAFactory = policy.Makes(buildSLA)

func buildSLA(args policy.Arguments) (func(*policy.View) *waitVote, []string, error) {
	wait := time.Duration(0)
	if text, said := args[WaitingArgument]; said {
		d, err := Waiting(text)
		if err != nil {
			return nil, nil, err
		}
		wait = d
	}
	return func(v *policy.View) *waitVote { return &waitVote{v, wait} }, args.Unknown(WaitingArgument), nil
}

// Waiting reads how long a gang waits at most.
func Waiting(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("argument %q is %.40q; it must be a duration above 0, such as 1h30m", WaitingArgument, text)
	}
	return d, nil
}

type waitVote struct {
	view *policy.View
	wait time.Duration // 0 for none
}

// waits is how long a gang waits at most, 0 for nobody says.
func (s *waitVote) waits(g *ledger.GangState) time.Duration {
	if g.AdmitAfter.Set {
		return g.AdmitAfter.Value
	}
	return s.wait
}

// VoteAdmission implements policy.AdmissionVote.
func (s *waitVote) VoteAdmission(g *ledger.GangState, _ cluster.Resources) (policy.Vote, policy.Verdict) {
	wait := s.waits(g)
	if wait <= 0 {
		return policy.Abstain, policy.Verdict{}
	}
	if at := s.view.Snapshot().Past(g.Created).Add(wait); at.After(s.view.Snapshot().Now) {
		return policy.Abstain, policy.Verdict{WakeAt: at}
	}
	return policy.Permit, policy.Verdict{}
}

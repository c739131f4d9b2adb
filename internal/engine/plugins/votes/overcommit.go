package votes

import (
	"fmt"
	"math/big"
	"math/bits"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// The name and the argument of the plugin that bounds what is admitted by what the cluster has.
const (
	Overcommit     = "overcommit"
	FactorArgument = "overcommit-factor"
)

// defaultFactor is 1.2 in millionths, the unit of factors.
const (
	defaultFactor = 1_200_000
	millionths    = 1_000_000
	mostFactor    = 1_000_000 // times: beyond it nothing is bounded
)

// OvercommitFactory declares it: a gang is permitted where all that was admitted and has not started, and what it asks for, is no more than what the nodes have, times
// the factor, less what pods hold. The factor is 1.2 unless overcommit-factor says another; below 1 it is 1.2.
var OvercommitFactory = policy.Makes(buildOvercommit, ReasonOvercommitted)

func buildOvercommit(args policy.Arguments) (func(*policy.View) *clusterVote, []string, error) {
	factor := int64(defaultFactor)
	if text, said := args[FactorArgument]; said {
		f, err := Factor(text)
		if err != nil {
			return nil, nil, err
		}
		factor = f
	}
	return func(v *policy.View) *clusterVote { return openOvercommit(v, factor) }, args.Unknown(FactorArgument), nil
}

// Factor reads a factor in millionths.
func Factor(text string) (int64, error) {
	r, ok := new(big.Rat).SetString(text)
	if len(text) > 32 || !ok || r.Cmp(big.NewRat(mostFactor, 1)) > 0 {
		return 0, fmt.Errorf("argument %q is %.40q; it must be a number, and at most %d", FactorArgument, text, mostFactor)
	}
	if r.Cmp(big.NewRat(1, 1)) < 0 {
		return defaultFactor, nil
	}
	r.Mul(r, big.NewRat(millionths, 1))
	return new(big.Int).Quo(r.Num(), r.Denom()).Int64(), nil
}

type clusterVote struct {
	view *policy.View
	idle cluster.Resources // as the run begins
}

func openOvercommit(v *policy.View, factor int64) *clusterVote {
	idle := total(v.Snapshot())
	for d, x := range idle {
		idle[d] = times(x, factor)
	}
	snap := v.Snapshot()
	for _, id := range snap.NodeOrder {
		for d, x := range snap.Node(id).Used {
			if d < len(idle) {
				idle[d] = max(-cluster.MaxSum, idle[d]-x)
			}
		}
	}
	return &clusterVote{view: v, idle: idle}
}

// times is x, 0 or more, times a factor in millionths, and stops at cluster.MaxSum.
func times(x, factor int64) int64 {
	hi, lo := bits.Mul64(uint64(max(0, x)), uint64(factor))
	if hi >= millionths {
		return cluster.MaxSum
	}
	q, _ := bits.Div64(hi, lo, millionths)
	return int64(min(q, uint64(cluster.MaxSum)))
}

// VoteAdmission implements policy.AdmissionVote.
func (o *clusterVote) VoteAdmission(_ *ledger.GangState, asks cluster.Resources) (policy.Vote, policy.Verdict) {
	inqueue := o.view.Claimed(nil).Inqueue
	left := func(d int) int64 { return o.idle.At(d) - inqueue.At(d) }
	if d, over := short(asks, left); over {
		return policy.Reject, policy.Verdict{
			Code: policy.No, Reason: ReasonOvercommitted, Dim: o.view.Snapshot().Dims.Name(d), Need: asks[d], Have: max(0, left(d)),
		}
	}
	return policy.Permit, policy.Verdict{}
}

// Package nodescores is how Volcano's plugins rank the nodes that a pod fits on: binpack, nodeorder and resource-strategy-fit. The formulas are those of Volcano's documentation.
//
// Amounts are integers in the model's units, and a score is in billionths of a point (policy.ScorePoint). There is one rule of rounding: every division is cut to the unit
// below. binpack and resource-strategy-fit divide in billionths of a point; nodeorder, whose scorers are kube-scheduler's, in whole points.
//
// What is used of a node is what it has less what is free now: what is leaving still counts. Where a score is relative to the best of all candidates, these are all nodes that
// are known, so that scores do not change with what fits.
package nodescores

import (
	"math/bits"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// The names of the plugins.
const (
	Binpack     = "binpack"
	NodeOrder   = "nodeorder"
	StrategyFit = "resource-strategy-fit"
)

// whole is the score of the best node: 100 points.
const whole = 100 * policy.ScorePoint

// MostWeight is the largest weight that is read: with it all scores together are less than what tells room that is there from room that will be.
const MostWeight = 1000

// weight reads a weight, a whole number.
func weight(args policy.Arguments, name string, otherwise int64) (int64, error) {
	return args.Whole(name, otherwise, MostWeight)
}

// use is how much of a dimension of a node would be used with a pod on it, and of how much; over says that it would be more than there is.
func use(v *policy.View, c *cluster.Class, n *cluster.Node, dim int) (used, of int64, over bool) {
	of = n.Allocatable.At(dim)
	used = max(0, of-v.Idle(n.ID).At(dim)) + c.Requests.At(dim)
	return used, of, used > of
}

// part is points times x of y, 0 ≤ x ≤ y and 0 < y, cut to the unit below.
func part(points, x, y int64) int64 {
	hi, lo := bits.Mul64(uint64(points), uint64(x))
	q, _ := bits.Div64(hi, lo, uint64(y))
	return int64(q)
}

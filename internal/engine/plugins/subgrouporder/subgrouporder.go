// Package subgrouporder says which set of a gang is filled next: those below their minimum before satisfied ones;
// required before optional ones; then the one that has the least of what it needs.
package subgrouporder

import (
	"cmp"

	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "subgrouporder"

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Is(plugin{})

type plugin struct{}

// CompareSets implements policy.SetOrder. Ratios are compared by cross-multiplication, so that nothing is rounded.
func (plugin) CompareSets(g *ledger.GangState, l, r int32) int {
	lok, rok := g.SetSatisfied(l), g.SetSatisfied(r)
	if lok != rok {
		return policy.First(!lok, !rok)
	}
	if !lok {
		return 0
	}
	lmin, rmin := int64(g.SetNeed(l)), int64(g.SetNeed(r))
	if (lmin > 0) != (rmin > 0) {
		return policy.First(lmin > 0, rmin > 0)
	}
	la, ra := int64(g.SetActive(l)), int64(g.SetActive(r))
	if lmin == 0 {
		return cmp.Compare(la, ra)
	}
	return cmp.Compare(la*rmin, ra*lmin)
}

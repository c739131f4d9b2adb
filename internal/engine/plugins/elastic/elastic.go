// Package elastic orders gangs of one queue by need: those below their minimum first, then those exactly at it, then
// those above.
package elastic

import (
	"cmp"

	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "elastic"

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Is(plugin{})

type plugin struct{}

// CompareGangs implements policy.GangOrder.
func (plugin) CompareGangs(l, r *ledger.GangState) int { return cmp.Compare(l.Elastic(), r.Elastic()) }

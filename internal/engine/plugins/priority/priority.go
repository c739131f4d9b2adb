// Package priority orders gangs of one queue by priority: higher first.
package priority

import (
	"cmp"

	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "priority"

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Is(plugin{})

type plugin struct{}

// CompareGangs implements policy.GangOrder.
func (plugin) CompareGangs(l, r *ledger.GangState) int { return cmp.Compare(r.Priority, l.Priority) }

// Package priority orders gangs of one queue by priority: higher first.
package priority

import (
	"cmp"

	"github.com/muster-scheduler/muster/internal/engine"
)

// Name is the plugin's name in a profile.
const Name = "priority"

// Factory declares the plugin; it takes no arguments.
var Factory = engine.Is(plugin{})

type plugin struct{}

// CompareGangs implements engine.GangOrder.
func (plugin) CompareGangs(l, r *engine.GangState) int { return cmp.Compare(r.Priority, l.Priority) }

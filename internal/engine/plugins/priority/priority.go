// Package priority orders gangs of one queue by priority: higher first.
package priority

import (
	"cmp"

	"github.com/muster-scheduler/muster/internal/engine"
)

// Name is the plugin's name in a profile.
const Name = "priority"

// New builds the plugin; it takes no arguments.
func New(args engine.Arguments) (engine.Plugin, []string, error) {
	return plugin{}, args.Unknown(), nil
}

type plugin struct{}

// Open implements engine.Plugin; the order needs no state.
func (plugin) Open(*engine.View) engine.Instance { return plugin{} }

// CompareGangs implements engine.GangOrder.
func (plugin) CompareGangs(l, r *engine.GangState) int { return cmp.Compare(r.Priority, l.Priority) }

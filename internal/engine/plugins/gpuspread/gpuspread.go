// Package gpuspread spreads parts of GPUs over devices: of the devices of a node, a whole one first, then the emptiest.
package gpuspread

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "gpuspread"

// points is the score of an empty device (KAI: 1).
const points = 1 * policy.ScorePoint

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Is(plugin{})

type plugin struct{}

// ScoreDevice implements policy.DeviceOrder.
func (plugin) ScoreDevice(_ *cluster.Class, _ *cluster.Node, used, capacity cluster.DeviceUnits) int64 {
	if capacity <= 0 {
		return 0
	}
	return points / int64(capacity) * int64(capacity-min(used, capacity))
}

// Package gpupack fills shared GPUs: of the devices of a node that a part fits on, the fullest one first, and a whole device
// last.
package gpupack

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "gpupack"

// points is the score of a full device (KAI: 1).
const points = 1 * policy.ScorePoint

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Is(plugin{})

type plugin struct{}

// ScoreDevice implements policy.DeviceOrder.
func (plugin) ScoreDevice(_ *cluster.Class, _ *cluster.Node, used, capacity cluster.DeviceUnits) int64 {
	if capacity <= 0 {
		return 0
	}
	return points / int64(capacity) * int64(min(used, capacity))
}

// Package gpusharingorder sends pods that ask for parts of GPUs to nodes where devices that others share already have room
// for them, before a whole device is opened anywhere. Pods that ask for no part get nothing for it; KAI attracts those
// without any GPU to such nodes, too.
package gpusharingorder

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "gpusharingorder"

// points is the score of a node with room on a shared device (KAI: 10,000).
const points = 10_000 * policy.ScorePoint

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Opens(func(v *policy.View) instance { return instance{v} })

type instance struct{ view *policy.View }

// ScoreNode implements policy.NodeScore. One device with room is enough, as in KAI, however many the pod asks for.
func (i instance) ScoreNode(c *cluster.Class, n *cluster.Node) int64 {
	if c.Share.None() {
		return 0
	}
	units := n.DeviceUnits()
	takes, score := c.Share.Takes(units), int64(0)
	i.view.EachDevice(n.ID, func(_ string, _, later cluster.DeviceUnits) {
		if later > 0 && later+takes <= units {
			score = points
		}
	})
	return score
}

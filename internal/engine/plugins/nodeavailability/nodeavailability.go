// Package nodeavailability prefers nodes where the pod fits at once over nodes where it has to wait for a release.
package nodeavailability

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "nodeavailability"

// points is the score of a node where the pod fits at once (KAI: 1,000).
const points = 1000 * policy.ScorePoint

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Opens(func(v *policy.View) instance { return instance{v} })

type instance struct{ view *policy.View }

// ScoreNode implements policy.NodeScore.
func (i instance) ScoreNode(c *cluster.Class, n *cluster.Node) int64 {
	if i.view.FitsIdle(c, n.ID) {
		return points
	}
	return 0
}

// Package nominatednode prefers, above everything else, the node that a pod's status nominates.
package nominatednode

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "nominatednode"

// points is the bonus of the nominated node (KAI: 10,000,000).
const points = 10_000_000 * policy.ScorePoint

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Opens(func(v *policy.View) instance { return instance{v} })

type instance struct{ view *policy.View }

// Bonus implements policy.PodBonus.
func (i instance) Bonus(p *cluster.Pod) (cluster.NodeID, int64) {
	if p.Nominated == "" {
		return cluster.None, 0
	}
	n := i.view.Snapshot().NodeByName(p.Nominated)
	if n == nil {
		return cluster.None, 0
	}
	return n.ID, points
}

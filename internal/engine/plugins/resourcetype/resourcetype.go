// Package resourcetype keeps pods that need no GPU off the nodes that have some.
package resourcetype

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "resourcetype"

// points is the score of a node without GPUs for a pod without GPUs (KAI: 10).
const points = 10 * policy.ScorePoint

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Opens(open)

type instance struct{ slices []cluster.Slice }

// open opens the plugin for a run.
func open(v *policy.View) instance {
	return instance{v.Snapshot().Dims.Slices()}
}

// ScoreNode implements policy.NodeScore.
func (i instance) ScoreNode(c *cluster.Class, n *cluster.Node) int64 {
	if !c.CPUOnly() || n.Allocatable.At(cluster.GPU)+n.ClaimGPUs > 0 {
		return 0
	}
	for _, s := range i.slices {
		if n.Allocatable.At(s.Dim) > 0 {
			return 0
		}
	}
	return points
}

// Package resourcetype keeps pods that need no GPU off the nodes that have some.
package resourcetype

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// Name is the plugin's name in a profile.
const Name = "resourcetype"

// points is the score of a node without GPUs for a pod without GPUs (KAI: 10).
const points = 10 * engine.ScorePoint

// New builds the plugin; it takes no arguments.
func New(args engine.Arguments) (engine.Plugin, []string, error) {
	return plugin{}, args.Unknown(), nil
}

type plugin struct{}

type instance struct{ slices []cluster.Slice }

// Open implements engine.Plugin.
func (plugin) Open(v *engine.View) engine.Instance {
	if v == nil {
		return instance{}
	}
	return instance{v.Snapshot().Dims.Slices()}
}

// ScoreNode implements engine.NodeScore.
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

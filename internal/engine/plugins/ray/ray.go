// Package ray places the head of a Ray cluster before its workers.
package ray

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// Name is the plugin's name in a profile.
const Name = "ray"

// NodeTypeLabel is KubeRay's label that says what a pod is in its cluster.
const NodeTypeLabel = "ray.io/node-type"

// New builds the plugin; it takes no arguments.
func New(args engine.Arguments) (engine.Plugin, []string, error) {
	return plugin{}, args.Unknown(), nil
}

type plugin struct{}

// Open implements engine.Plugin; the order needs no state.
func (plugin) Open(*engine.View) engine.Instance { return plugin{} }

// ComparePods implements engine.PodOrder.
func (plugin) ComparePods(l, r *cluster.Pod) int {
	return engine.First(l.Labels[NodeTypeLabel] == "head", r.Labels[NodeTypeLabel] == "head")
}

// Package ray places the head of a Ray cluster before its workers.
package ray

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "ray"

// NodeTypeLabel is KubeRay's label that says what a pod is in its cluster.
const NodeTypeLabel = "ray.io/node-type"

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Is(plugin{})

type plugin struct{}

// ComparePods implements policy.PodOrder.
func (plugin) ComparePods(l, r *cluster.Pod) int {
	return policy.First(l.Labels[NodeTypeLabel] == "head", r.Labels[NodeTypeLabel] == "head")
}

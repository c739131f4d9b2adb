// Package kubeflow places the master or launcher of a Kubeflow job before its workers.
package kubeflow

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "kubeflow"

// RoleLabel is the label of Kubeflow's training operator that says what a pod is in its job.
const RoleLabel = "training.kubeflow.org/job-role"

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Is(plugin{})

type plugin struct{}

// ComparePods implements policy.PodOrder.
func (plugin) ComparePods(l, r *cluster.Pod) int {
	return policy.First(leads(l), leads(r))
}

func leads(p *cluster.Pod) bool {
	role := p.Labels[RoleLabel]
	return role == "master" || role == "launcher"
}

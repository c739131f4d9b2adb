package core

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Requests returns what p takes from a node: the sum over its containers and sidecars, or what its init containers need
// where that is more, plus overhead, plus one pod slot. A pod being resized takes the most of what it asks for, what
// it was granted and what it has, each summed over the pod first, as Kubernetes 1.37 does; those before took the most of each container.
//
// The rule is the one upstream publishes in component-helpers. A plain pod, which nearly all are, is summed here
// without the quantity arithmetic of that library; the two are kept equal by a property test.
func Requests(p *v1.Pod) []cluster.Quantity {
	return appendRequests(p, make([]cluster.Quantity, 0, usual))
}

// appendRequests appends [Requests] to out.
func appendRequests(p *v1.Pod, out []cluster.Quantity) []cluster.Quantity {
	var t tally
	if plain(p) {
		for i := range p.Spec.Containers {
			t.add(p.Spec.Containers[i].Resources.Requests)
		}
		t.add(p.Spec.Overhead)
	} else {
		t.add(RequestList(p))
	}
	t.pods = 1
	return t.quantities(out)
}

// RequestList is Requests in Kubernetes' own units and names, without the pod slot, for statuses that users read. The
// list is the caller's.
//
// Of a pod whose resize was found infeasible what it was granted counts, by its status, and not what it asks for. Only CPU and
// memory can be resized: of anything else a status that says less is not believed.
func RequestList(p *v1.Pod) v1.ResourceList {
	if len(p.Spec.Containers) == 1 && len(p.Spec.Overhead) == 0 && plain(p) {
		if out := p.Spec.Containers[0].Resources.Requests.DeepCopy(); out != nil {
			return out
		}
	}
	out := resource.PodRequests(p, resource.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true})
	if !resizing(p) {
		return out
	}
	for name, q := range resource.PodRequests(p, resource.PodResourcesOptions{}) { // order: a map again
		if has := out[name]; name != v1.ResourceCPU && name != v1.ResourceMemory && has.Cmp(q) < 0 {
			out[name] = q
		}
	}
	return out
}

// plain says whether p's containers alone decide what it takes: no init containers, nothing asked for at the level of
// the pod, and no resize under way.
func plain(p *v1.Pod) bool {
	if len(p.Spec.InitContainers) > 0 || p.Spec.Resources != nil || resizing(p) {
		return false
	}
	// A kubelet may also report the pod's sums. Those of one container are plain to see.
	if p.Status.AllocatedResources != nil || p.Status.Resources != nil {
		if len(p.Spec.Containers) != 1 || !covered(p.Spec.Containers[0].Resources.Requests, p.Status.Resources, p.Status.AllocatedResources) {
			return false
		}
	}
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		if s.Resources == nil && s.AllocatedResources == nil {
			continue
		}
		if c := container(p, s.Name, i); c == nil || !covered(c.Resources.Requests, s.Resources, s.AllocatedResources) {
			return false
		}
	}
	return true
}

// container returns p's container called name, looking at index i first, where it nearly always is.
func container(p *v1.Pod, name string, i int) *v1.Container {
	if i < len(p.Spec.Containers) && p.Spec.Containers[i].Name == name {
		return &p.Spec.Containers[i]
	}
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Name == name {
			return &p.Spec.Containers[i]
		}
	}
	return nil
}

// covered says whether what is asked for is at least what was granted and what there is.
func covered(asked v1.ResourceList, has *v1.ResourceRequirements, granted v1.ResourceList) bool {
	return covers(asked, granted) && (has == nil || covers(asked, has.Requests))
}

// covers says whether asked has at least as much as got of everything.
func covers(asked, got v1.ResourceList) bool {
	for name, q := range got {
		a, ok := asked[name]
		if !ok || a.Cmp(q) < 0 {
			return false
		}
	}
	return true
}

// resizing says whether a resize of p waits to be granted, or was refused, in which case what it asks for may not count.
func resizing(p *v1.Pod) bool {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == v1.PodResizePending {
			return true
		}
	}
	return false
}

package core

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Needs returns what of p's requests a kubelet that aligns pods to NUMA zones takes from zones, container by container in
// the order they start in; nil when there is nothing of the kind. Of a guaranteed pod these are CPUs, where a container
// asks for whole ones, memory, huge pages and devices; of any other pod devices alone. Containers of a pod that states
// its resources as a whole share CPUs and memory, so that their devices alone are aligned.
func Needs(p *v1.Pod) []cluster.Need {
	guaranteed := p.Spec.Resources == nil && Guaranteed(p)
	var out []cluster.Need
	add := func(c *v1.Container, role cluster.ContainerRole) {
		var list v1.ResourceList
		for name, q := range c.Resources.Requests { // order: a map again
			if q.Sign() <= 0 || !aligned(name, guaranteed) || name == v1.ResourceCPU && q.MilliValue()%1000 != 0 {
				continue
			}
			if list == nil {
				list = v1.ResourceList{}
			}
			list[name] = q
		}
		if amounts := Amounts(list); len(amounts) > 0 {
			slices.SortFunc(amounts, func(a, b cluster.Quantity) int { return strings.Compare(a.Name, b.Name) })
			out = append(out, cluster.Need{Role: role, Amounts: amounts})
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		role := cluster.Before
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			role = cluster.Sidecar
		}
		add(c, role)
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i], cluster.Together)
	}
	return out
}

// aligned says whether a resource can be one of a zone.
func aligned(name v1.ResourceName, guaranteed bool) bool {
	switch {
	case name == v1.ResourceCPU, name == v1.ResourceMemory, strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix):
		return guaranteed
	}
	return strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), v1.ResourceAttachableVolumesPrefix)
}

// Guaranteed says whether p is of the QoS class Guaranteed: as the API server has said, or, of a pod that no API server
// has seen, because every container's limits of CPU and memory are set and equal its requests.
func Guaranteed(p *v1.Pod) bool {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass == v1.PodQOSGuaranteed
	}
	whole := func(r *v1.ResourceRequirements) bool {
		for _, name := range [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			limit, ok := r.Limits[name]
			if !ok || limit.Sign() <= 0 {
				return false
			}
			if request, asked := r.Requests[name]; asked && request.Cmp(limit) != 0 {
				return false
			}
		}
		return true
	}
	if p.Spec.Resources != nil && resource.IsPodLevelRequestsSet(p) {
		return whole(p.Spec.Resources)
	}
	for _, cs := range [2][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range cs {
			if !whole(&cs[i].Resources) {
				return false
			}
		}
	}
	return len(p.Spec.Containers) > 0
}

// Quantities is the inverse of Amounts for a list of amounts: a resource list, with GPUs under NVIDIA's name unless AMD's
// is there too.
func Quantities(amounts []cluster.Quantity) v1.ResourceList {
	out := v1.ResourceList{}
	d := cluster.BaseDims()
	amd := slices.ContainsFunc(amounts, func(q cluster.Quantity) bool { return q.Name == string(AMDGPU) })
	for _, q := range amounts {
		if q.Name == d.Name(cluster.GPU) && amd {
			continue
		}
		dims, i := d.With(q.Name)
		r := make(cluster.Resources, dims.Len())
		r.Set(i, q.Value)
		maps.Copy(out, List(dims, r))
	}
	return out
}

package devices

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// extended adds the claim that the binder will make for the extended resources that p asks for and a DeviceClass stands for.
func (b *Index) extended(st *cluster.PodState, p *v1.Pod) {
	given := false
	for _, resource := range resourcesOf(containersOf(p)...) {
		b.now = append(b.now, want{resource: true, what: resource})
		given = given || b.class[resource] != nil
	}
	if !given { // which holds of most pods
		return
	}
	spec, resources := resourceapi.ResourceClaimSpec{}, []string(nil)
	for _, r := range parts(p) {
		class := b.class[r.resource]
		if class == nil {
			continue
		}
		spec.Devices.Requests = append(spec.Devices.Requests, resourceapi.DeviceRequest{
			Name: r.name(),
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: class.Name, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: r.count,
			},
		})
		resources = append(resources, r.resource)
	}
	if len(spec.Devices.Requests) == 0 {
		return
	}
	st.Spec.Devices = append(st.Spec.Devices, cluster.DeviceNeed{Spec: specText(&spec), Extended: true, Resources: resources})
	object := ""
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		object = p.Namespace + "/" + s.ResourceClaimName
	}
	st.DeviceClaims = append(st.DeviceClaims, cluster.DeviceClaim{Object: object})
}

// Containers says which containers of p use which requests of the claim for its extended resources, as far as those are among
// the requests given. A container may use several, and a request may serve several containers, one after the other.
func Containers(p *v1.Pod, requests []resourceapi.DeviceRequest) []v1.ContainerExtendedResourceRequest {
	var out []v1.ContainerExtendedResourceRequest
	for _, r := range parts(p) {
		name := r.name()
		if !slices.ContainsFunc(requests, func(made resourceapi.DeviceRequest) bool { return made.Name == name }) {
			continue
		}
		for _, container := range r.users {
			out = append(out, v1.ContainerExtendedResourceRequest{ContainerName: container, ResourceName: r.resource, RequestName: name})
		}
	}
	return out
}

// part is one request of the claim for a pod's extended resources.
type part struct {
	container, index int // the request is that of the index-th resource of a container, init containers first
	resource         string
	count            int64    // devices, more than 0
	users            []string // names of containers
}

func (p *part) name() string { return fmt.Sprintf("container-%d-request-%d", p.container, p.index) }

// parts is what a pod asks for of resources with a domain, as requests for devices, by resource and container. It depends on
// the pod alone, so that who makes the claim and who tells the kubelet of it mean the same.
//
// The rule is upstream's, and the sum is what the pod requests of its node: containers that run together have devices of their
// own. An init container that ends uses those of containers that start after it, and, where it needs more, some that all
// such init containers use in turn, as many as the neediest of them lacks.
func parts(p *v1.Pod) []part {
	containers := containersOf(p)
	var all []part
	for _, resource := range resourcesOf(containers...) {
		all = append(all, partsOf(resource, containers, len(p.Spec.InitContainers))...)
	}
	return all
}

// containersOf are p's containers, init containers first.
func containersOf(p *v1.Pod) []*v1.Container {
	containers := make([]*v1.Container, 0, len(p.Spec.InitContainers)+len(p.Spec.Containers))
	for i := range p.Spec.InitContainers {
		containers = append(containers, &p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		containers = append(containers, &p.Spec.Containers[i])
	}
	return containers
}

// partsOf is parts for one resource; the first inits containers are init containers.
func partsOf(resource string, containers []*v1.Container, inits int) []part {
	request := func(i int) part {
		q := containers[i].Resources.Requests[v1.ResourceName(resource)]
		return part{container: i, index: slices.Index(resourcesOf(containers[i]), resource), resource: resource, count: q.Value(), users: []string{containers[i].Name}}
	}
	ends := func(i int) bool {
		policy := containers[i].RestartPolicy
		return i < inits && (policy == nil || *policy != v1.ContainerRestartPolicyAlways)
	}
	var own []part
	for i := range containers {
		if r := request(i); r.count > 0 && !ends(i) {
			own = append(own, r)
		}
	}
	var more part
	for i := range containers[:inits] {
		lacks := request(i)
		if !ends(i) {
			continue
		}
		for k := range own {
			if later := &own[k]; later.container > i && lacks.count > 0 {
				later.users = append(later.users, containers[i].Name)
				lacks.count -= later.count
			}
		}
		if lacks.count <= 0 {
			continue
		}
		users := append(more.users, lacks.users...)
		if lacks.count > more.count {
			more = lacks
		}
		more.users = users
	}
	if more.count > 0 {
		own = append(own, more)
	}
	return own
}

// resourcesOf lists the names of the resources that containers ask for and that have a domain, sorted, each once.
func resourcesOf(containers ...*v1.Container) []string {
	var names []string
	for _, c := range containers {
		for name := range c.Resources.Requests { // order: sorted below
			if strings.Contains(string(name), "/") {
				names = append(names, string(name))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

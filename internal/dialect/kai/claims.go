package kai

import (
	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/devices"
)

// allocations returns the devices that a BindRequest gives the pod's claims. The objects behind the claims are not among
// what it says.
func allocations(spec *v1alpha2.BindRequestSpec) []cluster.ClaimAllocation {
	var out []cluster.ClaimAllocation
	for i := range spec.ResourceClaimAllocations {
		if a := &spec.ResourceClaimAllocations[i]; a.Allocation != nil {
			out = append(out, cluster.ClaimAllocation{DeviceClaim: cluster.DeviceClaim{Name: a.Name}, Allocation: a.Allocation})
		}
	}
	if x := spec.ExtendedResourceClaimAllocation; x != nil && x.Allocation != nil {
		out = append(out, cluster.ClaimAllocation{Allocation: x.Allocation, Requests: x.DeviceRequests})
	}
	return out
}

// allocate is the inverse of allocations.
func (in *Intent) allocate(spec *v1alpha2.BindRequestSpec) {
	for i := range in.Claims {
		c := &in.Claims[i]
		if c.Name != "" {
			spec.ResourceClaimAllocations = append(spec.ResourceClaimAllocations, v1alpha2.ResourceClaimAllocation{Name: c.Name, Allocation: c.Allocation})
			continue
		}
		spec.ExtendedResourceClaimAllocation = &v1alpha2.ExtendedResourceClaimAllocation{
			Allocation: c.Allocation, DeviceRequests: c.Requests, ContainerMappings: in.Containers,
		}
	}
}

// Containers says which containers of p asked for what extended resources, for the requests of the claim that stands for them.
func Containers(p *v1.Pod, claims []cluster.ClaimAllocation) []v1.ContainerExtendedResourceRequest {
	for i := range claims {
		if claims[i].Name == "" {
			return devices.Containers(p, claims[i].Requests)
		}
	}
	return nil
}

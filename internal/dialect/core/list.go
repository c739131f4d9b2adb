package core

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// List is the inverse of Amounts: a vector over d as a resource list, with GPUs under NVIDIA's name. Zero amounts and
// unlimited ones are left out; nil when nothing is left.
func List(d cluster.Dims, r cluster.Resources) v1.ResourceList {
	var out v1.ResourceList
	for i, x := range r {
		if x == 0 || x == cluster.Unlimited {
			continue
		}
		if out == nil {
			out = v1.ResourceList{}
		}
		switch i {
		case cluster.CPU:
			out[v1.ResourceCPU] = *resource.NewMilliQuantity(x, resource.DecimalSI)
		case cluster.RAM:
			out[v1.ResourceMemory] = *resource.NewQuantity(x, resource.BinarySI)
		case cluster.GPU:
			out[NvidiaGPU] = *resource.NewMilliQuantity(x, resource.DecimalSI)
		default:
			out[v1.ResourceName(d.Name(i))] = *resource.NewQuantity(x, resource.DecimalSI)
		}
	}
	return out
}

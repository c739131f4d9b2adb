package apply

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/engine"
)

// queueDetails are the numbers behind a reason that is a queue's: those of the queue that the verdict names, as the run
// left it, and what the gang asks for. nil for every other reason.
func queueDetails(dims cluster.Dims, queues []engine.QueueTrace, d *engine.Diagnosis, preemptible bool) *v2alpha2.QuotaDetails {
	if d.Verdict.Reason != engine.ReasonOverLimit && d.Verdict.Reason != engine.ReasonNonPreemptibleOverQuota {
		return nil
	}
	for i := range queues {
		q := &queues[i]
		if q.Name != d.Verdict.Object {
			continue
		}
		out := &v2alpha2.QuotaDetails{Name: q.Name,
			QueueRequestedResources: amounts(dims, q.Requested), QueueDeservedResources: amounts(dims, q.Quota),
			QueueAllocatedResources: amounts(dims, q.Allocated), QueueAllocatedNonPreemptibleResources: amounts(dims, q.NonPreemptible),
			QueueResourceLimits: amounts(dims, q.Limit), PodGroupRequestedResources: amounts(dims, d.Request)}
		if !preemptible {
			out.PodGroupRequestedNonPreemptibleResources = out.PodGroupRequestedResources
		}
		return out
	}
	return nil
}

// amounts writes a vector as Kubernetes does. What is unlimited is left out, and so are pod slots, which no queue counts;
// of further resources those of which there is nothing.
func amounts(dims cluster.Dims, r cluster.Resources) v1.ResourceList {
	out := v1.ResourceList{}
	for dim, x := range r {
		if x == cluster.Unlimited || dim == cluster.Slots {
			continue
		}
		switch dim {
		case cluster.CPU:
			out[v1.ResourceCPU] = *resource.NewMilliQuantity(x, resource.DecimalSI)
		case cluster.RAM:
			out[v1.ResourceMemory] = *resource.NewQuantity(x, resource.BinarySI)
		case cluster.GPU:
			out[core.NvidiaGPU] = *resource.NewMilliQuantity(x, resource.DecimalSI)
		default:
			if x != 0 {
				out[v1.ResourceName(dims.Name(dim))] = *resource.NewQuantity(x, resource.DecimalSI)
			}
		}
	}
	return out
}

package cluster

import resourceapi "k8s.io/api/resource/v1"

// DeviceNeed is one resource claim of a pod (Dynamic Resource Allocation), as far as it decides where pods of a class may
// run. Pods whose claims are made from templates that say the same share a class, whatever their claims are called.
type DeviceNeed struct {
	// Shared is "namespace/name" of a claim that exists by itself, so that several pods may use it; "" for a claim that is
	// made for each pod.
	Shared string
	// Spec is the claim's spec as canonical JSON.
	Spec string
	// Missing names the claim or template that is not there yet; Spec is "" then. "" when there is a claim.
	Missing string
	// Queue is the queue that a shared claim's label names; "" for none.
	Queue string
	// Own says that a shared claim was made for the pod's gang, so that its queue is the gang's, whatever a label says.
	Own bool
	// GPUs is how many GPUs the claim is counted as against a queue.
	GPUs int64
	// Extended says that there is no claim object: the pod asks for an extended resource of which a DeviceClass says
	// that it is to be allocated this way. The binder makes the claim.
	Extended bool
	// Resources names, for an extended need, the resource behind each request of Spec.
	Resources []string
}

// DeviceClaim says which object stands for one of a pod's needs.
type DeviceClaim struct {
	// Name is how the pod calls it (pod.spec.resourceClaims[].name); "" for extended resources.
	Name string
	// Object is "namespace/name" of the ResourceClaim; "" while there is none.
	Object string
}

// ClaimAllocation is a decision about one claim of a pod: the devices it gets.
type ClaimAllocation struct {
	DeviceClaim
	// Allocation is nobody's to write to. The devices are those of the pod's node, or reachable from there.
	Allocation *resourceapi.AllocationResult `json:"allocation"`
	// Requests are those of the claim that is to be made, for extended resources; nil for other claims.
	Requests []resourceapi.DeviceRequest `json:"requests,omitempty"`
}

// The kinds of objects that Dynamic Resource Allocation is about.
const (
	ResourceSlices ObjectKind = "ResourceSlice"
	ResourceClaims ObjectKind = "ResourceClaim"
	DeviceClasses  ObjectKind = "DeviceClass"
)

// AssumeClaims records, for a pod that Assume has been called for, which devices its claims get; they are taken until the
// assumption ends, or the API server shows them. It reports whether there was an assumption.
func (s *Store) AssumeClaims(uid string, as []ClaimAllocation) bool {
	id, ok := s.podIDs[uid]
	if !ok || s.pods.get(int32(id)).assumed == nil {
		return false
	}
	p := s.pod(id)
	p.assumed.claims, p.Allocations = as, as
	s.gen++
	return true
}

// countedPerPod says whether every claim of the class is made for each pod, so that pods of the class are interchangeable.
func countedPerPod(needs []DeviceNeed) bool {
	for i := range needs {
		if needs[i].Shared != "" {
			return false
		}
	}
	return true
}

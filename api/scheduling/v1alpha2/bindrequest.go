package v1alpha2

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Values of receivedResourceType: in which form a pod receives its GPUs.
const (
	// ResourceTypeRegular is a pod with whole devices, or with none.
	ResourceTypeRegular = "Regular"

	// ResourceTypeFraction is a pod that shares its devices with others.
	ResourceTypeFraction = "Fraction"
)

// BindRequestSpec is the decision for one pod. It is written once, by the scheduler.
type BindRequestSpec struct {
	// PodName is the pod to bind; it lives in the request's namespace. The request's owner reference carries the UID
	// of the pod that was meant.
	//
	// +optional
	PodName string `json:"podName,omitempty"`

	// SelectedNode is the node that was chosen.
	//
	// +optional
	SelectedNode string `json:"selectedNode,omitempty"`

	// ReceivedResourceType is Regular or Fraction; empty counts as Regular.
	//
	// +optional
	ReceivedResourceType string `json:"receivedResourceType,omitempty"`

	// ReceivedGPU is how much of how many devices the pod receives.
	//
	// +optional
	ReceivedGPU *ReceivedGPU `json:"receivedGPU,omitempty"`

	// SelectedGPUGroups are the shared devices that were chosen, by the identifier of each one's sharing group.
	// Only for ReceivedResourceType Fraction.
	//
	// +optional
	SelectedGPUGroups []string `json:"selectedGPUGroups,omitempty"`

	// ResourceClaimAllocations are the devices that were chosen for the pod's resource claims.
	//
	// +optional
	ResourceClaimAllocations []ResourceClaimAllocation `json:"resourceClaimAllocations,omitempty"`

	// ExtendedResourceClaimAllocation is what was chosen for extended resources that device classes serve. The
	// binder makes the special claim for them.
	//
	// +optional
	ExtendedResourceClaimAllocation *ExtendedResourceClaimAllocation `json:"extendedResourceClaimAllocation,omitempty"`

	// PredictedNUMAZones is where on the node the scheduler expects the kubelet to place the pod.
	//
	// +optional
	PredictedNUMAZones []NUMAZonePlacement `json:"predictedNUMAZones,omitempty"`

	// BackoffLimit is the number of failed attempts after which the binder gives up. Unset: the binder's own rule.
	//
	// +optional
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
}

// ReceivedGPU is an amount of GPU.
type ReceivedGPU struct {
	// Count is the number of devices.
	//
	// +optional
	Count int `json:"count,omitempty"`

	// Portion is the share of each device, a decimal number with two digits such as 0.50; 1.00 is a whole device.
	//
	// +optional
	Portion string `json:"portion,omitempty"`
}

// ResourceClaimAllocation is the allocation chosen for one resource claim of the pod.
type ResourceClaimAllocation struct {
	// Name is the name under which the pod lists the claim in spec.resourceClaims.
	//
	// +optional
	Name string `json:"name,omitempty"`

	// Allocation is the result to be written to the claim's status.
	//
	// +optional
	Allocation *resourcev1.AllocationResult `json:"allocation,omitempty"`
}

// ExtendedResourceClaimAllocation describes the one special claim that serves a pod's extended resources.
type ExtendedResourceClaimAllocation struct {
	// Allocation is the result to be written to the special claim's status.
	//
	// +optional
	Allocation *resourcev1.AllocationResult `json:"allocation,omitempty"`

	// DeviceRequests are the requests of the special claim.
	//
	// +optional
	DeviceRequests []resourcev1.DeviceRequest `json:"deviceRequests,omitempty"`

	// ContainerMappings say which container's extended resource is served by which request.
	//
	// +optional
	ContainerMappings []corev1.ContainerExtendedResourceRequest `json:"containerMappings,omitempty"`
}

// NUMAZonePlacement is what a pod takes from one NUMA zone of its node.
type NUMAZonePlacement struct {
	// Zone is the zone's name, for instance node-0.
	//
	// +required
	Zone string `json:"zone"`

	// Amount is what is taken there, by resource name.
	//
	// +required
	Amount corev1.ResourceList `json:"amount"`
}

// BindRequestPhase says how far the binder is.
type BindRequestPhase string

const (
	// BindRequestPending is a request still to be served. An empty phase means the same.
	BindRequestPending BindRequestPhase = "Pending"

	// BindRequestSucceeded is a request whose pod was bound.
	BindRequestSucceeded BindRequestPhase = "Succeeded"

	// BindRequestFailed is a request whose last attempt failed. Whether another one follows depends on BackoffLimit.
	BindRequestFailed BindRequestPhase = "Failed"
)

// BindRequestStatus is the binder's answer.
type BindRequestStatus struct {
	// Phase says how far the binder is. Empty: not yet tried.
	//
	// +optional
	Phase BindRequestPhase `json:"phase,omitempty"`

	// Reason says why the last attempt failed.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// FailedAttempts counts the attempts that failed.
	//
	// +optional
	FailedAttempts int32 `json:"failedAttempts,omitempty"`
}

// BindRequest asks the binder to put a pod on a node. Its name is the pod's name.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type BindRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// Spec is the scheduler's decision.
	Spec BindRequestSpec `json:"spec,omitempty,omitzero"`

	// Status is the binder's answer.
	Status BindRequestStatus `json:"status,omitempty,omitzero"`
}

// BindRequestList is a list of BindRequests, as the API server returns it.
//
// +kubebuilder:object:root=true
type BindRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the BindRequests.
	Items []BindRequest `json:"items"`
}

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Numatopology says how a node's CPUs and devices lie in NUMA zones. Its name is the node's.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=numatopologies,shortName=numatopo
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
type Numatopology struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what the node's agent found.
	// +optional
	Spec NumatopoSpec `json:"spec,omitempty"`
}

// PolicyName is one of a kubelet's policies.
type PolicyName string

const (
	// CPUManagerPolicy is how the kubelet gives CPUs to containers.
	CPUManagerPolicy PolicyName = "CPUManagerPolicy"
	// TopologyManagerPolicy is how it keeps what a container gets in one zone.
	TopologyManagerPolicy PolicyName = "TopologyManagerPolicy"
)

// NumatopoSpec is what a node's agent found.
type NumatopoSpec struct {
	// Policies are the kubelet's.
	// +optional
	Policies map[PolicyName]string `json:"policies,omitempty"`
	// ResReserved is what the kubelet keeps for the system, by resource.
	// +optional
	ResReserved map[string]string `json:"resReserved,omitempty"`
	// NumaResMap is what can be given to pods, by resource.
	// +optional
	NumaResMap map[string]ResourceInfo `json:"numares,omitempty"`
	// CPUDetail is where each CPU is, by its number.
	// +optional
	CPUDetail map[string]CPUInfo `json:"cpuDetail,omitempty"`
	// PodAllocations is what pods have.
	// +optional
	PodAllocations []PodAllocation `json:"podAllocations,omitempty"`
}

// ResourceInfo is what there is of a resource.
type ResourceInfo struct {
	// Allocatable is a list of numbers and ranges, such as 0-3,8.
	// +optional
	Allocatable string `json:"allocatable,omitempty"`
	// Capacity is how many there are.
	// +optional
	Capacity int `json:"capacity,omitempty"`
}

// CPUInfo is where a CPU is.
type CPUInfo struct {
	// NUMANodeID is its zone.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NUMANodeID int `json:"numa,omitempty"`
	// SocketID is its socket.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SocketID int `json:"socket,omitempty"`
	// CoreID is its core.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CoreID int `json:"core,omitempty"`
}

// PodAllocation is what a pod has.
type PodAllocation struct {
	// UID is the pod's.
	// +optional
	UID string `json:"uid,omitempty"`
	// Name is the pod's.
	// +optional
	Name string `json:"name,omitempty"`
	// Namespace is the pod's.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// ContainerAllocations is what its containers have.
	// +optional
	ContainerAllocations []ContainerAllocation `json:"containerAllocations,omitempty"`
}

// ContainerAllocation is what a container has.
type ContainerAllocation struct {
	// Name is the container's.
	// +optional
	Name string `json:"name,omitempty"`
	// Allocations are lists of numbers and ranges, by resource.
	// +optional
	Allocations map[string]string `json:"allocations,omitempty"`
}

// NumatopologyList is a list of Numatopologies.
//
// +kubebuilder:object:root=true
type NumatopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Numatopology `json:"items"`
}

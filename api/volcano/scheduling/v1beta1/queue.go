package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Queue shares the cluster between PodGroups. Queues form a tree below root by their parent.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=q;queue-v1beta1
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="PARENT",type=string,JSONPath=`.spec.parent`
type Queue struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what the queue may have.
	// +optional
	Spec QueueSpec `json:"spec,omitempty"`
	// Status is what it has.
	// +optional
	Status QueueStatus `json:"status,omitempty"`
}

// QueueSpec is what a queue may have.
type QueueSpec struct {
	// Weight is the queue's part of what is divided by weight.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Weight int32 `json:"weight,omitempty"`
	// Capability is the most that the queue may use; a resource that it does not name has no bound but the parent's.
	// +optional
	Capability corev1.ResourceList `json:"capability,omitempty"`
	// Reclaimable says whether other queues may take back what this one has beyond its due; nil is true.
	// +optional
	Reclaimable *bool `json:"reclaimable,omitempty"`
	// ExtendClusters are clusters that the queue's jobs are sent to.
	// +optional
	ExtendClusters []Cluster `json:"extendClusters,omitempty"`
	// Guarantee is kept for this queue, used or not.
	// +optional
	Guarantee Guarantee `json:"guarantee,omitempty"`
	// Affinity says which groups of nodes the queue's pods use.
	// +optional
	Affinity *Affinity `json:"affinity,omitempty"`
	// Type is a word of the user's.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Type string `json:"type,omitempty"`
	// Parent is the queue above; none is root.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Parent string `json:"parent,omitempty"`
	// Deserved is the queue's due: others may borrow it, and it is taken back from them.
	// +optional
	Deserved corev1.ResourceList `json:"deserved,omitempty"`
	// Priority orders queues, higher first.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Priority int32 `json:"priority,omitempty"`
	// DequeueStrategy says what happens behind a job that does not fit.
	// +optional
	// +kubebuilder:default=traverse
	// +kubebuilder:validation:Enum=fifo;traverse
	DequeueStrategy DequeueStrategy `json:"dequeueStrategy,omitempty"`
}

// DequeueStrategy says what happens behind a job that does not fit.
type DequeueStrategy string

const (
	// DequeueStrategyFIFO means that those behind it wait.
	DequeueStrategyFIFO DequeueStrategy = "fifo"
	// DequeueStrategyTraverse means that those behind it are tried.
	DequeueStrategyTraverse DequeueStrategy = "traverse"
)

// Cluster is another cluster, with its part of the jobs.
type Cluster struct {
	// Name is the cluster's.
	// +optional
	Name string `json:"name,omitempty"`
	// Weight is its part.
	// +optional
	Weight int32 `json:"weight,omitempty"`
	// Capacity is what it has.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
}

// Guarantee is what is kept for a queue.
type Guarantee struct {
	// Resource is how much.
	// +optional
	Resource corev1.ResourceList `json:"resource,omitempty"`
}

// Affinity says which groups of nodes (label volcano.sh/nodegroup-name) a queue's pods use.
type Affinity struct {
	// NodeGroupAffinity are groups that they use.
	// +optional
	NodeGroupAffinity *NodeGroupAffinity `json:"nodeGroupAffinity,omitempty"`
	// NodeGroupAntiAffinity are groups that they keep off.
	// +optional
	NodeGroupAntiAffinity *NodeGroupAffinity `json:"nodeGroupAntiAffinity,omitempty"`
}

// NodeGroupAffinity names groups of nodes.
type NodeGroupAffinity struct {
	// RequiredDuringSchedulingIgnoredDuringExecution must be kept to.
	// +optional
	RequiredDuringSchedulingIgnoredDuringExecution []string `json:"requiredDuringSchedulingIgnoredDuringExecution,omitempty"`
	// PreferredDuringSchedulingIgnoredDuringExecution is kept to where there is room.
	// +optional
	PreferredDuringSchedulingIgnoredDuringExecution []string `json:"preferredDuringSchedulingIgnoredDuringExecution,omitempty"`
}

// QueueState says whether a queue takes work.
type QueueState string

const (
	// QueueStateOpen means that it does.
	QueueStateOpen QueueState = "Open"
	// QueueStateClosed means that it does not, and has none.
	QueueStateClosed QueueState = "Closed"
	// QueueStateClosing means that it does not, and has some yet.
	QueueStateClosing QueueState = "Closing"
	// QueueStateUnknown means that nobody can say.
	QueueStateUnknown QueueState = "Unknown"
)

// QueueStatus is what a queue has.
type QueueStatus struct {
	// State says whether it takes work; empty is Open.
	// +optional
	// +kubebuilder:validation:Enum=Open;Closed;Closing;Unknown
	State QueueState `json:"state,omitempty"`
	// Unknown, Pending, Running, Inqueue and Completed count the queue's PodGroups by phase.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unknown int32 `json:"unknown,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pending int32 `json:"pending,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	Running int32 `json:"running,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	Inqueue int32 `json:"inqueue,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	Completed int32 `json:"completed,omitempty"`
	// Reservation is what is kept for the queue's next job.
	// +optional
	Reservation Reservation `json:"reservation,omitempty"`
	// Allocated is what its pods have.
	// +optional
	Allocated corev1.ResourceList `json:"allocated"`
}

// Reservation is nodes that are kept for a queue.
type Reservation struct {
	// Nodes are their names.
	// +optional
	Nodes []string `json:"nodes,omitempty"`
	// Resource is what is idle on them.
	// +optional
	Resource corev1.ResourceList `json:"resource,omitempty"`
}

// QueueList is a list of Queues.
//
// +kubebuilder:object:root=true
type QueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Queue `json:"items"`
}

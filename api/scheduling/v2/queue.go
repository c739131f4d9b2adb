package v2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// DefaultPriority is the priority of a queue whose spec names none.
	DefaultPriority = 100

	// Unlimited given as a quota or limit means without bound. Zero is no such value: a limit of 0 admits nothing.
	Unlimited = -1
)

// QueueSpec says where a queue hangs in the tree and what it may use.
type QueueSpec struct {
	// DisplayName is a name for people; logs and metrics use it beside the object's name. Empty: the object's name.
	//
	// +optional
	DisplayName string `json:"displayName,omitempty"`

	// ParentQueue is the name of the Queue above this one. Empty: this queue is at the top of the tree.
	//
	// +optional
	ParentQueue string `json:"parentQueue,omitempty"`

	// Resources are the queue's quota, limit and weight per resource. A queue without them is entitled to nothing.
	//
	// +optional
	Resources *QueueResources `json:"resources,omitempty"`

	// Priority orders sibling queues: those with a higher value are served first, receive room beyond their quota
	// first, and give it back last. Unset: 100.
	//
	// +optional
	Priority *int `json:"priority,omitempty"`

	// PreemptMinRuntime is how long a gang of this queue runs, from its start, before a gang of the same queue with
	// a higher priority may evict it. Unset: the nearest ancestor's value, then the scheduler's default.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration(self)",message="must be a Go duration, for instance 90s or 1h30m"
	PreemptMinRuntime *metav1.Duration `json:"preemptMinRuntime,omitempty"`

	// ReclaimMinRuntime is how long a gang of this queue runs, from its start, before another queue may take its
	// room back. Unset: the nearest ancestor's value, then the scheduler's default.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration(self)",message="must be a Go duration, for instance 90s or 1h30m"
	ReclaimMinRuntime *metav1.Duration `json:"reclaimMinRuntime,omitempty"`
}

// QueueResources holds one QueueResource for each resource the tree divides. A resource left out counts as one with
// quota, limit and weight 0.
type QueueResources struct {
	// GPU counts whole devices; fractions are allowed, 0.5 is half a device.
	//
	// +optional
	GPU QueueResource `json:"gpu,omitempty,omitzero"`

	// CPU counts millicores: 1000 is one core.
	//
	// +optional
	CPU QueueResource `json:"cpu,omitempty,omitzero"`

	// Memory counts megabytes of 1,000,000 bytes.
	//
	// +optional
	Memory QueueResource `json:"memory,omitempty,omitzero"`

	// Extended holds further resources by their Kubernetes name, for instance rdma/hca, counted in the resource's
	// own units. A resource that is named nowhere in the tree is not divided and not limited. This field is an
	// addition of Muster: schedulers that do not know it ignore it, and API servers with KAI's definition of the Queue
	// drop it. Therefore the queue controller repeats it in the annotation muster.dev/extended-resources, which counts
	// where the field is absent; {} says that there are no further resources, and removes the annotation.
	//
	// +optional
	Extended map[string]QueueResource `json:"extended,omitempty"`
}

// QueueResource is what a queue may use of one resource, in the unit the holding field states.
type QueueResource struct {
	// Quota is what the queue can always have, at the expense of queues that are beyond theirs. -1: without bound.
	//
	// +optional
	Quota float64 `json:"quota"`

	// OverQuotaWeight is the queue's weight among its siblings when room beyond their quotas is divided. 0: none.
	//
	// +optional
	OverQuotaWeight float64 `json:"overQuotaWeight"`

	// Limit is what the queue never exceeds. -1: without bound; 0: nothing at all.
	//
	// +optional
	Limit float64 `json:"limit"`
}

// QueueStatus is what the queue controller last saw of the queue and everything below it.
type QueueStatus struct {
	// Conditions are reserved for statements about the queue; see the QueueConditionType constants.
	//
	// +optional
	Conditions []QueueCondition `json:"conditions,omitempty"`

	// ChildQueues are the names of the queues whose ParentQueue is this one, sorted.
	//
	// +optional
	ChildQueues []string `json:"childQueues,omitempty"`

	// Allocated sums what the running pods of the queue and of all queues below it hold.
	//
	// +optional
	Allocated corev1.ResourceList `json:"allocated,omitempty"`

	// AllocatedNonPreemptible is the part of Allocated that gangs hold which cannot be preempted.
	//
	// +optional
	AllocatedNonPreemptible corev1.ResourceList `json:"allocatedNonPreemptible,omitempty"`

	// Requested sums what all running and pending pods of the queue and of all queues below it ask for.
	//
	// +optional
	Requested corev1.ResourceList `json:"requested,omitempty"`
}

// QueueConditionType names a statement about a queue.
type QueueConditionType string

const (
	// QueueOrphan says that the queue names a parent which does not exist.
	QueueOrphan QueueConditionType = "Orphan"

	// QueueOverQuota says that the queue holds more than its quota of some resource.
	QueueOverQuota QueueConditionType = "OverQuota"
)

// QueueCondition is one statement about a queue, with the time since when it holds.
type QueueCondition struct {
	// Type names the statement.
	//
	// +required
	Type QueueConditionType `json:"type"`

	// Status is True, False or Unknown.
	//
	// +required
	Status corev1.ConditionStatus `json:"status"`

	// LastProbeTime is when the statement was last checked.
	//
	// +optional
	LastProbeTime metav1.Time `json:"lastProbeTime,omitempty,omitzero"`

	// LastTransitionTime is when Status last changed.
	//
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty,omitzero"`

	// Reason is one CamelCase word for programs.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message is a sentence for people.
	//
	// +optional
	Message string `json:"message,omitempty"`
}

// Queue is a node of the tree through which the cluster is shared. Pods reach it through their gang's queue name.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Priority",type=string,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Parent",type=string,JSONPath=`.spec.parentQueue`
// +kubebuilder:printcolumn:name="Children",type=string,JSONPath=`.status.childQueues`
// +kubebuilder:printcolumn:name="DisplayName",type=string,JSONPath=`.spec.displayName`
type Queue struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// Spec is what the administrator wants.
	Spec QueueSpec `json:"spec,omitempty,omitzero"`

	// Status is what the queue controller saw.
	Status QueueStatus `json:"status,omitempty,omitzero"`
}

// QueueList is a list of Queues, as the API server returns it.
//
// +kubebuilder:object:root=true
type QueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the Queues.
	Items []Queue `json:"items"`
}

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// QueueSpec is what a Queue is given.
type QueueSpec struct {
	// Weight is its share beside other queues; 0 and below for 1.
	// +optional
	Weight int32 `json:"weight,omitempty"`
	// Capability is a bound that kube-batch has the field of and never looks at.
	// +optional
	Capability corev1.ResourceList `json:"capability,omitempty"`
}

// QueueStatus counts PodGroups. Nobody writes it.
type QueueStatus struct {
	// Unknown counts those in the phase Unknown.
	// +optional
	Unknown int32 `json:"unknown,omitempty"`
	// Pending counts those in the phase Pending.
	// +optional
	Pending int32 `json:"pending,omitempty"`
	// Running counts those in the phase Running.
	// +optional
	Running int32 `json:"running,omitempty"`
}

// Queue shares the cluster between PodGroups.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=queues,scope=Cluster
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=unapproved, older than the rule"
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
type Queue struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what it is given.
	// +optional
	Spec QueueSpec `json:"spec,omitempty"`
	// Status counts PodGroups.
	// +optional
	Status QueueStatus `json:"status,omitempty"`
}

// QueueList is a list of Queues.
//
// +kubebuilder:object:root=true
type QueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Queue `json:"items"`
}

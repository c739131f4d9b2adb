package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
)

// PodGroup is a number of pods that start together.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=podgroups
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
type PodGroup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what is asked for.
	// +optional
	Spec v1alpha1.PodGroupSpec `json:"spec,omitempty"`
	// Status is what became of it.
	// +optional
	Status v1alpha1.PodGroupStatus `json:"status,omitempty"`
}

// PodGroupList is a list of PodGroups.
//
// +kubebuilder:object:root=true
type PodGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodGroup `json:"items"`
}

// Queue shares the cluster between PodGroups.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=queues,scope=Cluster
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
type Queue struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what it is given.
	// +optional
	Spec v1alpha1.QueueSpec `json:"spec,omitempty"`
	// Status counts PodGroups.
	// +optional
	Status v1alpha1.QueueStatus `json:"status,omitempty"`
}

// QueueList is a list of Queues.
//
// +kubebuilder:object:root=true
type QueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Queue `json:"items"`
}

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodGroupPhase is where a PodGroup is in its life.
type PodGroupPhase string

// The phases.
const (
	// PodGroupPending says that fewer pods than the minimum have a place.
	PodGroupPending PodGroupPhase = "Pending"
	// PodGroupRunning says that as many as the minimum have a place or have ended.
	PodGroupRunning PodGroupPhase = "Running"
	// PodGroupUnknown says that some pods run, fewer than the minimum, and the rest cannot be placed.
	PodGroupUnknown PodGroupPhase = "Unknown"
)

// PodGroupConditionType names a condition of a PodGroup.
type PodGroupConditionType string

// PodGroupUnschedulable is True while the PodGroup cannot start.
const PodGroupUnschedulable PodGroupConditionType = "Unschedulable"

// PodGroupCondition is one thing that is true of a PodGroup, or not.
type PodGroupCondition struct {
	// Type says what of.
	// +optional
	Type PodGroupConditionType `json:"type,omitempty"`
	// Status is True, False or Unknown.
	// +optional
	Status corev1.ConditionStatus `json:"status,omitempty"`
	// TransitionID names the decision that last said so.
	// +optional
	TransitionID string `json:"transitionID,omitempty"`
	// LastTransitionTime is when it was said first.
	// +optional
	// +nullable
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// Reason is one word for why.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// PodGroupSpec is what is asked for.
type PodGroupSpec struct {
	// MinMember is how many pods start together.
	// +optional
	MinMember int32 `json:"minMember,omitempty"`
	// Queue is the name of the Queue that the pods are charged to; empty for the scheduler's default queue.
	// +optional
	Queue string `json:"queue,omitempty"`
	// PriorityClassName is the PriorityClass whose value the PodGroup has among others; empty for the cluster's default one.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// PodGroupStatus is what became of it.
type PodGroupStatus struct {
	// Phase is where it is in its life; empty before anybody looked.
	// +optional
	Phase PodGroupPhase `json:"phase,omitempty"`
	// Conditions say why.
	// +optional
	Conditions []PodGroupCondition `json:"conditions,omitempty"`
	// Running is how many pods run.
	// +optional
	Running int32 `json:"running,omitempty"`
	// Succeeded is how many pods have succeeded.
	// +optional
	Succeeded int32 `json:"succeeded,omitempty"`
	// Failed is how many pods have failed.
	// +optional
	Failed int32 `json:"failed,omitempty"`
}

// PodGroup is a number of pods that start together.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=podgroups
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=unapproved, older than the rule"
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
type PodGroup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what is asked for.
	// +optional
	Spec PodGroupSpec `json:"spec,omitempty"`
	// Status is what became of it.
	// +optional
	Status PodGroupStatus `json:"status,omitempty"`
}

// PodGroupList is a list of PodGroups.
//
// +kubebuilder:object:root=true
type PodGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodGroup `json:"items"`
}

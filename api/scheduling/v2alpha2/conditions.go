package v2alpha2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodGroupConditionType names a statement about a gang.
type PodGroupConditionType string

// PodGroupCondition is one statement about a gang, with the time since when it holds.
type PodGroupCondition struct {
	// Type names the statement.
	//
	// +optional
	Type PodGroupConditionType `json:"type,omitempty"`

	// Status is True, False or Unknown.
	//
	// +optional
	Status corev1.ConditionStatus `json:"status,omitempty"`

	// TransitionID is a decimal number that grows with each change of the conditions.
	//
	// +optional
	TransitionID string `json:"transitionID,omitempty"`

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

// SchedulingConditionType names a statement about the scheduling of a gang.
type SchedulingConditionType string

// UnschedulableOnNodePool says that the gang found no placement in the node pool the condition names.
const UnschedulableOnNodePool SchedulingConditionType = "UnschedulableOnNodePool"

// ReasonUnschedulable is the one value of SchedulingCondition.Reason; what went wrong is in Reasons.
const ReasonUnschedulable = "Unschedulable"

// SchedulingCondition is one statement about the scheduling of a gang in one node pool.
type SchedulingCondition struct {
	// Type names the statement.
	//
	// +optional
	Type SchedulingConditionType `json:"type,omitempty"`

	// NodePool is the pool the statement is about; "default" for nodes that belong to none.
	//
	// +optional
	NodePool string `json:"nodePool,omitempty"`

	// Reason is one CamelCase word for programs. Deprecated: read Reasons.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message is a sentence for people. Deprecated: read Reasons.
	//
	// +optional
	Message string `json:"message,omitempty"`

	// Reasons say what stands in the way, each with its own message. More kinds may be added, so readers must bear
	// with unknown ones.
	//
	// +optional
	Reasons UnschedulableExplanations `json:"reasons,omitempty"`

	// TransitionID is a decimal number that grows with each change of the scheduling conditions.
	//
	// +optional
	TransitionID string `json:"transitionID,omitempty"`

	// LastTransitionTime is when Status last changed.
	//
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty,omitzero"`

	// Status is True, False or Unknown.
	//
	// +optional
	Status corev1.ConditionStatus `json:"status,omitempty"`
}

// UnschedulableReason is one CamelCase word for what stands in a gang's way.
type UnschedulableReason string

const (
	// ReasonNonPreemptibleOverQuota means that the gang cannot be preempted and would exceed the quota of its queue or of a
	// queue above it. Details name that queue and its numbers.
	ReasonNonPreemptibleOverQuota UnschedulableReason = "NonPreemptibleOverQuota"

	// ReasonOverLimit means that the gang would exceed the limit of its queue or of a queue above it. Details name that queue
	// and its numbers.
	ReasonOverLimit UnschedulableReason = "OverLimit"

	// ReasonPreemptionDelayNotElapsed means that the gang has to wait longer before others may be evicted for it.
	ReasonPreemptionDelayNotElapsed UnschedulableReason = "PreemptionDelayNotElapsed"

	// ReasonQueueDoesNotExist means that the gang names a queue that does not exist, or none.
	ReasonQueueDoesNotExist UnschedulableReason = "QueueDoesNotExist"
)

// UnschedulableExplanations lists everything that stands in a gang's way.
type UnschedulableExplanations []UnschedulableExplanation

// UnschedulableExplanation is one thing that stands in a gang's way.
type UnschedulableExplanation struct {
	// Reason is one CamelCase word for programs. Empty: Message alone says what is wrong.
	//
	// +optional
	Reason UnschedulableReason `json:"reason,omitempty"`

	// Message is a sentence for people.
	//
	// +optional
	Message string `json:"message,omitempty"`

	// Details are the numbers behind the message, for programs. Which of its fields are set depends on Reason.
	//
	// +optional
	Details *UnschedulableExplanationDetails `json:"details,omitempty"`
}

// UnschedulableExplanationDetails holds the numbers behind an explanation.
type UnschedulableExplanationDetails struct {
	// QueueDetails is set for reasons that are about a queue's quota or limit.
	//
	// +optional
	QueueDetails *QuotaDetails `json:"queueDetails,omitempty"`
}

// QuotaDetails are the numbers of a queue and of a gang that it has no room for, as they were when the scheduler
// decided.
type QuotaDetails struct {
	// Name is the queue whose quota or limit stands in the way: the gang's own or one above it.
	//
	// +optional
	Name string `json:"name,omitempty"`

	// QueueRequestedResources is what all gangs of the queue ask for.
	//
	// +optional
	QueueRequestedResources corev1.ResourceList `json:"queueRequestedResources,omitempty"`

	// QueueDeservedResources is the queue's quota.
	//
	// +optional
	QueueDeservedResources corev1.ResourceList `json:"queueDeservedResources,omitempty"`

	// QueueAllocatedResources is what the queue holds.
	//
	// +optional
	QueueAllocatedResources corev1.ResourceList `json:"queueAllocatedResources,omitempty"`

	// QueueAllocatedNonPreemptibleResources is the part of it that gangs hold which cannot be preempted.
	//
	// +optional
	QueueAllocatedNonPreemptibleResources corev1.ResourceList `json:"queueAllocatedNonPreemptibleResources,omitempty"`

	// QueueResourceLimits is the queue's limit.
	//
	// +optional
	QueueResourceLimits corev1.ResourceList `json:"queueResourceLimits,omitempty"`

	// PodGroupRequestedResources is what the gang needs for its minimum.
	//
	// +optional
	PodGroupRequestedResources corev1.ResourceList `json:"podGroupRequestedResources,omitempty"`

	// PodGroupRequestedNonPreemptibleResources is the part of it that cannot be preempted.
	//
	// +optional
	PodGroupRequestedNonPreemptibleResources corev1.ResourceList `json:"podGroupRequestedNonPreemptibleResources,omitempty"`
}

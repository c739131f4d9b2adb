package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodGroup is a gang: pods of one namespace of which a minimum starts together. Pods name it in their annotation
// scheduling.k8s.io/group-name.
//
// It has no status subresource: who writes its status writes the object. Muster patches the status alone.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=pg;podgroup-v1beta1
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="STATUS",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="minMember",type=integer,JSONPath=`.spec.minMember`
// +kubebuilder:printcolumn:name="RUNNINGS",type=integer,JSONPath=`.status.running`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="QUEUE",type=string,priority=1,JSONPath=`.spec.queue`
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

// PodGroupSpec is what a gang asks for.
type PodGroupSpec struct {
	// MinMember is how many pods must start together.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinMember int32 `json:"minMember,omitempty"`
	// MinTaskMember is how many pods of each task must start together, by the task's name. It is overlooked where MinMember is below the
	// sum.
	// +optional
	MinTaskMember map[string]int32 `json:"minTaskMember,omitempty"`
	// Queue is the queue whose share the gang uses; default if it names none.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Queue string `json:"queue,omitempty"`
	// PriorityClassName is a PriorityClass; none: the cluster's default, or 0.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// MinResources is what the minimum requests in all, for the decision to admit the gang before it has pods; nil: it is not known.
	// +optional
	MinResources *corev1.ResourceList `json:"minResources,omitempty"`
	// NetworkTopology says how far apart in the network the pods may be; nil: anywhere.
	// +optional
	NetworkTopology *NetworkTopologySpec `json:"networkTopology,omitempty"`
	// SubGroupPolicy divides the pods into subgroups, each of which starts together.
	// +optional
	SubGroupPolicy []SubGroupPolicySpec `json:"subGroupPolicy,omitempty"`
}

// NetworkTopologyMode is how strictly pods are kept together.
//
// +kubebuilder:validation:Enum=hard;soft
type NetworkTopologyMode string

const (
	// HardNetworkTopologyMode means that the pods are together, or do not start.
	HardNetworkTopologyMode NetworkTopologyMode = "hard"
	// SoftNetworkTopologyMode means that the pods are as close together as there is room.
	SoftNetworkTopologyMode NetworkTopologyMode = "soft"
)

// NetworkTopologySpec says how far apart in the tree of HyperNodes pods may be. At most one of the two tiers is set.
type NetworkTopologySpec struct {
	// Mode is hard or soft.
	// +optional
	// +kubebuilder:default=hard
	Mode NetworkTopologyMode `json:"mode,omitempty"`
	// HighestTierAllowed is the highest tier of the HyperNode that has all the pods; 1 is the lowest.
	// +optional
	// +kubebuilder:validation:Minimum=0
	HighestTierAllowed *int `json:"highestTierAllowed,omitempty"`
	// HighestTierName is the same by the tier's name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	HighestTierName string `json:"highestTierName,omitempty"`
}

// SubGroupPolicySpec makes subgroups of the pods that a selector matches.
type SubGroupPolicySpec struct {
	// Name tells policies apart.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// NetworkTopology says how far apart the pods of one subgroup may be.
	// +optional
	NetworkTopology *NetworkTopologySpec `json:"networkTopology,omitempty"`
	// SubGroupSize is how many pods of a subgroup start together.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	SubGroupSize *int32 `json:"subGroupSize,omitempty"`
	// MinSubGroups is how many subgroups must start together.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	MinSubGroups *int32 `json:"minSubGroups,omitempty"`
	// LabelSelector says which pods the policy is for.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// MatchLabelKeys are the labels that make subgroups: pods with the same values are in the same one.
	// +optional
	// +listType=atomic
	MatchLabelKeys []string `json:"matchLabelKeys,omitempty"`
}

// PodGroupPhase is where a gang is in its life.
type PodGroupPhase string

const (
	// PodGroupPending means that the gang waits to be admitted. A Job's pods are not made before it is.
	PodGroupPending PodGroupPhase = "Pending"
	// PodGroupInqueue means that the gang is admitted, and waits for places.
	PodGroupInqueue PodGroupPhase = "Inqueue"
	// PodGroupRunning means that the minimum has places.
	PodGroupRunning PodGroupPhase = "Running"
	// PodGroupUnknown means that some pods run, and others that the minimum needs have no place.
	PodGroupUnknown PodGroupPhase = "Unknown"
	// PodGroupCompleted means that the minimum has ended.
	PodGroupCompleted PodGroupPhase = "Completed"
)

// PodGroupConditionType names a condition.
type PodGroupConditionType string

const (
	// PodGroupUnschedulableType means that the minimum has no places; reason and message say why.
	PodGroupUnschedulableType PodGroupConditionType = "Unschedulable"
	// PodGroupScheduled means that the minimum has places.
	PodGroupScheduled PodGroupConditionType = "Scheduled"
)

// Reasons of conditions.
const (
	// PodFailedReason means that a pod failed.
	PodFailedReason = "PodFailed"
	// PodDeletedReason means that a pod was deleted.
	PodDeletedReason = "PodDeleted"
	// NotEnoughResourcesReason means that there is no room.
	NotEnoughResourcesReason = "NotEnoughResources"
	// NotEnoughPodsReason means that there are fewer pods than the minimum.
	NotEnoughPodsReason = "NotEnoughTasks"
	// NotEnoughPodsOfTaskReason means that there are fewer pods of a task than its minimum.
	NotEnoughPodsOfTaskReason = "NotEnoughPodsOfTask"
)

// PodGroupCondition says one thing of a gang.
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
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// Reason is one word for why.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// PodGroupStatus is what became of a gang.
type PodGroupStatus struct {
	// Phase is where it is in its life; empty before anybody looked.
	// +optional
	// +kubebuilder:validation:Enum=Pending;Running;Unknown;Inqueue;Completed
	Phase PodGroupPhase `json:"phase,omitempty"`
	// Conditions say why.
	// +optional
	Conditions []PodGroupCondition `json:"conditions,omitempty"`
	// Running is how many pods run.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Running int32 `json:"running,omitempty"`
	// Succeeded is how many pods have succeeded.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Succeeded int32 `json:"succeeded,omitempty"`
	// Failed is how many pods have failed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed,omitempty"`
}

// PodGroupList is a list of PodGroups.
//
// +kubebuilder:object:root=true
type PodGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodGroup `json:"items"`
}

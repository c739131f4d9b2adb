package v2alpha2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NoSchedulingBackoff as schedulingBackoff, means that the scheduler never stops trying a gang. It is the default.
const NoSchedulingBackoff int32 = -1

// SingleSchedulingBackoff as schedulingBackoff, means that the scheduler stops trying a gang after one failure, until
// the gang is moved to another node pool.
const SingleSchedulingBackoff int32 = 1

// Preemptibility says whether a gang may be evicted in favour of others.
//
// +kubebuilder:validation:Enum=preemptible;non-preemptible
type Preemptibility string

const (
	// Preemptible gangs may be evicted and may use room beyond their queue's quota.
	Preemptible Preemptibility = "preemptible"

	// NonPreemptible gangs are never evicted in favour of others, and stay within their queue's quota.
	NonPreemptible Preemptibility = "non-preemptible"
)

// PodGroupSpec says what makes the gang whole and how it is to be scheduled.
type PodGroupSpec struct {
	// MinMember is the number of pods that must be placed together. 0 asks for no gang: pods start one by one as
	// room allows. Unset, in a group without subgroups, counts as 1. Not to be combined with MinSubGroup.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinMember *int32 `json:"minMember,omitempty"`

	// MinSubGroup is the number of direct subgroups that must be complete. Unset: all of them. Not to be combined
	// with MinMember.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinSubGroup *int32 `json:"minSubGroup,omitempty"`

	// Queue is the name of the Queue that pays for the gang.
	//
	// +optional
	Queue string `json:"queue,omitempty"`

	// PriorityClassName names the PriorityClass whose value orders the gang. When there is no such class, the
	// cluster's default class counts, then the value 50.
	//
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// Preemptibility says whether the gang may be evicted in favour of others. Unset: it may, if its priority is
	// below 100.
	//
	// +optional
	Preemptibility Preemptibility `json:"preemptibility,omitempty"`

	// TopologyConstraint keeps all pods of the gang together in the physical layout of the cluster.
	//
	// +optional
	TopologyConstraint TopologyConstraint `json:"topologyConstraint,omitempty,omitzero"`

	// SubGroups divide the gang. Together they form a tree: each names its parent, those without one are direct
	// subgroups of the gang.
	//
	// +optional
	SubGroups []SubGroup `json:"subGroups,omitempty"`

	// MarkUnschedulable says whether pods that find no room get the condition PodScheduled=False, which cluster
	// autoscalers act upon. Unset: yes.
	//
	// +optional
	MarkUnschedulable *bool `json:"markUnschedulable,omitempty"`

	// SchedulingBackoff is the number of failures after which the scheduler stops trying the gang until it is moved
	// to another node pool. -1, the default: never stop. 1: stop after the first.
	//
	// +optional
	SchedulingBackoff *int32 `json:"schedulingBackoff,omitempty"`

	// PreemptionDelay is how long the gang must have been pending, since its creation or its last eviction, before
	// others may be evicted for it. Unset: no wait.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration(self)",message="must be a Go duration, for instance 90s or 1h30m"
	PreemptionDelay *metav1.Duration `json:"preemptionDelay,omitempty"`

	// StalenessGracePeriod is how long a started gang may stay below its minimum before its remaining pods are
	// evicted. Negative: for ever. Unset: the scheduler's default, 60 seconds.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration(self)",message="must be a Go duration, for instance 90s or 1h30m"
	StalenessGracePeriod *metav1.Duration `json:"stalenessGracePeriod,omitempty"`
}

// SubGroup is a part of a gang with a minimum of its own. A leaf has pods and a MinMember; an inner node has subgroups
// and may have a MinSubGroup.
type SubGroup struct {
	// Name identifies the subgroup within its gang; pods name it in the label kai.scheduler/subgroup-name.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// MinMember is the number of this leaf's pods that must be placed together. 0 asks for none.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinMember *int32 `json:"minMember,omitempty"`

	// MinSubGroup is the number of this inner node's direct subgroups that must be complete. Unset: all of them.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinSubGroup *int32 `json:"minSubGroup,omitempty"`

	// Parent is the name of the subgroup above this one. Unset: this is a direct subgroup of the gang.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Parent *string `json:"parent,omitempty"`

	// TopologyConstraint keeps the pods of this subgroup, and of all below it, together.
	//
	// +optional
	TopologyConstraint *TopologyConstraint `json:"topologyConstraint,omitempty"`
}

// TopologyConstraint asks that pods stay together in one domain of a Topology. It has no effect without Topology.
type TopologyConstraint struct {
	// Topology is the name of the Topology object that lists the levels.
	//
	// +optional
	Topology string `json:"topology,omitempty"`

	// RequiredTopologyLevel is the level, by node label or alias, of which all pods must be in one domain.
	//
	// +optional
	RequiredTopologyLevel string `json:"requiredTopologyLevel,omitempty"`

	// PreferredTopologyLevel is the level, by node label or alias, of which all pods are placed in one domain if
	// that is possible.
	//
	// +optional
	PreferredTopologyLevel string `json:"preferredTopologyLevel,omitempty"`
}

// PodGroup makes pods a gang. Pods belong to it by the annotation pod-group-name.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=pg
// +kubebuilder:printcolumn:name="Queue",type=string,JSONPath=`.spec.queue`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.schedulingConditions[-1:].type`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.schedulingConditions[-1:].reasons[0].reason`
// +kubebuilder:printcolumn:name="Starts (UTC)",type=string,JSONPath=`.metadata.annotations.muster\.dev/starts`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.schedulingConditions[-1:].reasons[0].message`
type PodGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// Spec is what makes the gang whole.
	Spec PodGroupSpec `json:"spec,omitempty,omitzero"`

	// Status is what scheduler and controllers saw.
	Status PodGroupStatus `json:"status,omitempty,omitzero"`
}

// PodGroupList is a list of PodGroups, as the API server returns it.
//
// +kubebuilder:object:root=true
type PodGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the PodGroups.
	Items []PodGroup `json:"items"`
}

// PodGroupStatus is what the scheduler and the podgroup controller last saw of the gang.
type PodGroupStatus struct {
	// Conditions are reserved; the scheduler writes SchedulingConditions.
	//
	// +optional
	Conditions []PodGroupCondition `json:"conditions,omitempty"`

	// SchedulingConditions say, per node pool, why the gang is not placed. At most one per pool; the newest is last.
	// The list is empty once nothing of the gang is waiting.
	//
	// +optional
	SchedulingConditions []SchedulingCondition `json:"schedulingConditions,omitempty"`

	// ResourcesStatus sums the resources of the gang's pods.
	//
	// +optional
	ResourcesStatus PodGroupResourcesStatus `json:"resourcesStatus,omitempty,omitzero"`
}

// PodGroupResourcesStatus sums the resources of the gang's pods.
type PodGroupResourcesStatus struct {
	// Allocated is what the gang's placed pods hold.
	//
	// +optional
	Allocated corev1.ResourceList `json:"allocated,omitempty"`

	// AllocatedNonPreemptible equals Allocated for a gang that cannot be preempted, and is empty otherwise.
	//
	// +optional
	AllocatedNonPreemptible corev1.ResourceList `json:"allocatedNonPreemptible,omitempty"`

	// Requested is what the gang's running and pending pods ask for.
	//
	// +optional
	Requested corev1.ResourceList `json:"requested,omitempty"`
}

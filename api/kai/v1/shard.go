package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// PlacementBinpack fills the fullest node that fits first.
	PlacementBinpack = "binpack"

	// PlacementSpread fills the emptiest node that fits first.
	PlacementSpread = "spread"
)

// SchedulingShardSpec describes one scheduler and the part of the cluster it owns.
type SchedulingShardSpec struct {
	// Args are further command-line flags of the scheduler, by name without dashes. They win over those the
	// operator derives from the other fields. Unknown names are ignored with a warning.
	//
	// +optional
	Args map[string]string `json:"args,omitempty"`

	// GoMemLimitRatio is the part of the container's memory limit that the Go runtime aims to stay below; more than
	// 0, at most 1. Default: 0.9.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Maximum=1
	GoMemLimitRatio *float64 `json:"goMemLimitRatio,omitempty"`

	// GoMemLimit is the amount of memory that the Go runtime aims to stay below. It replaces GoMemLimitRatio.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="must be a quantity, for instance 2Gi"
	GoMemLimit *resource.Quantity `json:"goMemLimit,omitempty"`

	// PlacementStrategy says whether pods are packed or spread.
	//
	// +optional
	PlacementStrategy *PlacementStrategy `json:"placementStrategy,omitempty"`

	// PartitionLabelValue is the value of the node-pool label that nodes, queues and gangs of this shard carry.
	// Empty: those that do not carry the label.
	//
	// +optional
	PartitionLabelValue string `json:"partitionLabelValue,omitempty"`

	// QueueDepthPerAction bounds, by action name, how many gangs of each queue an action looks at per cycle. Only
	// names of enabled actions are allowed.
	//
	// +optional
	QueueDepthPerAction map[string]int `json:"queueDepthPerAction,omitempty"`

	// MinRuntime protects gangs that started recently, in queues that do not say themselves for how long.
	//
	// +optional
	MinRuntime *MinRuntime `json:"minRuntime,omitempty"`

	// KValue is how strongly past usage lowers a queue's share of the room beyond quotas. 0: not at all.
	// Default: 1.
	//
	// +optional
	KValue *float64 `json:"kValue,omitempty"`

	// UsageDBConfig says where the usage history comes from. Unset: shares do not look at the past.
	//
	// +optional
	UsageDBConfig *UsageDBConfig `json:"usageDBConfig,omitempty"`

	// ScenarioSearchBudgets bound the time that one cycle spends on looking for victims.
	//
	// +optional
	ScenarioSearchBudgets *ScenarioSearchBudgets `json:"scenarioSearchBudgets,omitempty"`

	// Plugins change the built-in list of plugins, by name. A name that is not in the list is added to it, enabled.
	//
	// +optional
	Plugins map[string]PluginConfig `json:"plugins,omitempty"`

	// Actions change the built-in list of actions, by name. A name that is not in the list is added to it, enabled.
	//
	// +optional
	Actions map[string]ActionConfig `json:"actions,omitempty"`
}

// PlacementStrategy says whether pods are packed or spread, per kind of node resource they compete for.
type PlacementStrategy struct {
	// GPU is the strategy for pods that use GPUs: binpack, the default, or spread.
	//
	// +optional
	GPU *string `json:"gpu,omitempty"`

	// CPU is the strategy for all other pods: binpack, the default, or spread.
	//
	// +optional
	CPU *string `json:"cpu,omitempty"`
}

// MinRuntime holds the times, as Go durations, for which a gang that started is safe from others.
type MinRuntime struct {
	// PreemptMinRuntime protects from gangs of the same queue. Default: 0s.
	//
	// +optional
	PreemptMinRuntime *string `json:"preemptMinRuntime,omitempty"`

	// ReclaimMinRuntime protects from gangs of other queues. Default: 0s.
	//
	// +optional
	ReclaimMinRuntime *string `json:"reclaimMinRuntime,omitempty"`
}

// ScenarioSearchBudgets bound the time that one cycle spends on looking for victims. A duration of 0 is no bound;
// negative ones are refused.
type ScenarioSearchBudgets struct {
	// MaxActionSearchDuration bounds a whole action, by its name: reclaim, preempt, consolidation, or default for
	// those not named. Default: 5m.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(name, duration(self[name]) == duration(self[name]))",message="must be Go durations, for instance 90s or 1h30m"
	MaxActionSearchDuration map[string]metav1.Duration `json:"maxActionSearchDuration,omitempty"`

	// MaxJobSearchDuration bounds the search for one gang. Default: 4m.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration(self)",message="must be a Go duration, for instance 90s or 1h30m"
	MaxJobSearchDuration *metav1.Duration `json:"maxJobSearchDuration,omitempty"`

	// MinJobSearchDuration is granted to every gang, even when the action's time is used up. It must be below
	// MaxJobSearchDuration. Default: 0s.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration(self)",message="must be a Go duration, for instance 90s or 1h30m"
	MinJobSearchDuration *metav1.Duration `json:"minJobSearchDuration,omitempty"`

	// MaxGeneratorSearchDuration bounds one victim generator, by its name. Default: 30s for NodeLocalGreedy, 2m for
	// all others.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(name, duration(self[name]) == duration(self[name]))",message="must be Go durations, for instance 90s or 1h30m"
	MaxGeneratorSearchDuration map[string]metav1.Duration `json:"maxGeneratorSearchDuration,omitempty"`
}

// PluginConfig changes one entry of a list of plugins; what is unset stays as it was.
type PluginConfig struct {
	// Enabled says whether the plugin takes part.
	//
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// Priority orders plugins; those with a higher value are asked first.
	//
	// +optional
	Priority *int `json:"priority,omitempty"`

	// Arguments are handed to the plugin. If given, they replace all its default arguments.
	//
	// +optional
	Arguments map[string]string `json:"arguments,omitempty"`
}

// ActionConfig changes one entry of the list of actions; what is unset stays as it was.
type ActionConfig struct {
	// Enabled says whether the action runs.
	//
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// Priority orders actions; those with a higher value run first.
	//
	// +optional
	Priority *int `json:"priority,omitempty"`
}

// SchedulingShardStatus is what the operator last saw of the shard's scheduler.
type SchedulingShardStatus struct {
	// Conditions say how far the shard is; see the Condition constants.
	//
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SchedulingShard describes one scheduler and the part of the cluster it owns.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
type SchedulingShard struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// Spec is what the administrator wants.
	Spec SchedulingShardSpec `json:"spec,omitempty,omitzero"`

	// Status is what the operator saw.
	Status SchedulingShardStatus `json:"status,omitempty,omitzero"`
}

// SchedulingShardList is a list of SchedulingShards, as the API server returns it.
//
// +kubebuilder:object:root=true
type SchedulingShardList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the SchedulingShards.
	Items []SchedulingShard `json:"items"`
}

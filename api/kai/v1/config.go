package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigName is the name of the one Config that the operator acts upon; it ignores all others.
const ConfigName = "kai-config"

// Types of the conditions that the operator writes on Config and SchedulingShard.
const (
	// ConditionReconciling is True while the operator brings the cluster towards the spec.
	ConditionReconciling = "Reconciling"

	// ConditionDeployed is True when all objects that the spec asks for exist.
	ConditionDeployed = "Deployed"

	// ConditionAvailable is True when all that was deployed is up.
	ConditionAvailable = "Available"

	// ConditionDependenciesFulfilled is True when all foreign parts that the spec needs are installed.
	ConditionDependenciesFulfilled = "DependenciesFulfilled"

	// ConditionReady follows ConditionAvailable.
	ConditionReady = "Ready"
)

// Reasons of these conditions.
const (
	// ReasonDeployed: all objects exist.
	ReasonDeployed = "deployed"

	// ReasonAvailable: all that was deployed is up.
	ReasonAvailable = "available"

	// ReasonReconciled: nothing is left to do.
	ReasonReconciled = "reconciled"

	// ReasonReconciling: the operator is at work.
	ReasonReconciling = "reconciling"

	// ReasonReady: all that was deployed is up.
	ReasonReady = "ready"

	// ReasonNotReady: something is not up; the message says what.
	ReasonNotReady = "not_ready"

	// ReasonDependenciesFulfilled: nothing foreign is missing.
	ReasonDependenciesFulfilled = "dependencies_fulfilled"

	// ReasonDependenciesMissing: something foreign is missing; the message says what.
	ReasonDependenciesMissing = "dependencies_missing"

	// ReasonPrometheusConnected: the external Prometheus answers.
	ReasonPrometheusConnected = "prometheus_connected"

	// ReasonPrometheusConnectionFailed: the external Prometheus does not answer.
	ReasonPrometheusConnectionFailed = "prometheus_connection_failed"
)

// ConfigSpec describes the control plane: where it runs and how each component is set up.
type ConfigSpec struct {
	// Namespace is where the control plane runs. Default: kai-scheduler.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Global holds what all components share.
	//
	// +optional
	Global *GlobalConfig `json:"global,omitempty"`

	// PodGrouper sets up the component that makes gangs of the pods of a workload.
	//
	// +optional
	PodGrouper *PodGrouper `json:"podGrouper,omitempty"`

	// Binder sets up the component that puts pods on the nodes chosen for them.
	//
	// +optional
	Binder *Binder `json:"binder,omitempty"`

	// Admission sets up the webhooks for pods and topologies.
	//
	// +optional
	Admission *Admission `json:"admission,omitempty"`

	// Scheduler sets up what the schedulers of all shards share.
	//
	// +optional
	Scheduler *Scheduler `json:"scheduler,omitempty"`

	// QueueController sets up the component that keeps queue statuses and metrics.
	//
	// +optional
	QueueController *QueueController `json:"queueController,omitempty"`

	// PodGroupController sets up the component that keeps gang statuses.
	//
	// +optional
	PodGroupController *PodGroupController `json:"podGroupController,omitempty"`

	// NodeScaleAdjuster sets up the component that shows cluster autoscalers the demand of pods that share GPUs.
	//
	// +optional
	NodeScaleAdjuster *NodeScaleAdjuster `json:"nodeScaleAdjuster,omitempty"`

	// Prometheus sets up the metrics store that time-based shares read.
	//
	// +optional
	Prometheus *Prometheus `json:"prometheus,omitempty"`

	// NUMAPlacementExporter sets up the node agent that reports where on a node pods were placed.
	//
	// +optional
	NUMAPlacementExporter *NUMAPlacementExporter `json:"numaPlacementExporter,omitempty"`
}

// GlobalConfig holds what all components share.
type GlobalConfig struct {
	// VPA is the vertical autoscaling of every component that has no setting of its own.
	//
	// +optional
	VPA *VPASpec `json:"vpa,omitempty"`

	// Openshift leaves the containers' security contexts to the platform. Default: false.
	//
	// +optional
	Openshift *bool `json:"openshift,omitempty"`

	// Affinity is merged with each component's own.
	//
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// RequireDefaultPodAntiAffinityTerm makes the default spreading of replicas over nodes a requirement instead of
	// a preference. Default: false.
	//
	// +optional
	RequireDefaultPodAntiAffinityTerm *bool `json:"requireDefaultPodAntiAffinityTerm,omitempty"`

	// SecurityContext is that of all containers. Default: no privilege escalation, not root, user 10000, no
	// capabilities.
	//
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`

	// ImagesPullSecret is the name of a pull secret. Deprecated: it is moved to AdditionalImagePullSecrets.
	//
	// +optional
	ImagesPullSecret *string `json:"imagesPullSecret,omitempty"`

	// AdditionalImagePullSecrets are the names of pull secrets in the control plane's namespace.
	//
	// +optional
	AdditionalImagePullSecrets []string `json:"additionalImagePullSecrets,omitempty"`

	// NodeSelector is that of all components but the node agents.
	//
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations are those of all components but the node agents.
	//
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// DaemonsetsTolerations are those of the node agents, before their own.
	//
	// +optional
	DaemonsetsTolerations []corev1.Toleration `json:"daemonsetsTolerations,omitempty"`

	// PriorityClassName is that of all components' pods.
	//
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// ReplicaCount is the number of replicas of every component that has no setting of its own. Default: 1.
	//
	// +optional
	ReplicaCount *int32 `json:"replicaCount,omitempty"`

	// QueueLabelKey is the label by which workloads name their queue. Default: kai.scheduler/queue.
	//
	// +optional
	QueueLabelKey *string `json:"queueLabelKey,omitempty"`

	// SchedulerName is the value of a pod's spec.schedulerName that hands it to this control plane.
	// Default: kai-scheduler.
	//
	// +optional
	SchedulerName *string `json:"schedulerName,omitempty"`

	// NodePoolLabelKey is the label that divides the cluster among shards. Default: kai.scheduler/node-pool.
	//
	// +optional
	NodePoolLabelKey *string `json:"nodePoolLabelKey,omitempty"`

	// NamespaceLabelSelector limits webhooks and podgrouper to namespaces with these labels.
	//
	// +optional
	NamespaceLabelSelector map[string]string `json:"namespaceLabelSelector,omitempty"`

	// PodLabelSelector limits webhooks and podgrouper to pods with these labels.
	//
	// +optional
	PodLabelSelector map[string]string `json:"podLabelSelector,omitempty"`

	// JSONLog makes all components log in JSON. Default: false.
	//
	// +optional
	JSONLog *bool `json:"jsonLog,omitempty"`
}

// ConfigStatus is what the operator last saw of the control plane.
type ConfigStatus struct {
	// Conditions say how far the installation is; see the Condition constants.
	//
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Config describes the control plane. The operator acts upon the one named kai-config.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
type Config struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// Spec is what the administrator wants.
	Spec ConfigSpec `json:"spec,omitempty,omitzero"`

	// Status is what the operator saw.
	Status ConfigStatus `json:"status,omitempty,omitzero"`
}

// ConfigList is a list of Configs, as the API server returns it.
//
// +kubebuilder:object:root=true
type ConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the Configs.
	Items []Config `json:"items"`
}

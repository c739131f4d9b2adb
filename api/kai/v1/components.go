package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodGrouper sets up the component that makes gangs of the pods of a workload.
type PodGrouper struct {
	// Service is how the component is deployed.
	//
	// +optional
	Service *Service `json:"service,omitempty"`

	// Args are the component's own settings.
	//
	// +optional
	Args *PodGrouperArgs `json:"args,omitempty"`

	// K8sClientConfig bounds the component's calls to the API server; it counts instead of that in Service.
	// Default: 50 and 300.
	//
	// +optional
	K8sClientConfig *K8sClientConfig `json:"k8sClientConfig,omitempty"`

	// MaxConcurrentReconciles is the number of pods that are worked on at once. Default: 10.
	//
	// +optional
	MaxConcurrentReconciles *int `json:"maxConcurrentReconciles,omitempty"`

	// Replicas is the number of instances, of which one works. Default: the global one.
	//
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// VPA is the component's vertical autoscaling. Default: the global one.
	//
	// +optional
	VPA *VPASpec `json:"vpa,omitempty"`
}

// PodGrouperArgs are the podgrouper's own settings.
type PodGrouperArgs struct {
	// GangScheduleKnative makes one gang of each Knative revision instead of one per pod. Default: true.
	//
	// +optional
	GangScheduleKnative *bool `json:"gangScheduleKnative,omitempty"`

	// GenericKartaFallback looks for a rule among Karta objects when a workload's kind is unknown. Default: true.
	//
	// +optional
	GenericKartaFallback *bool `json:"genericKartaFallback,omitempty"`

	// DefaultPrioritiesConfigMapName is the ConfigMap that holds default priorities per kind of workload.
	//
	// +optional
	DefaultPrioritiesConfigMapName *string `json:"defaultPrioritiesConfigMapName,omitempty"`

	// DefaultPrioritiesConfigMapNamespace is that ConfigMap's namespace.
	//
	// +optional
	DefaultPrioritiesConfigMapNamespace *string `json:"defaultPrioritiesConfigMapNamespace,omitempty"`
}

// Binder sets up the component that puts pods on the nodes chosen for them.
type Binder struct {
	// Service is how the component is deployed.
	//
	// +optional
	Service *Service `json:"service,omitempty"`

	// ResourceReservation sets up the pods that hold shared GPUs.
	//
	// +optional
	ResourceReservation *ResourceReservation `json:"resourceReservation,omitempty"`

	// Replicas is the number of instances, of which one works. Default: the global one.
	//
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// MaxConcurrentReconciles is the number of requests that are worked on at once. Default: 10.
	//
	// +optional
	MaxConcurrentReconciles *int `json:"maxConcurrentReconciles,omitempty"`

	// VolumeBindingTimeoutSeconds is how long a pod's volumes may take to bind. Default: 120.
	//
	// +optional
	VolumeBindingTimeoutSeconds *int `json:"volumeBindingTimeoutSeconds,omitempty"`

	// ProbePort is the port of the health endpoint. Default: 8081.
	//
	// +optional
	ProbePort *int `json:"probePort,omitempty"`

	// MetricsPort is the port of the metrics endpoint. Default: 8080.
	//
	// +optional
	MetricsPort *int `json:"metricsPort,omitempty"`

	// CDIEnabled says whether the nodes hand devices to containers through the Container Device Interface. Unset:
	// the operator asks the GPU operator's ClusterPolicy.
	//
	// +optional
	CDIEnabled *bool `json:"cdiEnabled,omitempty"`

	// Plugins change the built-in list of the binder's plugins, by name.
	//
	// +optional
	Plugins map[string]PluginConfig `json:"plugins,omitempty"`

	// VPA is the component's vertical autoscaling. Default: the global one.
	//
	// +optional
	VPA *VPASpec `json:"vpa,omitempty"`
}

// ResourceReservation sets up the pods that hold shared GPUs on behalf of the pods that share them.
type ResourceReservation struct {
	// Image is their container image.
	//
	// +optional
	Image *Image `json:"image,omitempty"`

	// AllocationTimeout is how long, in seconds, such a pod may take to say which device it holds. Default: 40.
	//
	// +optional
	AllocationTimeout *int `json:"allocationTimeout,omitempty"`

	// Namespace is where they run. Default: kai-resource-reservation.
	//
	// +optional
	Namespace *string `json:"namespace,omitempty"`

	// ServiceAccountName is the account they run under. Default: kai-resource-reservation.
	//
	// +optional
	ServiceAccountName *string `json:"serviceAccountName,omitempty"`

	// AppLabel is the value of their label app. Default: kai-resource-reservation.
	//
	// +optional
	AppLabel *string `json:"appLabel,omitempty"`

	// RuntimeClassName is their runtime class.
	//
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`

	// PodResources are their requests and limits beside the one GPU.
	//
	// +optional
	PodResources *Resources `json:"podResources,omitempty"`

	// ReservationPodSecurityContext is their pod security context.
	//
	// +optional
	ReservationPodSecurityContext *corev1.PodSecurityContext `json:"reservationPodSecurityContext,omitempty"`

	// ReservationContainerSecurityContext is their container security context. Default: the global one.
	//
	// +optional
	ReservationContainerSecurityContext *corev1.SecurityContext `json:"reservationContainerSecurityContext,omitempty"`
}

// Admission sets up the webhooks for pods and topologies.
type Admission struct {
	// Service is how the component is deployed.
	//
	// +optional
	Service *Service `json:"service,omitempty"`

	// Webhook holds the component's ports.
	//
	// +optional
	Webhook *AdmissionWebhook `json:"webhook,omitempty"`

	// Replicas is the number of instances. Default: the global one, but two at least.
	//
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// GPUSharing admits pods that ask for a part of a GPU. Default: false.
	//
	// +optional
	GPUSharing *bool `json:"gpuSharing,omitempty"`

	// BlockNvidiaVisibleDevices keeps containers from reaching GPUs that they did not ask for. Default: false.
	//
	// +optional
	BlockNvidiaVisibleDevices *bool `json:"blockNvidiaVisibleDevices,omitempty"`

	// QueueLabelSelector limits the webhooks to namespaces that carry the queue label. Default: false.
	//
	// +optional
	QueueLabelSelector *bool `json:"queueLabelSelector,omitempty"`

	// ValidatingWebhookConfigurationName is the name of that object. Default: validating-kai-admission.
	//
	// +optional
	ValidatingWebhookConfigurationName *string `json:"validatingWebhookConfigurationName,omitempty"`

	// MutatingWebhookConfigurationName is the name of that object. Default: mutating-kai-admission.
	//
	// +optional
	MutatingWebhookConfigurationName *string `json:"mutatingWebhookConfigurationName,omitempty"`

	// GPUPodRuntimeClassName is the runtime class of pods that share GPUs. Deprecated: use
	// GPUFractionRuntimeClassName.
	//
	// +optional
	GPUPodRuntimeClassName *string `json:"gpuPodRuntimeClassName,omitempty"`

	// GPUFractionRuntimeClassName is the runtime class given to pods that share GPUs and name none. Empty: none is
	// given. Unset: the deprecated field, then nvidia.
	//
	// +optional
	GPUFractionRuntimeClassName *string `json:"gpuFractionRuntimeClassName,omitempty"`

	// VPA is the component's vertical autoscaling. Default: the global one.
	//
	// +optional
	VPA *VPASpec `json:"vpa,omitempty"`
}

// AdmissionWebhook holds the ports of the admission component.
type AdmissionWebhook struct {
	// Port is the Service's port. Default: 443.
	//
	// +optional
	Port *int `json:"port,omitempty"`

	// TargetPort is the container's port. Default: 9443.
	//
	// +optional
	TargetPort *int `json:"targetPort,omitempty"`

	// ProbePort is the port of the health endpoint. Default: 8081.
	//
	// +optional
	ProbePort *int `json:"probePort,omitempty"`

	// MetricsPort is the port of the metrics endpoint. Default: 8080.
	//
	// +optional
	MetricsPort *int `json:"metricsPort,omitempty"`
}

// Scheduler sets up what the schedulers of all shards share.
type Scheduler struct {
	// Service is how the schedulers are deployed. Default resources: requests of 250m CPU and 512Mi memory, limits
	// of 700m and 512Mi.
	//
	// +optional
	Service *Service `json:"service,omitempty"`

	// GOGC is the garbage collection target of the Go runtime, in percent. Default: 400.
	//
	// +optional
	GOGC *int `json:"GOGC,omitempty"`

	// SchedulerService is the Kubernetes Service in front of a scheduler.
	//
	// +optional
	SchedulerService *SchedulerService `json:"schedulerService,omitempty"`

	// Replicas is the number of instances per shard, of which one works. Default: the global one.
	//
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// VPA is the schedulers' vertical autoscaling. Default: the global one.
	//
	// +optional
	VPA *VPASpec `json:"vpa,omitempty"`
}

// SchedulerService is the Kubernetes Service in front of a scheduler.
type SchedulerService struct {
	// Type is the Service's type. Default: ClusterIP.
	//
	// +optional
	Type *corev1.ServiceType `json:"type,omitempty"`

	// Port is the Service's port. Default: 8080.
	//
	// +optional
	Port *int `json:"port,omitempty"`

	// TargetPort is the container's port. Default: 8080.
	//
	// +optional
	TargetPort *int `json:"targetPort,omitempty"`
}

// QueueController sets up the component that keeps queue statuses and metrics.
type QueueController struct {
	// Service is how the component is deployed.
	//
	// +optional
	Service *Service `json:"service,omitempty"`

	// ControllerService is the Kubernetes Service in front of it.
	//
	// +optional
	ControllerService *QueueControllerService `json:"controllerService,omitempty"`

	// Webhooks says whether queues are validated.
	//
	// +optional
	Webhooks *Webhooks `json:"webhooks,omitempty"`

	// Replicas is the number of instances, of which one works. Default: the global one.
	//
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// MetricsNamespace is what the names of its metrics begin with. Default: kai.
	//
	// +optional
	MetricsNamespace *string `json:"metricsNamespace,omitempty"`

	// QueueLabelToMetricLabel adds labels of queues to its metrics: a list of label=metric label, separated by
	// commas.
	//
	// +optional
	QueueLabelToMetricLabel *string `json:"queueLabelToMetricLabel,omitempty"`

	// QueueLabelToDefaultMetricValue gives the values for queues without such a label: a list of label=value,
	// separated by commas.
	//
	// +optional
	QueueLabelToDefaultMetricValue *string `json:"queueLabelToDefaultMetricValue,omitempty"`

	// VPA is the component's vertical autoscaling. Default: the global one.
	//
	// +optional
	VPA *VPASpec `json:"vpa,omitempty"`
}

// QueueControllerService is the Kubernetes Service in front of the queue controller.
type QueueControllerService struct {
	// Metrics is the port of the metrics endpoint. Default: 8080 to 8080, named metrics.
	//
	// +optional
	Metrics *ServicePort `json:"metrics,omitempty"`

	// Webhook is the port of the webhook. Default: 443 to 9443, named webhook.
	//
	// +optional
	Webhook *ServicePort `json:"webhook,omitempty"`
}

// PodGroupController sets up the component that keeps gang statuses.
type PodGroupController struct {
	// Service is how the component is deployed.
	//
	// +optional
	Service *Service `json:"service,omitempty"`

	// ControllerService is the Kubernetes Service in front of it.
	//
	// +optional
	ControllerService *PodGroupControllerService `json:"controllerService,omitempty"`

	// MaxConcurrentReconciles is the number of gangs that are worked on at once. Default: 10.
	//
	// +optional
	MaxConcurrentReconciles *int `json:"maxConcurrentReconciles,omitempty"`

	// Webhooks says whether gangs are validated.
	//
	// +optional
	Webhooks *Webhooks `json:"webhooks,omitempty"`

	// Replicas is the number of instances, of which one works. Default: the global one.
	//
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// VPA is the component's vertical autoscaling. Default: the global one.
	//
	// +optional
	VPA *VPASpec `json:"vpa,omitempty"`
}

// PodGroupControllerService is the Kubernetes Service in front of the podgroup controller.
type PodGroupControllerService struct {
	// Webhook is the port of the webhook. Default: 443 to 9443, named webhook.
	//
	// +optional
	Webhook *ServicePort `json:"webhook,omitempty"`
}

// NodeScaleAdjuster sets up the component that shows cluster autoscalers the demand of pods that share GPUs.
type NodeScaleAdjuster struct {
	// Service is how the component is deployed.
	//
	// +optional
	Service *Service `json:"service,omitempty"`

	// Args are the component's own settings.
	//
	// +optional
	Args *NodeScaleAdjusterArgs `json:"args,omitempty"`

	// VPA is the component's vertical autoscaling. Default: the global one.
	//
	// +optional
	VPA *VPASpec `json:"vpa,omitempty"`
}

// NodeScaleAdjusterArgs are the node scale adjuster's own settings.
type NodeScaleAdjusterArgs struct {
	// ScalingPodImage is the container image of the pods that stand for the demand.
	//
	// +optional
	ScalingPodImage *Image `json:"scalingPodImage,omitempty"`

	// NodeScaleNamespace is where they run. Default: kai-scale-adjust.
	//
	// +optional
	NodeScaleNamespace *string `json:"nodeScaleNamespace,omitempty"`

	// NodeScaleServiceAccount is the account they run under. Default: kai-scale-adjust.
	//
	// +optional
	NodeScaleServiceAccount *string `json:"nodeScaleServiceAccount,omitempty"`

	// GPUMemoryToFractionRatio is the part of a GPU that a request by memory counts for. Default: 0.1.
	//
	// +optional
	GPUMemoryToFractionRatio *float64 `json:"gpuMemoryToFractionRatio,omitempty"`
}

// NUMAPlacementExporter sets up the node agent that reports where on a node pods were placed.
type NUMAPlacementExporter struct {
	// Service is how the agent is deployed; if its enabled is unset, the agent is deployed when a shard enables the
	// plugin numa.
	//
	// +optional
	Service *Service `json:"service,omitempty"`

	// NodeSelector is where it runs. Default: nodes with feature.node.kubernetes.io/memory-numa=true.
	//
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations are the agent's, after the global ones for node agents.
	//
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// PollInterval is the time between two looks at the node. Default: 1s.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration(self)",message="must be a Go duration, for instance 90s or 1h30m"
	PollInterval *metav1.Duration `json:"pollInterval,omitempty"`

	// DriftResyncInterval is the time between two comparisons with the API server; 0: none. Default: 60s.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration(self)",message="must be a Go duration, for instance 90s or 1h30m"
	DriftResyncInterval *metav1.Duration `json:"driftResyncInterval,omitempty"`

	// PodResourcesHostPath is the node's directory with the kubelet's socket.
	// Default: /var/lib/kubelet/pod-resources.
	//
	// +optional
	PodResourcesHostPath *string `json:"podResourcesHostPath,omitempty"`

	// PodResourcesSocket is the kubelet's socket. Default: /var/lib/kubelet/pod-resources/kubelet.sock.
	//
	// +optional
	PodResourcesSocket *string `json:"podResourcesSocket,omitempty"`

	// SysfsHostPath is where the node describes its hardware. Default: /sys.
	//
	// +optional
	SysfsHostPath *string `json:"sysfsHostPath,omitempty"`
}

// Prometheus sets up the metrics store that time-based shares read.
type Prometheus struct {
	// Enabled deploys one, through the Prometheus operator. Default: false.
	//
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// InstanceName is its name. Default: prometheus.
	//
	// +optional
	InstanceName *string `json:"instanceName,omitempty"`

	// RetentionPeriod is how long samples are kept, as a Prometheus duration. Default: 2w.
	//
	// +optional
	RetentionPeriod *string `json:"retentionPeriod,omitempty"`

	// SampleInterval is kept for compatibility and has no effect. Default: 1m.
	//
	// +optional
	SampleInterval *string `json:"sampleInterval,omitempty"`

	// EnablePersistentStorage gives it a volume. Default: true.
	//
	// +optional
	EnablePersistentStorage *bool `json:"enablePersistentStorage,omitempty"`

	// StorageSize is that volume's size. Default: 50Gi.
	//
	// +optional
	StorageSize *string `json:"storageSize,omitempty"`

	// StorageClassName is that volume's class. Default: standard.
	//
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`

	// ServiceMonitor says how metrics are collected.
	//
	// +optional
	ServiceMonitor *ServiceMonitor `json:"serviceMonitor,omitempty"`

	// ExternalPrometheusURL is the address of a Prometheus that exists already; none is deployed then.
	//
	// +optional
	ExternalPrometheusURL *string `json:"externalPrometheusUrl,omitempty"`

	// ExternalPrometheusHealthProbe says how that one is watched.
	//
	// +optional
	ExternalPrometheusHealthProbe *ExternalPrometheusHealthProbe `json:"externalPrometheusHealthProbe,omitempty"`

	// AccountingLabelKey is the label of the monitors that it collects from. Default: kai.scheduler/accounting.
	//
	// +optional
	AccountingLabelKey *string `json:"accountingLabelKey,omitempty"`

	// AccountingLabelValue is that label's value. Default: true.
	//
	// +optional
	AccountingLabelValue *string `json:"accountingLabelValue,omitempty"`
}

// ServiceMonitor says how metrics are collected.
type ServiceMonitor struct {
	// Enabled installs the monitors. Default: true.
	//
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// Interval is the time between two collections, as a Prometheus duration. Default: 30s.
	//
	// +optional
	Interval *string `json:"interval,omitempty"`

	// ScrapeTimeout is how long one may take. Default: 10s.
	//
	// +optional
	ScrapeTimeout *string `json:"scrapeTimeout,omitempty"`

	// BearerTokenFile is the file with the token sent along.
	// Default: /var/run/secrets/kubernetes.io/serviceaccount/token.
	//
	// +optional
	BearerTokenFile *string `json:"bearerTokenFile,omitempty"`
}

// ExternalPrometheusHealthProbe says how a Prometheus that was not deployed by the operator is watched.
type ExternalPrometheusHealthProbe struct {
	// Interval is the number of seconds between two probes. Default: 30.
	//
	// +optional
	Interval *int `json:"interval,omitempty"`

	// Timeout is the number of seconds that one may take. Default: 10.
	//
	// +optional
	Timeout *int `json:"timeout,omitempty"`

	// MaxRetries is the number of further attempts before a probe counts as failed. Default: 5.
	//
	// +optional
	MaxRetries *int `json:"maxRetries,omitempty"`
}

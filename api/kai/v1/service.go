package v1

import (
	corev1 "k8s.io/api/core/v1"
)

// Service is how one component is deployed.
type Service struct {
	// Enabled says whether the component is deployed. Default: true. For the NUMA placement exporter, unset means:
	// when a shard uses the numa plugin.
	//
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// Image is the component's container image.
	//
	// +optional
	Image *Image `json:"image,omitempty"`

	// Resources are the container's requests and limits. Default: requests of 50m CPU and 256Mi memory, and a
	// limit of 512Mi, unless the component says otherwise. No limit of CPU.
	//
	// +optional
	Resources *Resources `json:"resources,omitempty"`

	// K8sClientConfig bounds the component's calls to the API server.
	//
	// +optional
	K8sClientConfig *K8sClientConfig `json:"k8sClientConfig,omitempty"`

	// Affinity is merged with the global one.
	//
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// PodDisruptionBudget keeps replicas up while nodes are drained.
	//
	// +optional
	PodDisruptionBudget *PodDisruptionBudget `json:"podDisruptionBudget,omitempty"`
}

// Image names a container image as repository/name:tag.
type Image struct {
	// Repository is the registry and path. Default: the operator's MS_REPOSITORY.
	//
	// +optional
	Repository *string `json:"repository,omitempty"`

	// Name is the image's name. Default: the component's.
	//
	// +optional
	Name *string `json:"name,omitempty"`

	// Tag is the image's tag. Default: the operator's MS_TAG.
	//
	// +optional
	Tag *string `json:"tag,omitempty"`

	// PullPolicy is Always, Never or IfNotPresent, the default.
	//
	// +optional
	PullPolicy *corev1.PullPolicy `json:"pullPolicy,omitempty"`
}

// Resources are a container's requests, limits and device claims.
type Resources corev1.ResourceRequirements

// K8sClientConfig bounds a component's calls to the API server.
type K8sClientConfig struct {
	// QPS is the sustained number of calls per second. Unset, as burst is: none, the API server paces.
	//
	// +optional
	QPS *int `json:"qps,omitempty"`

	// Burst is the number of calls that may be made at once. Unset: the component's own, 300.
	//
	// +optional
	Burst *int `json:"burst,omitempty"`
}

// PodDisruptionBudget asks for a budget for a component that has several replicas.
type PodDisruptionBudget struct {
	// Enabled says whether there is one. Default: false; true for admission.
	//
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// MaxUnavailable is the number of replicas that may be down at once. Default: 1.
	//
	// +optional
	MaxUnavailable *int32 `json:"maxUnavailable,omitempty"`
}

// ServicePort is one port of a component's Kubernetes Service.
type ServicePort struct {
	// Port is the Service's port.
	//
	// +optional
	Port *int `json:"port,omitempty"`

	// TargetPort is the container's port.
	//
	// +optional
	TargetPort *int `json:"targetPort,omitempty"`

	// Name is the port's name.
	//
	// +optional
	Name *string `json:"name,omitempty"`
}

// Webhooks says which validating webhooks a controller installs.
type Webhooks struct {
	// EnableValidation installs them. Default: true.
	//
	// +optional
	EnableValidation *bool `json:"enableValidation,omitempty"`

	// WebhookConfigurationNamePrefix is what the name of the webhook configuration begins with; the API version
	// follows. Default: kai-queue-validation- or kai-podgroup-validation-.
	//
	// +optional
	WebhookConfigurationNamePrefix *string `json:"webhookConfigurationNamePrefix,omitempty"`
}

// VPASpec asks for the vertical autoscaling of a component. Its parts have the form of the
// VerticalPodAutoscaler of autoscaling.k8s.io/v1.
type VPASpec struct {
	// Enabled says whether there is one. Default: false.
	//
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// UpdatePolicy says how recommendations reach the pods. Default: updateMode InPlaceOrRecreate.
	//
	// +optional
	UpdatePolicy *VPAUpdatePolicy `json:"updatePolicy,omitempty"`

	// ResourcePolicy bounds what is recommended.
	//
	// +optional
	ResourcePolicy *VPAResourcePolicy `json:"resourcePolicy,omitempty"`
}

// VPAUpdatePolicy says how recommendations reach the pods.
type VPAUpdatePolicy struct {
	// UpdateMode says when they do: never, at a pod's creation, by replacing pods, in place or by replacing, or as
	// the autoscaler likes.
	//
	// +optional
	// +kubebuilder:validation:Enum=Off;Initial;Recreate;InPlaceOrRecreate;Auto
	UpdateMode *string `json:"updateMode,omitempty"`

	// MinReplicas is the number of live replicas below which none is replaced.
	//
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// EvictionRequirements must all hold for a pod to be replaced.
	//
	// +optional
	EvictionRequirements []VPAEvictionRequirement `json:"evictionRequirements,omitempty"`
}

// VPAEvictionRequirement holds when the recommendation of at least one of the resources differs as asked.
type VPAEvictionRequirement struct {
	// Resources are the names of the resources that are looked at.
	//
	// +required
	Resources []corev1.ResourceName `json:"resources"`

	// ChangeRequirement says whether the recommendation must be above or below the current requests.
	//
	// +required
	// +kubebuilder:validation:Enum=TargetHigherThanRequests;TargetLowerThanRequests
	ChangeRequirement string `json:"changeRequirement"`
}

// VPAResourcePolicy bounds what is recommended.
type VPAResourcePolicy struct {
	// ContainerPolicies hold the bounds per container.
	//
	// +optional
	ContainerPolicies []VPAContainerPolicy `json:"containerPolicies,omitempty"`
}

// VPAContainerPolicy bounds what is recommended for one container.
type VPAContainerPolicy struct {
	// ContainerName is the container, or * for all that are not named.
	//
	// +optional
	ContainerName string `json:"containerName,omitempty"`

	// Mode switches the autoscaling of the container.
	//
	// +optional
	// +kubebuilder:validation:Enum=Auto;Off
	Mode *string `json:"mode,omitempty"`

	// MinAllowed is the least that is recommended.
	//
	// +optional
	MinAllowed corev1.ResourceList `json:"minAllowed,omitempty"`

	// MaxAllowed is the most that is recommended.
	//
	// +optional
	MaxAllowed corev1.ResourceList `json:"maxAllowed,omitempty"`

	// ControlledResources are the resources that are recommended; unset: CPU and memory.
	//
	// +optional
	ControlledResources *[]corev1.ResourceName `json:"controlledResources,omitempty"`

	// ControlledValues says whether limits follow the requests.
	//
	// +optional
	// +kubebuilder:validation:Enum=RequestsAndLimits;RequestsOnly
	ControlledValues *string `json:"controlledValues,omitempty"`
}

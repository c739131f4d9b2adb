package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ColocationConfiguration says how a node treats pods that share it with more important ones. Muster stores it for Volcano's agent.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
type ColocationConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what is asked for.
	Spec ColocationConfigurationSpec `json:"spec"`
	// Status is what became of it.
	// +optional
	Status ColocationConfigurationStatus `json:"status,omitempty"`
}

// ColocationConfigurationSpec is what is asked for.
type ColocationConfigurationSpec struct {
	// Selector says for which pods.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// MemoryQos says how their memory is bounded.
	// +optional
	MemoryQos *MemoryQos `json:"memoryQos,omitempty"`
}

// MemoryQos are bounds of memory, in percent of the pod's request or limit.
type MemoryQos struct {
	// HighRatio is where the kernel begins to slow the pod down.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	HighRatio int `json:"highRatio,omitempty"`
	// LowRatio is what it keeps where it can.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	LowRatio int `json:"lowRatio,omitempty"`
	// MinRatio is what it always keeps.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MinRatio int `json:"minRatio,omitempty"`
}

// ColocationConfigurationStatus is what became of it.
type ColocationConfigurationStatus struct {
	// Conditions say what.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ColocationConfigurationList is a list of ColocationConfigurations.
//
// +kubebuilder:object:root=true
type ColocationConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ColocationConfiguration `json:"items"`
}

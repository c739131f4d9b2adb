package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Command has a controller do something once to the object that it names. It is deleted before it is obeyed, so that it is obeyed at most
// once.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
type Command struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Action is what is to be done, such as AbortJob.
	// +optional
	Action string `json:"action,omitempty"`
	// TargetObject is to whom: a Job of the Command's namespace, or a Queue.
	// +optional
	TargetObject *metav1.OwnerReference `json:"target,omitempty"`
	// Reason is one word for why.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// CommandList is a list of Commands.
//
// +kubebuilder:object:root=true
type CommandList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Command `json:"items"`
}

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
)

// JobTemplate is what JobFlows make Jobs of. Its spec is the Job's.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=jt
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
type JobTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is the Job's.
	// +optional
	Spec batch.JobSpec `json:"spec,omitempty"`
	// Status says what was made of it.
	// +optional
	Status JobTemplateStatus `json:"status,omitempty"`
}

// JobTemplateStatus says what was made of a JobTemplate.
type JobTemplateStatus struct {
	// JobDependsOnList are the Jobs.
	// +optional
	JobDependsOnList []string `json:"jobDependsOnList,omitempty"`
}

// JobTemplateList is a list of JobTemplates.
//
// +kubebuilder:object:root=true
type JobTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []JobTemplate `json:"items"`
}

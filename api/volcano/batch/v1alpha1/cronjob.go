package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CronJob makes a Job at each time of a schedule.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=cronvcjob;cronvj
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
type CronJob struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what is asked for.
	// +optional
	Spec CronJobSpec `json:"spec,omitempty"`
	// Status is what became of it.
	// +optional
	Status CronJobStatus `json:"status,omitempty"`
}

// ConcurrencyPolicy says what happens when a Job is due while the one before it runs.
//
// +kubebuilder:validation:Enum=Allow;Forbid;Replace
type ConcurrencyPolicy string

const (
	// AllowConcurrent means that both run.
	AllowConcurrent ConcurrencyPolicy = "Allow"
	// ForbidConcurrent means that the new one is skipped.
	ForbidConcurrent ConcurrencyPolicy = "Forbid"
	// ReplaceConcurrent means that the old one is deleted.
	ReplaceConcurrent ConcurrencyPolicy = "Replace"
)

// CronJobSpec is what a CronJob asks for.
type CronJobSpec struct {
	// Schedule is in the form of cron, with five fields.
	Schedule string `json:"schedule"`
	// TimeZone is of the IANA list; nil: the controller's.
	// +optional
	TimeZone *string `json:"timeZone,omitempty"`
	// StartingDeadlineSeconds is how late a Job may be made; nil: however late.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`
	// ConcurrencyPolicy says what happens while the Job before runs.
	// +optional
	// +kubebuilder:default=Allow
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`
	// Suspend stops the making of Jobs.
	// +optional
	// +kubebuilder:default=false
	Suspend *bool `json:"suspend,omitempty"`
	// JobTemplate is what a Job is made of.
	JobTemplate JobTemplateSpec `json:"jobTemplate"`
	// SuccessfulJobsHistoryLimit is how many completed Jobs are kept.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	SuccessfulJobsHistoryLimit *int32 `json:"successfulJobsHistoryLimit,omitempty"`
	// FailedJobsHistoryLimit is how many failed Jobs are kept.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	FailedJobsHistoryLimit *int32 `json:"failedJobsHistoryLimit,omitempty"`
}

// JobTemplateSpec is what a Job is made of.
type JobTemplateSpec struct {
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is the Job's.
	// +optional
	Spec JobSpec `json:"spec,omitempty"`
}

// CronJobStatus is what became of a CronJob.
type CronJobStatus struct {
	// Active are the Jobs that run.
	// +optional
	// +listType=atomic
	Active []corev1.ObjectReference `json:"active,omitempty"`
	// LastScheduleTime is when a Job was last due and made.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`
	// LastSuccessfulTime is when one was last completed.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`
}

// CronJobList is a list of CronJobs.
//
// +kubebuilder:object:root=true
type CronJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CronJob `json:"items"`
}

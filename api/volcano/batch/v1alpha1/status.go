package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JobPhase is where a Job is in its life.
type JobPhase string

const (
	// Pending means that fewer pods than MinAvailable have started.
	Pending JobPhase = "Pending"
	// Aborting means that the pods are being ended, on demand.
	Aborting JobPhase = "Aborting"
	// Aborted means that they have ended; ResumeJob starts the Job again.
	Aborted JobPhase = "Aborted"
	// Running means that MinAvailable pods run or have ended.
	Running JobPhase = "Running"
	// Restarting means that pods are being ended, and are made anew.
	Restarting JobPhase = "Restarting"
	// Completing means that the other pods are being ended, because the Job is done.
	Completing JobPhase = "Completing"
	// Completed means that the Job is done.
	Completed JobPhase = "Completed"
	// Terminating means that the pods are being ended, for good.
	Terminating JobPhase = "Terminating"
	// Terminated means that they have ended.
	Terminated JobPhase = "Terminated"
	// Failed means that the Job has used up its retries, or too few of its pods have succeeded.
	Failed JobPhase = "Failed"
)

// JobState is a Job's phase, with why and since when.
type JobState struct {
	// Phase is where the Job is.
	// +optional
	// +kubebuilder:validation:Enum=Pending;Aborting;Aborted;Running;Restarting;Completing;Completed;Terminating;Terminated;Failed
	Phase JobPhase `json:"phase,omitempty"`
	// Reason is one word for why.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message,omitempty"`
	// LastTransitionTime is when the status last changed in anything but its times.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
}

// JobCondition says when a Job was last in a phase.
type JobCondition struct {
	// Status is the phase.
	Status JobPhase `json:"status"`
	// LastTransitionTime is when.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
}

// TaskState counts a task's pods by their phase.
type TaskState struct {
	// Phase is how many pods are in each.
	// +optional
	Phase map[corev1.PodPhase]int32 `json:"phase,omitempty"`
}

// JobStatus is what became of a Job.
type JobStatus struct {
	// State is where it is.
	// +optional
	State JobState `json:"state,omitempty"`
	// MinAvailable is the spec's when the Job was last started.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinAvailable int32 `json:"minAvailable,omitempty"`
	// TaskStatusCount counts pods by task and phase.
	// +optional
	TaskStatusCount map[string]TaskState `json:"taskStatusCount,omitempty"`
	// Pending, Running, Succeeded, Failed, Terminating (with a deletion timestamp, whatever their phase) and Unknown count pods.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pending int32 `json:"pending,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	Running int32 `json:"running,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	Succeeded int32 `json:"succeeded,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	Terminating int32 `json:"terminating,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unknown int32 `json:"unknown,omitempty"`
	// Version counts how often all pods were ended; pods carry the one that they were made under.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Version int32 `json:"version,omitempty"`
	// RetryCount counts restarts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RetryCount int32 `json:"retryCount,omitempty"`
	// RunningDuration is how long the Job existed when its pods were last ended.
	// +optional
	RunningDuration *Duration `json:"runningDuration,omitempty"`
	// ControlledResources are objects that were made for the Job: plugin-NAME and volume-pvc-NAME.
	// +optional
	ControlledResources map[string]string `json:"controlledResources,omitempty"`
	// Conditions say when the Job was last in each phase.
	// +optional
	Conditions []JobCondition `json:"conditions,omitempty"`
}

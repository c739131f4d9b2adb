package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
)

// JobFlow makes Jobs from JobTemplates, each when those that it depends on are done.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=jf
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.state.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type JobFlow struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what is asked for.
	// +optional
	Spec JobFlowSpec `json:"spec,omitempty"`
	// Status is what became of it.
	// +optional
	Status JobFlowStatus `json:"status,omitempty"`
}

// RetainPolicy says what becomes of a flow's Jobs when all are done.
//
// +kubebuilder:validation:Enum=retain;delete
type RetainPolicy string

const (
	// Retain keeps them.
	Retain RetainPolicy = "retain"
	// Delete deletes them.
	Delete RetainPolicy = "delete"
)

// JobFlowSpec is what a JobFlow asks for.
type JobFlowSpec struct {
	// Flows are the Jobs.
	// +optional
	Flows []Flow `json:"flows,omitempty"`
	// JobRetainPolicy says what becomes of the Jobs when all are done.
	// +optional
	JobRetainPolicy RetainPolicy `json:"jobRetainPolicy,omitempty"`
}

// Flow is one Job of a JobFlow.
type Flow struct {
	// Name is the JobTemplate's. The Job is called after the flow and it.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// DependsOn says what comes first.
	// +optional
	DependsOn *DependsOn `json:"dependsOn,omitempty"`
	// Patch is merged into the template's spec.
	// +optional
	Patch *Patch `json:"patch,omitempty"`
}

// DependsOn says what comes before a Job.
type DependsOn struct {
	// Targets are Jobs of the flow that must be completed.
	// +optional
	Targets []string `json:"targets,omitempty"`
	// Probe says when a target is ready that need not be completed.
	// +optional
	Probe *Probe `json:"probe,omitempty"`
}

// Patch changes what a Job is made of.
type Patch struct {
	// Spec is merged into the template's.
	// +optional
	Spec batch.JobSpec `json:"jobSpec,omitempty"`
}

// Probe says when targets are ready.
type Probe struct {
	// HTTPGetList are addresses that must answer.
	// +optional
	HTTPGetList []HTTPGet `json:"httpGetList,omitempty"`
	// TCPSocketList are ports that must be open.
	// +optional
	TCPSocketList []TCPSocket `json:"tcpSocketList,omitempty"`
	// TaskStatusList are phases that tasks must be in.
	// +optional
	TaskStatusList []TaskStatus `json:"taskStatusList,omitempty"`
}

// HTTPGet is an address of a task's pods.
type HTTPGet struct {
	// TaskName is the task.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TaskName string `json:"taskName,omitempty"`
	// Path is the address's path.
	// +optional
	Path string `json:"path,omitempty"`
	// Port is the port.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int `json:"port,omitempty"`
	// HTTPHeader is a header that is sent.
	// +optional
	HTTPHeader *corev1.HTTPHeader `json:"httpHeader,omitempty"`
}

// TCPSocket is a port of a task's pods.
type TCPSocket struct {
	// TaskName is the task.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TaskName string `json:"taskName,omitempty"`
	// Port is the port.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int `json:"port"`
}

// TaskStatus is a phase of a task's pods.
type TaskStatus struct {
	// TaskName is the task.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TaskName string `json:"taskName,omitempty"`
	// Phase is the pods'.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Phase string `json:"phase,omitempty"`
}

// JobFlowPhase is where a JobFlow is in its life.
type JobFlowPhase string

const (
	// Pending means that no Job runs.
	Pending JobFlowPhase = "Pending"
	// Running means that a Job runs, or some are completed and none has failed.
	Running JobFlowPhase = "Running"
	// Succeed means that all Jobs are completed.
	Succeed JobFlowPhase = "Succeed"
	// Failed means that a Job has failed or was terminated.
	Failed JobFlowPhase = "Failed"
	// Terminating means that the Jobs are being ended.
	Terminating JobFlowPhase = "Terminating"
)

// JobFlowState is a JobFlow's phase.
type JobFlowState struct {
	// Phase is where it is.
	// +optional
	// +kubebuilder:validation:Enum=Succeed;Terminating;Failed;Running;Pending
	Phase JobFlowPhase `json:"phase,omitempty"`
}

// JobFlowStatus is what became of a JobFlow.
type JobFlowStatus struct {
	// PendingJobs, RunningJobs, FailedJobs, CompletedJobs, TerminatedJobs and UnKnowJobs are the Jobs by phase.
	// +optional
	PendingJobs []string `json:"pendingJobs,omitempty"`
	// +optional
	RunningJobs []string `json:"runningJobs,omitempty"`
	// +optional
	FailedJobs []string `json:"failedJobs,omitempty"`
	// +optional
	CompletedJobs []string `json:"completedJobs,omitempty"`
	// +optional
	TerminatedJobs []string `json:"terminatedJobs,omitempty"`
	// +optional
	UnKnowJobs []string `json:"unKnowJobs,omitempty"`
	// JobStatusList says more of each Job.
	// +optional
	JobStatusList []JobStatus `json:"jobStatusList,omitempty"`
	// Conditions are the Jobs' by name.
	// +optional
	Conditions map[string]Condition `json:"conditions,omitempty"`
	// State is where the flow is.
	// +optional
	State JobFlowState `json:"state,omitempty"`
}

// JobStatus says more of a Job.
type JobStatus struct {
	// Name is the Job's.
	// +optional
	Name string `json:"name,omitempty"`
	// State is its phase.
	// +optional
	State batch.JobPhase `json:"state,omitempty"`
	// StartTimestamp is when it was made.
	// +optional
	StartTimestamp metav1.Time `json:"startTimestamp,omitempty"`
	// EndTimestamp is when it ended.
	// +optional
	EndTimestamp metav1.Time `json:"endTimestamp,omitempty"`
	// RestartCount is how often it was restarted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RestartCount int32 `json:"restartCount,omitempty"`
	// RunningHistories are its phases.
	// +optional
	RunningHistories []JobRunningHistory `json:"runningHistories,omitempty"`
}

// JobRunningHistory is one phase of a Job.
type JobRunningHistory struct {
	// StartTimestamp is when it began.
	// +optional
	StartTimestamp metav1.Time `json:"startTimestamp,omitempty"`
	// EndTimestamp is when it ended.
	// +optional
	EndTimestamp metav1.Time `json:"endTimestamp,omitempty"`
	// State is the phase.
	// +optional
	State batch.JobPhase `json:"state,omitempty"`
}

// Condition is what is known of a Job of a flow.
type Condition struct {
	// Phase is the Job's.
	// +optional
	Phase batch.JobPhase `json:"phase,omitempty"`
	// CreateTime is when it was made.
	// +optional
	CreateTime metav1.Time `json:"createTime,omitempty"`
	// RunningDuration is the Job's.
	// +optional
	RunningDuration *batch.Duration `json:"runningDuration,omitempty"`
	// TaskStatusCount is the Job's.
	// +optional
	TaskStatusCount map[string]batch.TaskState `json:"taskStatusCount,omitempty"`
}

// JobFlowList is a list of JobFlows.
//
// +kubebuilder:object:root=true
type JobFlowList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []JobFlow `json:"items"`
}

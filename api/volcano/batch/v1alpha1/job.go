package v1alpha1

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// Job is a set of tasks whose pods start as one gang, with policies for what happens to them.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=vcjob;vj
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="STATUS",type=string,JSONPath=`.status.state.phase`
// +kubebuilder:printcolumn:name="minAvailable",type=integer,JSONPath=`.status.minAvailable`
// +kubebuilder:printcolumn:name="RUNNINGS",type=integer,JSONPath=`.status.running`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="QUEUE",type=string,priority=1,JSONPath=`.spec.queue`
type Job struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what is asked for.
	// +optional
	Spec JobSpec `json:"spec,omitempty"`
	// Status is what became of it.
	// +optional
	Status JobStatus `json:"status,omitempty"`
}

// JobSpec is what a Job asks for.
type JobSpec struct {
	// SchedulerName goes to pods that name no scheduler; admission makes it volcano.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	SchedulerName string `json:"schedulerName,omitempty"`
	// MinAvailable is how many pods must start together; for 0 admission puts the sum over the tasks.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinAvailable int32 `json:"minAvailable,omitempty"`
	// Volumes are claims that every container of the Job mounts.
	// +optional
	Volumes []VolumeSpec `json:"volumes,omitempty"`
	// Tasks are the kinds of pods.
	// +optional
	// +kubebuilder:validation:MinItems=1
	Tasks []TaskSpec `json:"tasks,omitempty"`
	// Policies answer events that no policy of the task answers.
	// +optional
	Policies []LifecyclePolicy `json:"policies,omitempty"`
	// Plugins are job plugins by name (env, svc, ssh, tensorflow, pytorch, mpi, hcclrank, ray), with their arguments.
	// +optional
	Plugins map[string][]string `json:"plugins,omitempty"`
	// RunningEstimate is the user's guess of how long the Job runs.
	// +optional
	RunningEstimate *Duration `json:"runningEstimate,omitempty"`
	// Queue is the queue whose share the Job uses.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Queue string `json:"queue,omitempty"`
	// MaxRetry is how many restarts the Job is allowed; at the last it fails.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	MaxRetry int32 `json:"maxRetry,omitempty"`
	// TTLSecondsAfterFinished is how long after its end the Job is deleted; nil: never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// PriorityClassName is a PriorityClass for the Job and for pods that name none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// MinSuccess is how many pods must succeed for the Job to be completed; nil: MinAvailable, once all have ended.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MinSuccess *int32 `json:"minSuccess,omitempty"`
	// NetworkTopology says how far apart in the network the pods may be; nil: anywhere.
	// +optional
	NetworkTopology *NetworkTopologySpec `json:"networkTopology,omitempty"`
}

// NetworkTopologySpec and its modes are those of PodGroups.
type (
	// NetworkTopologySpec says how far apart in the network pods may be.
	NetworkTopologySpec = scheduling.NetworkTopologySpec
	// NetworkTopologyMode is how strictly.
	NetworkTopologyMode = scheduling.NetworkTopologyMode
)

// VolumeSpec is a claim that every container of a Job mounts. Either an existing claim is named, or one is made.
type VolumeSpec struct {
	// MountPath is where.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[^:]+$`
	MountPath string `json:"mountPath"`
	// VolumeClaimName is the claim; the controller names one that it makes.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	VolumeClaimName string `json:"volumeClaimName,omitempty"`
	// VolumeClaim is what the controller makes a claim of.
	// +optional
	VolumeClaim *corev1.PersistentVolumeClaimSpec `json:"volumeClaim,omitempty"`
}

// NumaPolicy is how a pod's CPUs and devices are to lie in NUMA zones.
//
// +kubebuilder:validation:Enum=none;best-effort;restricted;single-numa-node
type NumaPolicy string

// NumaPolicyNone asks for nothing.
const NumaPolicyNone NumaPolicy = "none"

// TaskSpec is one kind of pods.
type TaskSpec struct {
	// Name tells tasks apart; admission makes it default and the task's index.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
	// Replicas is how many pods there are.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas,omitempty"`
	// MinAvailable is how many of them must start together; nil: all, or MinPartitions × PartitionSize.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinAvailable *int32 `json:"minAvailable,omitempty"`
	// Template is what a pod is made of.
	// +optional
	Template corev1.PodTemplateSpec `json:"template,omitempty"`
	// Policies answer events of the task's pods, before the Job's do.
	// +optional
	Policies []LifecyclePolicy `json:"policies,omitempty"`
	// TopologyPolicy is how the pods' CPUs and devices are to lie in NUMA zones.
	// +optional
	TopologyPolicy NumaPolicy `json:"topologyPolicy,omitempty"`
	// MaxRetry is how many restarts of containers, of all pods together, make the task failed; 0 is 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxRetry int32 `json:"maxRetry,omitempty"`
	// DependsOn names tasks whose pods must run before this task's are made.
	// +optional
	DependsOn *DependsOn `json:"dependsOn,omitempty"`
	// PartitionPolicy divides the pods into partitions, each of which starts together.
	// +optional
	PartitionPolicy *PartitionPolicySpec `json:"partitionPolicy,omitempty"`
}

// Iteration says how many of several tasks are meant.
type Iteration string

const (
	// IterationAny means one of them.
	IterationAny Iteration = "any"
	// IterationAll means each of them.
	IterationAll Iteration = "all"
)

// DependsOn names tasks that come first.
type DependsOn struct {
	// Name are the tasks.
	// +optional
	Name []string `json:"name,omitempty"`
	// Iteration says how many of them must run; any holds only for two names and more.
	// +optional
	Iteration Iteration `json:"iteration,omitempty"`
}

// PartitionPolicySpec divides a task's pods: pod i is in partition i / PartitionSize.
type PartitionPolicySpec struct {
	// TotalPartitions is how many there are.
	// +kubebuilder:validation:Minimum=1
	TotalPartitions int32 `json:"totalPartitions"`
	// PartitionSize is how many pods each has.
	// +kubebuilder:validation:Minimum=1
	PartitionSize int32 `json:"partitionSize"`
	// NetworkTopology says how far apart the pods of one partition may be.
	// +optional
	NetworkTopology *NetworkTopologySpec `json:"networkTopology,omitempty"`
	// MinPartitions is how many must start together; 0: the task's MinAvailable counts.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	MinPartitions int32 `json:"minPartitions,omitempty"`
}

// LifecyclePolicy says what is done when something happens. It names events or an exit code.
type LifecyclePolicy struct {
	// Action is what is done.
	// +optional
	Action bus.Action `json:"action,omitempty"`
	// Event is when.
	// +optional
	Event bus.Event `json:"event,omitempty"`
	// Events are more of them.
	// +optional
	Events []bus.Event `json:"events,omitempty"`
	// ExitCode is when a pod's first container ends with it. 0 is none.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Timeout is how long after the event the action is due, unless the event is over by then.
	// +optional
	Timeout *Duration `json:"timeout,omitempty"`
}

// Duration is a time span as Go writes it, such as 1h30m. It is kept as it was written, because the API server takes any text: one that is
// no duration is an object's defect, and must not keep a list of them from being read.
type Duration string

// Value returns the span; an error if the text is none.
func (d Duration) Value() (time.Duration, error) {
	v, err := time.ParseDuration(string(d))
	if err != nil {
		return 0, fmt.Errorf("%q is no duration", string(d))
	}
	return v, nil
}

// JobList is a list of Jobs.
//
// +kubebuilder:object:root=true
type JobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Job `json:"items"`
}

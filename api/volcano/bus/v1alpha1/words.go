package v1alpha1

// Action is what a controller does to a Job, a part of it, or a Queue.
type Action string

// What users may ask for, by policies and Commands.
const (
	// AbortJobAction ends the Job's pods but for those that have finished; ResumeJob starts it again.
	AbortJobAction Action = "AbortJob"
	// RestartJobAction ends all pods of the Job and starts it anew.
	RestartJobAction Action = "RestartJob"
	// RestartTaskAction ends the pods of the task, and makes them anew.
	RestartTaskAction Action = "RestartTask"
	// RestartPodAction ends the pod, and makes it anew.
	RestartPodAction Action = "RestartPod"
	// RestartPartitionAction ends the pods of the pod's partition, and makes them anew.
	RestartPartitionAction Action = "RestartPartition"
	// TerminateJobAction ends the Job's pods but for those that have finished, for good.
	TerminateJobAction Action = "TerminateJob"
	// CompleteJobAction ends the Job's pods but for those that have finished, and calls the Job completed.
	CompleteJobAction Action = "CompleteJob"
	// ResumeJobAction starts a Job again that was aborted.
	ResumeJobAction Action = "ResumeJob"
	// OpenQueueAction lets a queue take new work.
	OpenQueueAction Action = "OpenQueue"
	// CloseQueueAction has a queue take no new work.
	CloseQueueAction Action = "CloseQueue"
)

// What controllers do by themselves.
const (
	// SyncJobAction makes what a Job lacks, ends what it has too much, and counts.
	SyncJobAction Action = "SyncJob"
	// EnqueueJobAction is SyncJob under the name that older objects carry.
	EnqueueJobAction Action = "EnqueueJob"
	// SyncQueueAction brings a queue's state up to date.
	SyncQueueAction Action = "SyncQueue"
)

// Event is something that happens to a Job, which its policies may answer.
//
// +kubebuilder:validation:Enum="*";PodPending;PodRunning;PodFailed;PodEvicted;Unknown;TaskCompleted;OutOfSync;CommandIssued;JobUpdated;TaskFailed
type Event string

// What users may name in policies.
const (
	// AnyEvent stands for all of them.
	AnyEvent Event = "*"
	// PodFailedEvent means that a pod ended with a failure.
	PodFailedEvent Event = "PodFailed"
	// PodEvictedEvent means that a pod was deleted by somebody else.
	PodEvictedEvent Event = "PodEvicted"
	// PodPendingEvent means that a pod waits. A policy for it needs a timeout.
	PodPendingEvent Event = "PodPending"
	// JobUnknownEvent means that part of a running gang lost its place and cannot get another.
	JobUnknownEvent Event = "Unknown"
	// TaskCompletedEvent means that all pods of a task have succeeded.
	TaskCompletedEvent Event = "TaskCompleted"
	// TaskFailedEvent means that the containers of a task were restarted more often than its maxRetry allows.
	TaskFailedEvent Event = "TaskFailed"
	// JobUpdatedEvent means that the Job's spec was changed.
	JobUpdatedEvent Event = "JobUpdated"
)

// What controllers know among themselves; admission refuses them in policies.
const (
	// PodRunningEvent means that a pod has started.
	PodRunningEvent Event = "PodRunning"
	// OutOfSyncEvent means that something changed that calls for a look.
	OutOfSyncEvent Event = "OutOfSync"
	// CommandIssuedEvent means that a user sent a Command.
	CommandIssuedEvent Event = "CommandIssued"
)

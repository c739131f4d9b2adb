// Package keys holds the annotations and names that kube-batch gives a meaning.
package keys

// SchedulerName is the value of spec.schedulerName that kube-batch answers to by default.
const SchedulerName = "kube-batch"

// DefaultQueue is the queue that work is in by default which names none.
const DefaultQueue = "default"

// Annotations of pods.
const (
	// GroupName names the PodGroup that the pod is in, of its namespace.
	GroupName = "scheduling.k8s.io/group-name"
	// GroupMinMember is how many pods of the same owner start together where they name no PodGroup: an integer, 1 by default.
	GroupMinMember = "scheduling.k8s.io/group-min-member"
)

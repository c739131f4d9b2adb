// Package podgroup keeps PodGroup.status.resourcesStatus true: what the pods of a gang ask for, what they hold, and
// what of that cannot be preempted.
//
//	pods, claims, podgroups, classes, nodes  ──events──► aggregator ──gangs whose sums changed──► queue, ≥1 s per gang
//	                                                      ▲                                      │
//	                                                      └────────── desired status ◄───────────┘──► merge patch
//
// The aggregator is pure: plain objects in, desired statuses out. It keeps each gang's sums and each pod's share in them, so
// an event costs what its pod contributes, whatever the gang's size; nothing is ever listed. After a restart the
// initial events of the watches rebuild it, and nothing is written before all of them arrived.
//
// A gang is written at most once a second: one second after its allocation changed, three seconds after only its
// requests did (a gang that is placed soon after it was created costs one write). A status is therefore at most three
// seconds old, plus the time of the write. Only what differs from the observed status is written, and only the field
// resourcesStatus: schedulingConditions belong to the scheduler.
//
// A pod counts where it is charged, by the record that its Binding gave it. What is charged to a queue other than its PodGroup's, or to
// a PodGroup that is gone, is in no PodGroup's status: that is written to an annotation of the Queue, and the queue role adds it there.
//
// A pod counts as the scheduler counts it: containers, init containers, native sidecars, overhead, pod-level resources
// and resizes. It asks while it is pending or running, and holds from its binding to its end. Shared GPUs count with
// their portion on every device. GPUs that come through ResourceClaims count under the name of their device class, as many as
// the scheduler charges its queue for: once the claim exists, to every pod that uses it.
//
// What it reads, and an informer's transform must keep: of pods metadata.annotations, spec.schedulerName, nodeName,
// overhead, resources, and per container and init container name, resources and restartPolicy; status.phase, conditions
// and the resources in container statuses; spec.resourceClaims and status.resourceClaimStatuses of pods; of nodes metadata.labels; of ResourceClaims spec; PodGroups without schedulingConditions and
// PriorityClasses whole; of Queues the annotation.
package podgroup

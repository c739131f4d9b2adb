// Package vcpodgroup is the podgroup controller of Volcano's face: it makes the PodGroups of bare pods, those that name Volcano's scheduler and
// no PodGroup, and writes into the pods which one they are in. All pods of one controller (a ReplicaSet, a StatefulSet, a Job of Kubernetes) share
// one PodGroup; a pod without a controller has its own.
//
//	Pod, ReplicaSet, StatefulSet, DaemonSet, Job, PodGroup ──► book ──decide──► plan ──write──► PodGroup first, then its pods
//
// Names are made of UIDs, so that a controller that dies in between makes nothing twice, and finds by the pods without a mark what is left to do.
// A PodGroup goes with its owner; that of a ReplicaSet or StatefulSet of no replicas goes at once, since it would hold room for nobody.
package vcpodgroup

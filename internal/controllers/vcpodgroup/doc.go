// Package vcpodgroup is the podgroup controller of Volcano's face: it makes the PodGroups of bare pods, those that name Volcano's scheduler and
// no PodGroup, and has the pods say which one they are in. All pods of one controller (a ReplicaSet, a StatefulSet, a Job of Kubernetes) share
// one PodGroup; a pod without a controller has its own.
//
//	Pod, ReplicaSet, StatefulSet, DaemonSet, Job, PodGroup ──► book ──decide──► plan ──write──► PodGroup first, then its pods
//
// Muster's scheduler knows the name (volcano.GroupOfOwner) and brings it to the pod with its Binding; the controller writes it to pods that wait for long or are on a node without it.
// Of a pod that is alone, and says all that its PodGroup would say (volcano.SaysAll), the scheduler does not wait for the PodGroup: a Teller in its process tells it so, and the controller makes the PodGroup later, with its status (ADR 18).
//
// Names are made of UIDs, so that a controller that dies in between makes nothing twice, and finds by the pods without a mark what is left to do.
// A PodGroup goes with its owner; that of a ReplicaSet or StatefulSet of no replicas goes at once, since it would hold room for nobody.
package vcpodgroup

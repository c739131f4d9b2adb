// Package reservation gives pods the GPUs that they share: it holds the devices, and tells the containers which ones
// they got.
//
// The pods that share one device form a group. Kubernetes knows no shared devices, so for each group there is one
// reservation pod, which takes a whole device from the device plugin and reports its UUID in an annotation. The pods of
// the group ask for no device of their own; their containers are shown the UUID through ConfigMaps.
//
//	BindRequest ──> Prepare: reservation pods of its groups ──> labels ──> ConfigMaps ──> (the binder binds)
//	events of pods and requests ──> one group after the other ──> sync: release, regain, clean
//
// A Controller is one of the binder's preparers, and its companion. It does not import the binder, nor the binder it:
// controllers do not know each other. It is a package of its own because it answers another question than the binder:
// not "what is to be done for this request" but "who holds this device, and for whom".
//
// Invariants:
//
//   - A group has one reservation pod. Its name is computed from node and group, so the API server sees to it, and
//     whatever happens to one group happens under the group's lock.
//   - A reservation pod is deleted only when no request that may still be executed names its group, and the API server
//     itself knows of no bound pod that is alive and has the group's label. A request appears before its pod gets the
//     label and ends after its pod is bound, so there is no gap between the two. That a new request comes in between does
//     no harm: Prepare asks the API server whether the reservation pod is still there, under the lock, and makes
//     another one when it is not.
//   - No state is needed across a restart: requests, labels and reservation pods tell everything. Those that KAI made
//     are taken over as they are.
//   - Nothing is evicted because a reservation pod is missing. It is made again; only pods of which it is proven that
//     their device is not theirs any more are evicted.
//
// Cost: per pod one read by name for each group, one patch (labels) and two writes of ConfigMaps. An event costs a look
// at its labels unless it is about a shared device. Lists are asked of the API server only before a reservation pod is
// deleted or made again.
package reservation

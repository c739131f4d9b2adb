// Package podgrouper is the role that makes gangs of workloads: for each pod of ours it finds the objects that own it, sees
// to it that their PodGroup exists and is up to date, and then writes on the pod which group, and which subgroup, it is in.
//
//	pod event ─▶ reconcile ─▶ memory hit? ───────────────────────────────▶ pod patch
//	                            └─ miss: owners ─▶ workload.Group ─▶ PodGroup ─┘
//	owner changed, PodGroup changed or gone ─▶ forget ─▶ reconcile one pod, or all
//
// What it costs, since it runs for every pod of the cluster:
//
//   - A gang's group is derived once per nearest owner, whatever the number of pods, and remembered until an owner or the
//     PodGroup changes. The memory is bounded; what falls out is derived again. Where the pods of one owner are of several
//     gangs (the groups of a LeaderWorkerSet), once per gang.
//   - Owners of kinds in the table are read from metadata-only watches that start with the first pod of the kind; until one
//     has synced, and for other kinds, an owner costs one read from the API server. Whole objects are read only where the
//     kind's rule looks into the spec, once per change of it.
//   - Karta objects, which define further kinds, are listed at most twice a minute, and where there is no such kind once.
//   - Owners of kinds that do not exist cost no request: which kinds there are is asked for at most six times a minute, when somebody
//     names one that was not there at the last look.
//   - Pods are worked on in turn of their namespaces (see internal/kube/turns), and what cannot be grouped is looked at after as long
//     as it has waited already, one to five minutes, so that one tenant's broken workloads cost others nothing.
//   - A new gang is one POST, a new pod one merge patch, and nothing is written that is there already. Events of pods that
//     are grouped as remembered do not enter the queue.
//
// Owners that are edited: kinds that are watched update the PodGroup at once (replica counts, minimums, labels,
// annotations, priority); other kinds with the next pod event that is not filtered, or within about a minute. The queue of
// a PodGroup never changes after creation.
//
// Invariants: a PodGroup is written before any pod names it; a pod is only ever put into a group of its own namespace; a
// write meant for one pod or PodGroup fails on another of the same name.
//
// Which gang a workload means is decided by internal/dialect/workload; this package only reads and writes. It may run
// beside other roles in one process, or alone; it expects to be the only podgrouper at work (its Lease sees to that).
package podgrouper

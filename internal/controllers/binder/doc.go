// Package binder executes BindRequests: it puts pods on the nodes that a scheduler chose for them.
//
// It answers one question, again after every event: what is to be done now for this bundle? A bundle is the set of
// BindRequests that share a keys.BundleLabel; a request without the label is a bundle of its own, which is how the
// requests of other clients are served. The package decides nothing about placement, and it never looks for another
// node: a request that cannot be executed as written fails with a reason, and its pod is decided anew by whoever
// scheduled it.
//
//	watches ──> book (what is known) ──> Decide (pure) ──> tasks ──> executor ──> API server
//	               ^                                                    │
//	               └───────────────────── outcomes ─────────────────────┘
//
// Package control runs it, in two loops: one of decisions and of steps towards a bind, one of reports, which stand back.
//
// Invariants, each of them held at every instant and across a restart at any instant:
//
//   - A Binding carries the UID of the pod that was meant. A request for one pod is never applied to another one of
//     the same name; a request without the owner reference that tells which pod was meant is refused.
//   - No member of a bundle is bound before all of its requests were seen at one time and every member was prepared.
//   - Once a member is bound the bundle is completed, never withdrawn. That it was bound for the bundle is written on
//     the pod by the very write that binds it, so no crash can come between.
//   - A member that fails for good before any is bound takes the whole bundle with it. One that fails afterwards
//     fails alone.
//   - What was prepared for a member that fails is taken back before the failure is recorded, last thing first. Taking
//     back needs no memory, so that a new process does it for an old one.
//   - The record of an outcome is the last write of it, so that whatever is missing is repaired after a restart.
//
// Cost: at most four writes per pod (Binding, pod condition, event, BindRequest status), of which only the first stands
// before the pod's start; no list requests; an event costs one map lookup unless it is about a member.
package binder

// Package filters opens kube-scheduler's own filters to the engine: required pod affinity and anti-affinity, spread
// constraints that say DoNotSchedule, and volumes (binding, zones, ReadWriteOncePod, limits of CSI drivers). The code that
// judges is upstream's; what is here gives it the snapshot to read and tells it what statements do. Spreading is counted here, and so
// is what follows from labels and objects alone of many nodes at once; a property test compares all of it with upstream.
//
//	View ──► upstreamSnapshot: nodes with pods (fwk.NodeInfo) ──────┐
//	     └─► replay: objects as informer caches ─────────┼─► upstream's PreFilter, Filter, Reserve ──► Verdict
//	Statement ──► log of what was done and undone ───────┘
//
// Only pods that use these features pay, and pods that some placed pod's required anti-affinity means. A run without them
// costs one log entry per placement. What upstream computes ahead of looking at nodes is kept per class and caught up with
// the log, so that a verdict after a rollback is the verdict before.
//
// Preferred terms are scores and not judged here. Register says how the filters come into a profile.
package filters

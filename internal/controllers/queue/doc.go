// Package queue keeps Queue.status true: what each queue and everything below it asks for and holds, its children, and
// what is wrong with it. It also serves KAI's queue metrics.
//
//	queues, podgroups ──events──► aggregator ──queues whose sums changed──► work queue, ≥1 s per queue
//	                               ▲                                    │
//	                     scrape ───┴────────── desired status ◄─────────┘──► merge patch
//
// The aggregator is pure: plain objects in, desired statuses out. A changed PodGroup status moves the difference into its
// queue and every queue above, so it costs the depth of the tree and all levels are written together, not one level
// per round trip. Only a queue that appears, goes or moves makes the tree be added up anew, once for all such changes
// of a second. After a restart the initial events of the watches rebuild everything, and nothing is written before all
// of them arrived.
//
// Trees that users can break stay harmless. A queue whose parent does not exist is added up as if it had none and gets
// the condition Orphan, reason ParentNotFound. Queues that are their own ancestors are each added up without the others
// of their circle and get Orphan, reason ParentCycle. Either ends as status False, reason ParentFound. OverQuota, with
// the numbers, tells while a queue holds more than its quota. A queue that never had a condition carries none.
//
// Besides, it repeats spec.resources.extended, a field of Muster's own, in an annotation, so that limits outlive a
// definition of the Queue that does not have the field.
//
// PodGroups of all namespaces count, by spec.queue, and besides what the podgroup role says in an annotation of the Queue of pods that are
// charged to it and to no PodGroup of it; node pools do not divide the sums.
package queue

// Package tasktopology is Volcano's plugin task-topology: a gang says which of its tasks would rather be on one node and which not, and its pods are placed bucket by bucket, a
// bucket being pods that should be on one node. Volcano's documentation says no more of it than what it is for, the annotations and in which order what they say counts;
// the formulas are this package's own.
//
// Between two pods there is, by their tasks, the strongest of what the gang says: of one task that it is apart by itself −4, of two that are together 3, of one that is together by
// itself 2, of two that are apart −1, and otherwise 0. How buckets are filled says [fill]. Of the nodes for a pod, in points, each division cut to the unit below:
//
//	the node with the most of its bucket       + 100 · weight · on / drawn
//	every node                                 + 100 · weight · room / (2 · drawn)
//	                                           − 100 · weight · against / rivals
//
// on is the sum of what those of its bucket that are on the node have for it, as far as it is above 0; room is the same of those that waited when the cycle began and for
// which the node has room beside it, in the order in which they are placed; drawn that of all of its bucket. against is the sum of what pods of the gang on the node have
// against it, rivals that of all pods of the gang that have a node or wait. What is divided by 0 counts nothing.
//
// Pods are placed in the order of their buckets: those first of which some have a node, then larger ones, then in the order in which they came to be; within a bucket, and among those in none, as the gang's
// own order says, then tasks by the strongest that they have for any, and by how few pods they have.
//
// Argument: task-topology.weight (1), a whole number from 0 to 1,000.
package tasktopology

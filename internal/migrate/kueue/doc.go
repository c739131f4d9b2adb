// Package kueue says what a cluster that Kueue shares out becomes under Muster: its ClusterQueues and Cohorts as a tree of Queues, its
// WorkloadPriorityClasses as PriorityClasses, its LocalQueues as the label that takes the place of theirs, and everything that gets lost
// on the way.
//
// Translate is pure: from Objects to a Plan. Read makes Objects of manifests, Look of a cluster, and Check judges whether the change can
// be made now. Nothing is written. Kueue's kinds are read by small types of our own, which know the fields of kueue.x-k8s.io/v1beta1 and
// v1beta2; a field that they do not know is told, never dropped. Fields lists them with what becomes of each.
//
// # What a number becomes
//
// Kueue counts each resource once for each flavor; a Queue counts a resource. So the numbers of flavors are added up, after they were
// worked out for each flavor by itself (KEP-79, "Hierarchical Cohorts", T(x,r)):
//
//   - quota is what the queue and all below it have as nominalQuota, so that the sum over the tops of trees is the sum of all of them;
//   - limit is the most that the queue could hold in Kueue while nobody else holds anything: its quota, and the smaller of its
//     borrowingLimit and what the others lend. Where the queue above allows no more anyway, it is -1.
//
// A limit is of one queue. What lendingLimit keeps back from several others at once cannot be said by limits, and is told as a loss.
package kueue

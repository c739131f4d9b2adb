// Package kubebatch is the dialect of kube-batch: what PodGroups and Queues of scheduling.incubator.k8s.io (v1alpha1) and scheduling.sigs.dev (v1alpha2), PodDisruptionBudgets, and the pods
// that name its scheduler say in the words of the model; and what a status is to say. The kinds of both groups have the same fields, and are read as those of the first.
//
// It is pure. What is the same in Volcano, which came of it, is that dialect's ([volcano.Gang], [volcano.Queue]).
package kubebatch

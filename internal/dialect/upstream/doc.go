// Package upstream is the dialect of Kubernetes' own groups: what PodGroups of scheduling.k8s.io (v1beta1, of Kubernetes 1.37), and the pods that name them
// in spec.schedulingGroup, say in the words of the model; and what their status is to say.
//
// It is pure, and knows no other dialect: what a priority class is worth it asks of its caller. Queues are Muster's own: which of them a group is in, and
// which pods are in the group, is by the queue labels of both ([Queue], [Joins]). docs/ledgers/upstream.yaml has a row for each field.
package upstream

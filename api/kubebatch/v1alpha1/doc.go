// Package v1alpha1 holds the Go form of scheduling.incubator.k8s.io/v1alpha1, kube-batch's first API group: PodGroup, pods that start together, and Queue, which shares the cluster
// between PodGroups.
//
// It says how the objects look on the wire and what their fields mean. The deepcopy file and the CRDs in package crds are generated from the markers here.
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.incubator.k8s.io
package v1alpha1

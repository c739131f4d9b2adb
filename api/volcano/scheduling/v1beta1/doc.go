// Package v1beta1 holds the Go form of scheduling.volcano.sh/v1beta1: PodGroup, pods that start together, and Queue, which shares the cluster between PodGroups.
//
// It says how the objects look on the wire and what their fields mean. The deepcopy file and the CRDs in package crds are generated from
// the markers here.
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.volcano.sh
package v1beta1

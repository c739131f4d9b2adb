// Package v1alpha1 holds the Go form of nodeinfo.volcano.sh/v1alpha1: Numatopology, which says how a node's CPUs and memory lie in NUMA zones.
//
// It says how the objects look on the wire and what their fields mean. The deepcopy file and the CRDs in package crds are generated from
// the markers here.
//
// +kubebuilder:object:generate=true
// +groupName=nodeinfo.volcano.sh
package v1alpha1

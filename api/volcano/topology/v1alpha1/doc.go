// Package v1alpha1 holds the Go form of topology.volcano.sh/v1alpha1: HyperNode, a domain of the network: nodes, or smaller domains, that reach each other at the same cost.
//
// It says how the objects look on the wire and what their fields mean. The deepcopy file and the CRDs in package crds are generated from
// the markers here.
//
// +kubebuilder:object:generate=true
// +groupName=topology.volcano.sh
package v1alpha1

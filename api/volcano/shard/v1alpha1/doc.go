// Package v1alpha1 holds the Go form of shard.volcano.sh/v1alpha1: NodeShard, the nodes that one of several schedulers takes care of.
//
// It says how the objects look on the wire and what their fields mean. The deepcopy file and the CRDs in package crds are generated from
// the markers here.
//
// +kubebuilder:object:generate=true
// +groupName=shard.volcano.sh
package v1alpha1

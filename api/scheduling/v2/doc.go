// Package v2 holds the Go form of scheduling.run.ai/v2: the Queue, a node of the tree through which teams share the
// cluster.
//
// The package answers what a Queue looks like on the wire and what its units are. It computes no shares and checks no
// references; a Queue whose parent does not exist is a valid object here. The deepcopy file and the CRD in package
// crds are generated from the markers here.
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.run.ai
package v2

// Package v2alpha2 holds the Go form of scheduling.run.ai/v2alpha2: the PodGroup, which makes pods a gang: members
// that start together or not at all.
//
// The package answers what a PodGroup looks like on the wire: a tree of subgroups given as a flat list with parent
// names, each with a minimum. It does not check that the tree is one; the admission webhook and the dialect do. The
// deepcopy file and the CRD in package crds are generated from the markers here.
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.run.ai
package v2alpha2

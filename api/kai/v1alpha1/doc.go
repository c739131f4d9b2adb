// Package v1alpha1 holds the Go form of kai.scheduler/v1alpha1: the Topology, a cluster-scoped list of node labels
// that says how nodes nest (zone, block, rack, host). PodGroups name a Topology and one of its levels to ask that a
// gang stays inside one domain.
//
// The package answers what such an object looks like on the wire. It does not build the tree of domains and does not
// look at nodes; that is the work of the dialects. The deepcopy file and the CRD in package crds are generated from
// the markers here.
//
// +kubebuilder:object:generate=true
// +groupName=kai.scheduler
package v1alpha1

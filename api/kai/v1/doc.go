// Package v1 holds the Go form of kai.scheduler/v1: the Config, from which the operator installs the control plane, and
// the SchedulingShard, which describes one scheduler and the part of the cluster it owns.
//
// The package answers what these objects look like on the wire. Defaults are not part of the wire form: every field is
// optional, the operator fills what is missing in memory, with the values that the comments here state, and never
// writes them back. The deepcopy file and the CRDs in package crds are generated from the markers here.
//
// +kubebuilder:object:generate=true
// +groupName=kai.scheduler
package v1

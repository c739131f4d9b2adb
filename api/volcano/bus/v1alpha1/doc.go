// Package v1alpha1 holds the Go form of bus.volcano.sh/v1alpha1: Command, by which a user has a controller do something once to a Job or a Queue, and the words for what happens and what is done then.
//
// It says how the objects look on the wire and what their fields mean. The deepcopy file and the CRDs in package crds are generated from
// the markers here.
//
// +kubebuilder:object:generate=true
// +groupName=bus.volcano.sh
package v1alpha1

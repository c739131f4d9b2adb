// Package v1alpha2 holds the Go form of scheduling.run.ai/v1alpha2: the BindRequest, by which the scheduler tells the
// binder to put one pod on one node with the devices and claims that were chosen for it.
//
// The package answers what such a message looks like on the wire. It does not say when a request may be acted upon:
// that is the binder's contract. The deepcopy file and the CRD in package crds are generated from the markers here.
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.run.ai
package v1alpha2

// Package v1alpha2 holds the Go form of scheduling.sigs.dev/v1alpha2, kube-batch's second API group. Its kinds have the fields of the first one, package v1alpha1.
//
// The deepcopy file and the CRDs in package crds are generated from the markers here.
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.sigs.dev
package v1alpha2

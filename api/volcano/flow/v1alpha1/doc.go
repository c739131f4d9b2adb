// Package v1alpha1 holds the Go form of flow.volcano.sh/v1alpha1: JobFlow, Jobs that follow each other, and JobTemplate, from which it makes them.
//
// It says how the objects look on the wire and what their fields mean. The deepcopy file and the CRDs in package crds are generated from
// the markers here.
//
// +kubebuilder:object:generate=true
// +groupName=flow.volcano.sh
package v1alpha1

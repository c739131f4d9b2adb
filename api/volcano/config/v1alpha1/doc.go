// Package v1alpha1 holds the Go form of config.volcano.sh/v1alpha1: ColocationConfiguration, how nodes treat pods that share them with more important ones. It is stored; nothing here acts on it.
//
// It says how the objects look on the wire and what their fields mean. The deepcopy file and the CRDs in package crds are generated from
// the markers here.
//
// +kubebuilder:object:generate=true
// +groupName=config.volcano.sh
package v1alpha1

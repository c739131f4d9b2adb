// Package crds carries the CustomResourceDefinitions of kube-batch's kinds, as YAML, inside the binary.
//
// The YAML files are generated from the Go types; see package api. They have the fields of kube-batch's own, which are of apiextensions.k8s.io/v1beta1, a version that no supported
// API server takes. That version kept what a definition does not name; the fields that kube-batch writes and reads so, phase, conditions and capability, are named here.
package crds

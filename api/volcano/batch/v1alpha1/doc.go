// Package v1alpha1 holds the Go form of batch.volcano.sh/v1alpha1: Job, a set of tasks whose pods run as one gang, and CronJob, which makes Jobs by a schedule.
//
// It says how the objects look on the wire and what their fields mean. The deepcopy file and the CRDs in package crds are generated from
// the markers here.
//
// +kubebuilder:object:generate=true
// +groupName=batch.volcano.sh
package v1alpha1

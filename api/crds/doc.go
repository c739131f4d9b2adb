// Package crds carries the CustomResourceDefinitions of package api's kinds, as YAML, inside the binary. Whoever
// installs, documents or tests them (operator, chart, lab, command line) reads the same bytes.
//
// The YAML files are generated from the Go types; see package api. The package parses nothing.
package crds

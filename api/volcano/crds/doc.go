// Package crds carries the CustomResourceDefinitions of Volcano's kinds, as YAML, inside the binary.
//
// The YAML files are generated from the Go types; see package api. They say the same as Volcano's, property by property, so that it does
// not matter whose were installed.
package crds

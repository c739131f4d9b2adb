// Package chart holds Muster's Helm chart and says what becomes of its values.
//
// The folder muster is the chart; its values have KAI's names and defaults, so that a values file of KAI's is taken as it is.
// Report tells which values of such a file have no effect here, and why: the chart's own notes and the command line say the
// same from the same list, muster/files/values.yaml. What the program knows better is generated (go generate): the CRDs, the
// operator's rules, alerts and dashboards. The chart installs the operator and what it needs. Its one hook brings the CRDs up to
// date, which Helm leaves as they are.
//
// How the chart is rendered and installed is tested in the module in folder proof, so that Helm is no dependency of ours.
package chart

//go:generate go run ./generate

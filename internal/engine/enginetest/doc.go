// Package enginetest plays scenarios: conversations with a cluster, written as text, whose answers are pinned.
//
// A scenario file (scenarios/*.txtar; the format is explained in scenarios/README.md) describes a cluster and then takes
// turns: commands (run) and what they print (want). Statements compile to real Kubernetes API objects, so the same file
// can be played on anything that understands those:
//
//	file ─Parse─► Scenario ─Play─► statements ─► API objects ─► Backend ─► plans, states, reasons ─► text
//	                                                             │
//	                           Engine: dialects ─► cluster.Store ─► engine.Driver (this package)
//	                           a lab: a real API server with every process (packages that may know clients)
//
// The Engine backend checks on every cycle what must hold for any cluster: a cold engine and a store rebuilt from the
// same objects in another order give the same bytes, no prefix of a plan overcommits a node or raises a queue over its
// limit, and every bundle reaches its gang's minimum or belongs to a gang that had it.
//
// A Mutation switches one thing off, a plugin at one extension point, a field, an option; the mutation test proves that
// some scenario notices each.
package enginetest

// Package dialect puts the dialects together: one table of the kinds of API objects that a scheduler reads, and one translator
// that makes the model's events of them.
//
// It answers "what kinds are there, and how is each handled" (Kind, Row) and "what does the model learn when these objects
// change" (Translator). What an object of one API family means is said by that family's own package: core, kai, devices,
// nodetopology. The feed of a live cluster, the scenario runner, the conformance runner and the readers of archives hand their
// objects to this one translator; snapshot files and the lab read the same table.
//
//	object ──KindOf──► Kind ──Row──► type, list, scope, how it is carried
//	objects, by kind ──Translator──► cluster.Event, …   and: BindRequests that are stale, objects not understood
//
// It has no client, no clock, no lock and no goroutine: one goroutine works with a Translator. Objects that it is handed are
// not written to any more, for events share their parts.
package dialect

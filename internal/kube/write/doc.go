// Package write sends small patches, evictions and deletes to the API server: the one way in which roles change objects.
//
// It answers what became of a write: it was made, there was nothing to write, the object is gone, or it changed under
// the writer's hand. The last two are results, not errors, because a controller lives with them every day: the event
// that says so is on its way. Everything else the API server may answer is an error that names the object.
//
//	decision (pure) ──body──► Kit.Merge / MergeStatus / JSON / Strategic… ──► Result, counted per role, kind and result
//
// It refuses to read, to compare objects and to retry: bodies come from pure functions that compared before (an empty
// body is "nothing to write" and costs nothing), retries belong to the caller's work queue.
package write

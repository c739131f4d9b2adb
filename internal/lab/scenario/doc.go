// Package scenario plays scenarios (scenarios/*.txtar) on a lab: the same conversations that the engine's tests hold with
// objects in memory, held with a real API server and Muster's own roles.
//
// It answers whether what the engine promises survives validation, defaulting, watches and writes:
//
//	statements ──► API objects ──► the API server ◄──── kubelets, played here
//	cycle, explain, show ── lists ──► feed.Rebuild ──► engine.Run: what the scheduler would decide now
//	settle ── the roles scheduler and binder run until nothing is left to do ──► the API server
//
// Scenarios rely on the order in which objects were made, which a cluster shows in whole seconds and, within one, by random
// UIDs. Rather than wait a second between any two objects, it makes an object again until its UID falls into the place
// that the file gives it (order.go). What a cluster cannot play at all says "needs engine" in its file.
package scenario

// Package feed keeps a cluster.Store true to the API server: what informers deliver goes through the dialects' translator into
// the Store.
//
// It answers "what has changed since you last asked". It refuses to decide, to write to the API server, and to touch the
// Store by itself: the goroutine that owns the Store calls Drain when it likes, and nothing here needs a lock on the Store.
// The scheduler's loop is the caller; tests and simulators put their own Source in the place of a cache.
//
//	informers ──Source──► inbox (latest state per object) ──Drain──► dialect.Translator ──events──► Store
//	                          └── Changed(): one token                  └── StaleBindRequests(), Problems()
//
// Invariants, each pinned by a test:
//
//   - The inbox holds at most one entry for each object that exists or that the translator knows. However far the owner falls
//     behind, and however often objects change, come and go meanwhile, it does not grow beyond that.
//   - The Store that results does not depend on the order in which events about different objects arrive.
//   - A BindRequest moves only the pod it was made for, by UID: one that outlives its pod does not bind a later pod of that name.
//
// Weakness: between a pod's bind and the next event about it, the feed trusts the BindRequest; a BindRequest that somebody
// deletes by hand makes its pod pending again until the pod's own event arrives.
package feed

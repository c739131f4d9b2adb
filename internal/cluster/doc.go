// Package cluster is the model the scheduler decides on: resources, nodes, pods, classes, gangs, queues, and the
// Store that keeps them true to the API server and hands out immutable Snapshots.
//
// It answers "what is the cluster now, and who holds what". It refuses to decide, to talk to an API server, to read a
// clock, or to log; events carry their own times.
//
//	dialects (API objects) ──Event──► Store ──Snapshot(now)──► engine, explain, simulators
//	                                   ▲ Assume/Forget
//	                                scheduler loop
//
// Invariants, each pinned by a property test:
//
//   - A Snapshot never changes. Store and Snapshot share pages and objects; the Store copies an object the first time
//     it touches it after a Snapshot was taken, so a Snapshot costs a directory copy and the touched objects only.
//   - Node ledgers are exact: Used is the sum of the requests of the pods that hold room on the node, Releasing the
//     part of it that is being given back. A Store rebuilt from the same objects in any order has equal ledgers.
//   - Sums over pods are kept in 128 bits, so that every operation has an exact inverse and none wraps, whatever users
//     wrote into however many manifests. They are read as vectors of int64 that stop at MaxSum, which leaves room for
//     what a decision adds.
//
// Ownership: one goroutine owns a Store; it has no locks. Snapshots may be read by many.
//
// Weakness: IDs are dense and recycled, so an ID means something only together with its Snapshot. Across snapshots,
// name things by UID or Key.
package cluster

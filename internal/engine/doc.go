// Package engine decides: given a cluster.Snapshot it returns what to bind and what to wait for, and why.
//
//	snapshot ──► Run ──► open plugins ──► action₁ ► Plan ─► emit
//	                                  └─► action₂ ► Plan ─► emit   … ► Result{Trace}
//
// It is a pure function: no client, no clock, no logger, no randomness, no global. Time is Snapshot.Now; ties end in
// names. The same snapshot and profile give the same plans, byte for byte, with cold or warm caches.
//
// A Driver has a Store assume what is decided on it, and remember what was found out: the live loop, the scenario tests, the
// conformance runner and the simulators go from cycle to cycle with one. What-ifs (`muster explain`, replays) call Run.
//
// What is decided belongs to actions (the flow) and plugins (the policy). Actions and plugins know the engine; the
// engine knows neither. A Profile names them; New resolves it once against a Registry, and anything wrong with it is an
// error there and then.
//
// A Session is one run over the snapshot, in parts: the Ledger of nodes, queues and gangs (package ledger), the Rules, the Placer and the Recorder.
// contract.go tells the life of a cycle by the names of functions, and what an action may ask of each part. Only a Statement changes
// the Ledger, and every change can be undone exactly: RollbackTo is last-in-first-out, total, and cannot fail. Plugins get a View,
// which has no way to change anything.
//
// Where each invariant is proved: rollback identity, permutation invariance, no overcommit in any prefix and gang
// atomicity in properties_test.go of package enginetest; behaviour in /scenarios.
package engine

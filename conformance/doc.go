// Package conformance runs behaviour cases, KAI Scheduler's own expectations written down as data, against the engine.
//
// It answers "in which of these situations do we do what KAI expects, and where not, do we say why". A case is one JSON
// file: a cluster (given), the actions to run, and what must have become of gangs, pods and nodes (expect). The cluster is
// fed to a cluster.Store as events and decided by engine.Run with the built-in registry; nothing of the engine is
// special here.
//
//	case.json ──► Case ──adapter──► events ──► Store ──► engine.Run ──► fates ──compare──► mismatches
//	                                              ▲                        │
//	                                              └──── next round ◄───────┘
//
// A difference is accepted only by a row of ledger.yaml that says why, what each side does, and which scenario pins
// ours. A row for a case that now matches, or that does not exist, is an error.
//
// It refuses to interpret features the model does not have: a pod that asks for one is marked as unsupported, never
// placed, and its case fails by its own expectation.
package conformance

// Package conformance runs behaviour cases, KAI Scheduler's own expectations written down as data, against the engine.
//
// It answers "in which of these situations do we do what KAI expects, and where not, do we say why". A case is one JSON
// file: a cluster (given), the actions to run, and what must have become of gangs, pods and nodes (expect). The cluster
// becomes real API objects, which reach a cluster.Store through the dialects as they do in the live scheduler, and is
// decided by an engine.Driver with the built-in registry; nothing of the engine is special here.
//
//	case.json ──► Case ──adapter──► API objects ──dialects──► Store ──► engine.Driver ──► fates ──compare──► mismatches
//	                                    ▲                                               │
//	                                    └────────────────── next round ◄────────────────┘
//
// What is expected is compared by meaning, not by name: of shared devices, which pods share one; of topologies, nodes only
// where they are not interchangeable; of nodes, whole GPUs that nobody has, a shared one counting as a whole.
//
// A difference is accepted only by a row of docs/ledgers/cases.yaml that says why, what each side does, and which scenario pins
// ours. A row for a case that now matches, or that does not exist, is an error.
package conformance

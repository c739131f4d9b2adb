// Package app is the process kit: what every role of Muster needs to be a good process, and nothing about what the role does.
//
//	signals ─► Group ─┬─ role "http":   Server.Run      /metrics /healthz /readyz (/debug/pprof)
//	                  ├─ role "auth":   a minute of 401 from the API server ends the process
//	                  └─ role "binder": Turn.RunLeading ─► the controller's own Run
//	                                       (Lease of KAI's name; losing it ends the process; a Fence stops writes without it)
//
// It answers: how a role logs, finds its API server, proves that it is alive, waits for its turn to lead, and stops. It refuses
// to know any role: roles are functions func(context.Context) error, handed in by cmd/muster.
//
// Invariants: a role's context ends before its Lease is released, so two leaders never overlap in a graceful stop; a lost Lease,
// a failed role and a refused credential all end the process with an error; every stop is bounded in time; nothing here keeps
// state in a package variable, so many groups can live in one process (tests, the lab).
package app

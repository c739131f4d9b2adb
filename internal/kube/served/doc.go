// Package served says what an API server has of what Muster can do without, and what is lost where it is missing.
//
// It answers "what does this cluster lack, whom does that concern, and what follows", at a process's start and again from
// then on, because API servers are upgraded under running processes. It refuses to decide what a role does instead: roles
// ask, or wait for a kind with Await.
//
//	discovery: kinds            ┐
//	                            ├─► Look ──► Server ──► Lacking(roles)      Watcher: Look again and again, and tell changes
//	version: gates on by default┘
//
// Needs is the one table: the lines that processes log, `muster debug kubernetes`, the chart's kubeVersion and notes, and the
// table in docs/operations/install.md are made from it or compared with it.
//
// Weakness: kinds are seen, but no API tells a client which feature gates are on. They are taken to be what the version that
// the server says it is, or emulates, has by default. A gate that somebody has switched is not noticed; what that costs stands with
// each need.
package served

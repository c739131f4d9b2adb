// Package cycles carries a scheduler's cycles to who may see them: a Server hands the stream of package replay to callers over TLS, and a Client follows it
// and has each cycle as the scheduler had it.
//
//	scheduler.Loop ─Decided─► replay.Stream ─► Server ══TLS══► Client ─► replay.Case, the same plans byte for byte
//
// It answers "who may read, whom does a reader trust, and what when the line breaks". Who asks must have a token that the API server knows and the
// right to get the path /cycle, which is no resource (package review). A cycle has all names of the cluster in it: the right is for programs that
// apply scopes, and for admins.
//
// The certificate is the process's own, made at its start. Whom to trust is said by the scheduler's Lease, in two annotations that its leader
// writes with each renewal: where it serves, and the hash of its certificate. Who can write that Lease can be the scheduler anyway.
package cycles

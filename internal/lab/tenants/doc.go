// Package tenants plays tenants that mean no good, and audits what becomes of everybody else meanwhile.
//
// A Fuzzer makes writes of every kind that Muster reads: random, bounded by what is there, and the same for the same seed as
// far as the cluster's answers allow. It knows the interface's keys (Keys) and small moves with random parameters, and no
// attack. An Auditor follows the API server's objects and says which promises of docs/architecture.md were broken. It shares
// no code with what it judges: its sums, its idea of what a pod is charged to and of what fits are its own.
//
// The package knows no lab: it gets clients and objects. `make prove-tenants` runs it for an hour, TestTenantFuzz in
// internal/lab/e2e for half a minute.
package tenants

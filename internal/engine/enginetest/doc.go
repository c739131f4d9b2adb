// Package enginetest proves the engine: the scenario runner, invariant checkers, permuters and benchmarks. Nothing of the
// product imports it but the command that runs conformance cases and scenarios.
package enginetest

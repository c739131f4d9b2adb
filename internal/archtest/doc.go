// Package archtest answers one question: does the tree still have the architecture that docs/architecture.md describes?
//
// Each rule (D1 to D12, and a few about comments, tests, sizes and pages) is a value of type Rule that looks at a Tree and
// returns Violations. The tests of this package run every rule over the repository itself, and each rule over small trees under
// testdata that break it, so that a check that can no longer fail is noticed.
//
//	            ┌─ go/parser: every Go file, all build tags ──────┐
//	tree root ──┼─ go list -deps: what the pure packages reach ───┼──► Rule.Check ──► Violations that teach
//	            └─ go/types: internal/engine/... only (D10) ┘
//
// A rule about a directory that does not exist yet passes. An exception to a rule is a row of the table in exceptions.go with its
// reason; a row that its file no longer needs is itself a failure.
//
// The package refuses to judge style: gofumpt, vet and the linters of `make check` do that.
package archtest

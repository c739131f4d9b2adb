// Package dialecttest runs the golden tests of the dialects: Kubernetes objects in YAML, and the text of the events they
// become, side by side in one file.
//
// A file is a txtar archive: prose above says what it shows, section "objects" holds YAML documents, section "want" what
// becomes of them. `go test ./internal/dialect/... -update` rewrites the want sections.
package dialecttest

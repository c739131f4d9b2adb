// Package diag looks at a node and says what is there, for people who look for a fault: a tree of texts, each from a source, with everything taken out
// that looks like a secret. It knows no part of muster-vm: sources are functions.
//
// A scenario. Three sources are read at once. The first writes without end: its text is cut at its bound, and says so. The second stands still: when its time is
// over, its place has an error. The third is whole. The tree goes as JSON to whoever asked, and Unpack makes files of it.
//
// The form is Virtlet's: a result has name, ext, data, isdir, children and error, and the root is called "diagnostics".
//
// Each process of a node serves what only it knows (its goroutines; the runtime its records too) at a unix socket of root's, as HTTP: GET /dump gives a tree,
// POST /gc?dry=true|false what is nobody's.
package diag

// Package operations reads those of the pages for operators that tests hold against the program: metrics.md and vm-metrics.md.
package operations

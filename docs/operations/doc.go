// Package operations reads those of the pages for operators that tests hold against the program: metrics.md, vm-metrics.md, and the metrics of volcano.md.
package operations

// Package store keeps the runtime's records in one file (bbolt) that one process has open. It knows what a file has to survive and nothing of what
// the records say: that is package runtime's, whose Phase is the intent before each side effect, and whose Reconcile compares
// records with what is there.
//
// A scenario. The runtime puts the container c1 as "creating", makes its disk and dies. The next process opens the file and is given c1 as it
// was put. Had the file been damaged meanwhile, it would have been told so, with a copy and what to do: without
// records, every machine of the node would belong to nobody and end.
//
// # Versions
//
// The file has a format, a number. A program reads those up to its own and brings an older one up to date in one transaction; one that is newer
// is refused and left as it is. Within a format no field is added: records are read strictly, because a program that drops a field that it
// does not know would lose it at the next write.
//
// # A damaged file
//
// Each record has a checksum, and before the database is opened its pages are walked, so that a damaged file is an error and neither a wrong
// record nor a panic. It is refused, a copy is kept beside it, and the error says what to do. It is never replaced by itself. One damage
// cannot be told: that of the head which the last write made looks like a write that was cut short, and the records are those before it.
package store

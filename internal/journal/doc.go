// Package journal keeps what schedulers decided beyond the hour that API servers keep events for: append-only files with checksums, from which any cycle that is kept can be decided again.
//
//	stream of cycles ─► Keeper: which bind, evict, or change a reason? ─► Journal ─► segment files
//	                                                                         │
//	                                     lists of entries, cases of cycles ◄─┘
//
// An entry is a cycle that binds, evicts or changes a reason; what queues used and were owed, by the minute; what was forecast and what came; or a gap: that and why something is missing. A
// segment is a file that can be read by itself: the first cycle of each shard in it is whole, and the others say what differs from the one kept before.
//
// It answers "what was decided, why, and can it be shown again". It refuses nothing that it is told, and slows nobody: what does not fit the queue before it, or the disk, is left out, and the next entry is a
// gap that counts it. What a crash leaves unfinished is cut off at the next start, and told as a gap.
//
// It is bounded in time and bytes; the oldest segment goes first. The clock and the folder are inputs.
//
// Weakness: reasons are those of the cycles that are decided on again, a tenth of one processor's time; a reason that came and went between two of them is not in it. A file holds names of the whole
// cluster, and is as confidential as they are: who shows entries applies scopes.
package journal

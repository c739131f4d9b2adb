// Package explain tells why a gang waits, and what exactly would change it.
//
// It answers two questions about one gang of a snapshot: which rule blocks it, with its numbers; and which smallest set of
// changes to the cluster, the queues or the gang itself would let it start. It refuses to guess: a change is printed
// only after the scheduler itself has placed the gang in a copy of the cluster where the change had been made.
//
//	snapshot ──► engine.Run ───────────────────────► verdict, tally, turn
//	    └─ Fork, other waiting pods left out ─► try ─► propose by reason ─► try … placed? ─► minimise ─► Changes
//
// The command line is the caller today; it holds for any profile, because only engine.Run decides. The what-if leaves out
// the pods of other waiting gangs, so that the changes are about rules and room. When a gang could start by itself
// but is not served yet, the Turn says so, and there is nothing to change.
//
// Invariant, checked by a property test over random clusters with every kind of blocker: applying all Changes makes the
// gang startable, and applying all but any part of them (one pod of a list, one unit of a number) does not.
//
// Weakness: the set is minimal, not the smallest of all: another set with fewer parts may exist. The search is bounded; a
// gang for which it finds nothing says so instead of promising something.
package explain

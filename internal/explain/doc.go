// Package explain tells why a gang waits, and what exactly would change it.
//
// It answers two questions about one gang of a snapshot: which rule blocks it, with its numbers; and which smallest sets of changes to the cluster, the
// queues or the gang itself would let it start. It refuses to guess: a change is printed only after the scheduler itself has placed the gang in a
// copy of the cluster where the change had been made.
//
//	snapshot ──► Look: engine.Run ───────────────────► verdict, tally, turn
//	    ├─ Fork, nobody else waits ─► Gang: try ─► propose by reason ─► try … placed? ─► minimise ─► Remedy, proven first
//	    └─ Fork, everybody waits ───► Prove: try ─► a class, a quota, room for those ahead ─► minimise ─► Remedy, proven in line
//
// Package see is the caller: it has the cycle. It holds for any profile, because only engine.Run decides. What the submitter can mend is
// proposed first (own.go); what somebody may think of is in set.go.
//
// Invariants, checked by property tests over random clusters with every kind of blocker: with all changes of a remedy the gang starts (were it next,
// or at its place, as the remedy says), and with all but any part of them (one pod of a list, one unit of a number) it does not.
//
// Weakness: a set is minimal, not the smallest of all: another set with fewer parts may exist. The search is bounded; a gang for which it finds
// nothing says so instead of promising something.
package explain

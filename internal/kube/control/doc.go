// Package control runs a controller: what it watches goes into a book, decisions come out of it, and writes follow from these.
//
//	watch ──see──► book ──Decide (pure)──► Write ──► API server
//	                ▲  └──due keys──► work queue ──┘      │
//	                └─────────── events of the writes ────┘
//
// The book and Decide are the controller's own: plain data and functions of it, without client, clock or goroutine, so that tables and
// random histories test them. A controller says in a Role what is particular to it; the kit does what is the same for all:
//
//   - one lock around the book, held by see and Decide, and by nothing that waits;
//   - one work queue, in which a key is once, and no key is worked at twice at a time; tenants are served in turn if the role says whose
//     a key is (package turns);
//   - nothing is decided before all that existed at the start was seen; a kind that the API server comes to serve later is watched then;
//   - a failed write is tried again, by deciding anew, after growing waits;
//   - what ends in a defect is set aside (package aside).
//
// It refuses to write, and to know what is written: that is the role's, through package write.
package control

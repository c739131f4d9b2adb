// Package see says what becomes of the gangs that wait, from the scheduler's own cycle: [Explain] why one waits and what would change that, [InLine] with the
// proof that it starts at its place, [WhatIf] what changes would bring about, and [Forecast] when each of them starts, with a band, what
// decides it, and how such bands have held. Conditions, the command line and web pages are to call it alike; what somebody may not read is taken
// out by his [Scope] before anything is written.
//
//	Cycle ──► runtimes: declared, or learned from History ─┐
//	          arrivals of the last days, drawn anew        ├─► 32 draws of a sim.Cluster, by the real engine ─► Outlook ─► Text
//	          what was forecast, and when gangs did start ─┘
//
// It is pure: no client, no clock, no file; the time is the cycle's, randomness is a seed, and one input gives one Outlook. It never says
// more than it knows: runtimes that nobody knows are named as unknown, and what lies beyond the horizon is "not within a day".
//
// What a draw leaves out is what sim.Cluster leaves out: nodes do not fail, pods never fail by themselves, and work that is evicted
// begins anew. The bands are scaled by their own record, so that what is left out widens them ([Record]).
//
// The proof is package trial/forecast: made-up loads and a recorded one, which this package cannot import.
package see

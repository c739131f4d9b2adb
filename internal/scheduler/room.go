package scheduler

import "time"

// heldBack is since when cycles wait for decisions to be written.
type heldBack struct {
	since  time.Time // zero while none waits
	looked time.Time // the last time that was counted
	told   bool
}

// tellHeld is how long a cycle waits for room before the log says so: a burst is written in less.
const tellHeld = time.Second

// holdBack says whether a cycle has to wait, if one is due, because too many decisions have not been written yet: what would be decided now
// would only grow old in a queue. The world is followed meanwhile, and what fails is taken back. It says so in a metric and, when it lasts, in
// the log.
func (l *Loop) holdBack(c *cycle, due bool, now time.Time) bool {
	binds, evictions := l.binds.Full(), l.evictions.Full()
	held, h := due && (binds || evictions), &c.held
	if !h.since.IsZero() {
		l.metrics.heldBack.Add(now.Sub(h.looked).Seconds())
	}
	switch {
	case held && h.since.IsZero():
		*h = heldBack{since: now}
	case held && !h.told && now.Sub(h.since) >= tellHeld:
		h.told = true
		c.log.Info("nothing is decided for now: too many decisions are still to be written", "binds", binds, "evictions", evictions, "since", h.since)
	case !held:
		if h.told {
			c.log.Info("deciding goes on: decisions have been written", "waited", now.Sub(h.since).String())
		}
		*h = heldBack{}
	}
	h.looked = now
	return held
}

package cluster

import (
	"maps"
	"math"
	"time"
)

// Skew is how far the clocks of two machines, or one clock before and after it was set, may be apart without that being
// taken for a mistake: what an object says of its past may be so far ahead, and the Store's own clock may
// go back by a sixtieth of it.
const Skew = time.Minute

// Past returns a moment that an object says has been, or none where it cannot have been: it lies ahead, because a
// clock was set back or was wrong when the object was written. Nobody waits for such a moment to come.
func (s *Snapshot) Past(at Instant) Instant {
	if at.After(s.Now) && at.Sub(s.Now) > Skew {
		return Instant{}
	}
	return at
}

// rewind brings what the Store remembers in line with a clock that has been set back by so much: what has been is as long ago
// as it was, and what is waited for is as far ahead, but for remembered answers, which are dropped. It counts as news: what
// objects say of times cannot be compared with what is remembered for a while. O(pods + gangs).
func (s *Store) rewind(by time.Duration) {
	back := func(t *Instant) bool {
		if !t.After(Instant{}) || !t.Before(UnixNano(math.MaxInt64/2)) { // nothing is remembered, or it never ends
			return false
		}
		*t = Latest(UnixNano(1), t.Add(-by))
		return true
	}
	for _, id := range s.podIDs { // order: each pod on its own
		was := s.pods.get(int32(id))
		if was.Held.IsZero() && was.NotBefore.IsZero() && was.evicting.IsZero() && was.goneBy.IsZero() && was.assumed == nil {
			continue
		}
		p := s.pod(id)
		back(&p.Held)
		back(&p.NotBefore)
		back(&p.evicting)
		back(&p.goneBy)
		if p.assumed != nil {
			a := *p.assumed
			back(&a.until)
			p.assumed = &a
		}
	}
	for _, id := range s.gangIDs { // order: each gang on its own
		was := s.gangs.get(int32(id))
		if was.empty() {
			continue
		}
		g := s.gang(id)
		ours := [3]bool{g.LastStart == g.Started, g.LastEviction == g.Evicted, g.Stale.Set}
		for _, t := range []*Instant{&g.Displaced, &g.Since, &g.Started, &g.Evicted, &g.Stale.Value} {
			back(t)
		}
		if ours[0] {
			g.LastStart = g.Started
		}
		if ours[1] {
			g.LastEviction = g.Evicted
		}
		if ours[2] {
			g.StaleSince = g.Stale.Value
		}
		old := g.Displacements
		g.Displacements = make([]Displacement, len(old))
		for i, d := range old {
			back(&d.At)
			g.Displacements[i] = d
		}
	}
	for id, h := range s.holds { // order: each on its own
		back(&h.Until)
		s.holds[id] = h
	}
	for pair, until := range maps.Clone(s.frozen) { // order: each on its own
		back(&until)
		s.thaw()[pair] = until
	}
	for name, n := range s.shares { // order: each on its own
		back(&n.since)
		s.shares[name] = n
	}
	for _, id := range s.queueIDs { // order: each queue on its own
		if !s.queues.get(int32(id)).ShareMoved.IsZero() {
			back(&s.queue(id).ShareMoved)
		}
	}
	for name, at := range s.served { // order: each queue on its own
		back(&at)
		s.served[name] = at
		s.dirty[name] = struct{}{}
	}
	clear(s.answers)
	s.news = s.now
	s.gen++
}

package cluster

import "maps"

// Frozen is a pair of gangs of which one may not have the other evicted for a while: it went round in circles.
type Frozen struct {
	Taker Key `json:"taker"`
	Giver Key `json:"giver"`
}

// Freeze forbids that pods of giver be evicted for taker before until.
func (s *Store) Freeze(taker, giver Key, until Instant) {
	s.thaw()[Frozen{taker, giver}] = until
	s.gen++
}

// thaw returns the freeze list to be written to; snapshots keep the one they have.
func (s *Store) thaw() map[Frozen]Instant {
	if s.frozen == nil {
		s.frozen = map[Frozen]Instant{}
	} else {
		s.frozen = maps.Clone(s.frozen)
	}
	return s.frozen
}

// pruneFrozen drops what has run out.
func (s *Store) pruneFrozen(now Instant) {
	for pair, until := range s.frozen { // order: each on its own
		if !until.After(now) {
			delete(s.thaw(), pair)
			s.gen++
		}
	}
}

// Frozen says whether pods of giver must not be evicted for taker for now.
func (s *Snapshot) Frozen(taker, giver Key) bool {
	if len(s.frozen) == 0 {
		return false
	}
	return s.frozen[Frozen{taker, giver}].After(s.Now)
}

// AnyFrozen says whether there may be pairs of whom Frozen says so.
func (s *Snapshot) AnyFrozen() bool { return len(s.frozen) > 0 }

// Barred says for whom some gang's pods must not be evicted for now: it is called with each of them, perhaps again and again,
// in no meaningful order.
func (s *Snapshot) Barred(f func(taker Key)) {
	for pair, until := range s.frozen { // order: of no meaning to callers
		if until.After(s.Now) {
			f(pair.Taker)
		}
	}
}

package replay

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

const (
	// maxReaders is how many may follow a stream at once.
	maxReaders = 8
	// lag is how many cycles a reader may be behind before they are left out for it.
	lag = 64
	// stillEvery is how often readers are told that nothing has happened.
	stillEvery = time.Second
)

// ErrReaders says that so many follow a stream that there is no room for another one.
var ErrReaders = errors.New("too many follow the cycles")

// Stream tells readers the cycles of a scheduler as they are decided, each by what differs from the one before. While nobody reads, a cycle costs
// a pointer. It waits for no reader: one that is more than 64 cycles behind finds a gap, and a whole cycle after it. What is told of
// a cycle is worked out once for all readers, in the time of the first one that gets there. It is safe for concurrent use.
type Stream struct {
	version string
	storage bool

	mu      sync.Mutex
	profile engine.Profile // of the next cycle
	cycles  uint64
	ring    []*told // the latest cycles, oldest first; while nobody reads, the last one alone
	readers int
	news    chan struct{} // closed when there is another cycle

	whole []byte // the keyframe of the latest cycle, if somebody asked

	writing sync.Mutex
}

// told is a cycle and what is told of it, once somebody asked.
type told struct {
	moment
	before *cluster.Snapshot // that of the cycle before; nil for the first

	// told says that part is there: the snapshot is then kept only while the cycle is the latest, for keyframes. Guarded by the Stream's mu, as snap is.
	told bool

	mu   sync.Mutex
	part []byte
	err  error
}

// NewStream returns the stream of a scheduler of this version, profile and --schedule-csi-storage.
func NewStream(version string, p engine.Profile, storageCapacity bool) *Stream {
	return &Stream{version: version, profile: p, storage: storageCapacity, news: make(chan struct{})}
}

// Decided takes a cycle in, as [Recorder.Decided] does. It does not block.
func (s *Stream) Decided(snap *cluster.Snapshot, plans []engine.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cycles++
	t := &told{moment: moment{s.cycles, snap, plans, s.profile}}
	if n := len(s.ring); n > 0 && s.readers > 0 {
		last := s.ring[n-1]
		if t.before = last.snap; last.told {
			last.snap = nil
		}
		s.ring = append(s.ring[max(0, n+1-lag):], t)
	} else {
		s.ring = []*told{t}
	}
	s.whole = nil
	close(s.news)
	s.news = make(chan struct{})
}

// Use says what the scheduler decides by from the next cycle on.
func (s *Stream) Use(p engine.Profile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.profile = p
}

// Follow writes the latest cycle and those that come, until ctx ends or a write fails; nil for the former. A write is one entry or several, and may
// block, which delays nobody else. Before the first cycle it waits.
func (s *Stream) Follow(ctx context.Context, write func([]byte) error) error {
	s.mu.Lock()
	if s.readers >= maxReaders {
		s.mu.Unlock()
		return ErrReaders
	}
	s.readers++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.readers--; s.readers == 0 && len(s.ring) > 0 {
			s.ring = s.ring[len(s.ring)-1:]
		}
	}()
	still := time.NewTicker(stillEvery)
	defer still.Stop()
	at := uint64(0) // the last cycle that the reader has
	for {
		next, snap, missed, news := s.next(at)
		if next == nil {
			select {
			case <-ctx.Done():
				return nil
			case <-news:
			case <-still.C:
				text, err := line(&printed{Kind: Still, Cycle: at})
				if err == nil {
					err = write(text)
				}
				if err != nil {
					return err
				}
			}
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if missed > 0 {
			text, err := line(&printed{Kind: Gap, Cycle: at + missed, Missed: missed})
			if err == nil {
				err = write(text)
			}
			if err != nil {
				return err
			}
		}
		text, err := s.tell(next, snap, at == 0 || missed > 0)
		if err == nil {
			err = write(text)
		}
		if err != nil {
			return err
		}
		at = next.cycle
	}
}

// next is the cycle after one that a reader has, with its snapshot if that is still needed, or the latest one after how many that it missed; nil while there is none, and what to wait for.
func (s *Stream) next(at uint64) (t *told, snap *cluster.Snapshot, missed uint64, news <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.ring)
	if n == 0 || s.ring[n-1].cycle == at {
		return nil, nil, 0, s.news
	}
	latest, first := s.ring[n-1], s.ring[0].cycle
	switch {
	case at == 0:
		return latest, latest.snap, 0, nil
	case at+1 < first:
		return latest, latest.snap, latest.cycle - at - 1, nil
	}
	t = s.ring[at+1-first]
	return t, t.snap, 0, nil
}

// tell is what is told of a cycle: the whole of it, or what differs from the one before, where it is of the same Store.
func (s *Stream) tell(t *told, snap *cluster.Snapshot, whole bool) ([]byte, error) {
	c := &Case{Version: s.version, Profile: t.profile, StorageCapacity: s.storage, Decided: true, Plans: t.plans}
	if !whole {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.part != nil || t.err != nil {
			return t.part, t.err
		}
		if t.before != nil {
			if events, ok := snap.Since(t.before); ok {
				t.part, t.err = partLine(t.cycle, snap, t.before, events, c)
				t.before = nil
				s.done(t)
				return t.part, t.err
			}
		}
	}
	s.writing.Lock() // one at a time: a whole cycle of a large cluster takes much memory
	defer s.writing.Unlock()
	if text := s.kept(t, nil); text != nil {
		return text, nil
	}
	c.Image = snap.Image()
	var b bytes.Buffer
	if err := wholeLine(&b, t.cycle, Cluster(snap), c); err != nil {
		return nil, err
	}
	return s.kept(t, b.Bytes()), nil
}

// done lets go of a snapshot of which all has been told, unless it is the latest one.
func (s *Stream) done(t *told) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.told = true; s.cycles != t.cycle {
		t.snap = nil
	}
}

// kept is the keyframe of a cycle: what is given, which is kept while the cycle is the latest, or else what is kept.
func (s *Stream) kept(t *told, text []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cycles != t.cycle {
		return text
	}
	if text != nil {
		s.whole = text
	}
	return s.whole
}

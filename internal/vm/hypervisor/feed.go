package hypervisor

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
)

// feedRoom is how many events wait for one reader; the last place is for a Resync.
const feedRoom = 1024

// Feed is an implementation's side of Events: it knows what machines were last, tells readers of what has changed, and never waits for one. The
// zero value is ready.
type Feed struct {
	mu      sync.Mutex
	known   map[string]Machine
	readers map[*reader]bool
	closed  bool
}

type reader struct {
	ch chan Event
	// lost says that events were dropped since the Resync that stands last in ch.
	lost bool
}

// Read makes a channel for Events.
func (f *Feed) Read(ctx context.Context) <-chan Event {
	r := &reader{ch: make(chan Event, feedRoom)}
	f.mu.Lock()
	defer f.mu.Unlock()
	r.ch <- Event{Kind: Resync}
	if f.closed || ctx.Err() != nil {
		close(r.ch)
		return r.ch
	}
	if f.readers == nil {
		f.readers = map[*reader]bool{}
	}
	f.readers[r] = true
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.readers[r] {
			delete(f.readers, r)
			close(r.ch)
		}
	})
	return r.ch
}

// Known gives a machine as it was told last.
func (f *Feed) Known(uuid string) (Machine, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, ok := f.known[uuid]
	return m, ok
}

// Tell tells of a machine as it is, if that is new.
func (f *Feed) Tell(m Machine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tell(m)
}

func (f *Feed) tell(m Machine) {
	if old, ok := f.known[m.UUID]; ok && old == m {
		return
	}
	if f.known == nil {
		f.known = map[string]Machine{}
	}
	f.known[m.UUID] = m
	f.send(Event{Kind: Changed, Machine: m})
}

// Gone tells that a machine is not there any more, if it was known.
func (f *Feed) Gone(uuid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone(uuid)
}

func (f *Feed) gone(uuid string) {
	if m, ok := f.known[uuid]; ok {
		delete(f.known, uuid)
		f.send(Event{Kind: Gone, Machine: m})
	}
}

// Compare makes up for events that were missed: all are the machines that there are. Where only a reason was forgotten, the old one stands.
func (f *Feed) Compare(all []Machine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.compare(all)
	f.send(Event{Kind: Resync})
}

// Check is Compare without the Resync: for a hypervisor that does not tell everything by itself.
func (f *Feed) Check(all []Machine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.compare(all)
}

func (f *Feed) compare(all []Machine) {
	there := map[string]bool{}
	sorted := slices.SortedFunc(slices.Values(all), func(a, b Machine) int { return cmp.Compare(a.UUID, b.UUID) })
	for _, m := range sorted {
		there[m.UUID] = true
		if old, ok := f.known[m.UUID]; ok && m.Reason == Unknown && m.State == old.State {
			m.Reason = old.Reason
		}
		f.tell(m)
	}
	for _, uuid := range slices.Sorted(maps.Keys(f.known)) {
		if !there[uuid] {
			f.gone(uuid)
		}
	}
}

func (f *Feed) send(e Event) {
	for r := range f.readers { // order: readers do not see one another
		switch {
		case r.lost && len(r.ch) > 0: // the Resync before it was not fetched yet: the List that follows it shows this change too
		case len(r.ch) < cap(r.ch)-1:
			r.lost = false
			r.ch <- e
		default:
			r.lost = true
			r.ch <- Event{Kind: Resync}
		}
	}
}

// Close ends all channels, now and later.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for r := range f.readers { // order: each is closed
		close(r.ch)
	}
	f.readers = nil
}

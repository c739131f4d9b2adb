package apply

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// ErrUndone is why a decision is not written any more: one that it counts on came to nothing. Whom it was for is decided on anew.
var ErrUndone = errors.New("an earlier decision, which it counts on, was not carried out")

// Fates is what becomes of bundles, for those that count on them (Bundle.DependsOn). Binds and Evictions of one scheduler share one.
// The zero value is ready; it is safe for concurrent use.
type Fates struct {
	mu   sync.Mutex
	open map[string]*fate
	lost map[string]time.Time // those that came to nothing, and when
}

// fate is what becomes of one bundle.
type fate struct {
	writers int // that are at it
	then    []func()
}

// lostStands is for how long a bundle is known to have come to nothing: longer than any that counts on it waits.
const lostStands = time.Hour

// lostMost is from how many lost bundles on old ones are forgotten.
const lostMost = 10_000

// begin notes that a writer has a bundle.
func (f *Fates) begin(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		f.open, f.lost = map[string]*fate{}, map[string]time.Time{}
	}
	if f.open[id] == nil {
		f.open[id] = &fate{}
	}
	f.open[id].writers++
}

// end notes that a writer is done with a bundle; err is why it came to nothing, or a part of it did.
func (f *Fates) end(id string, err error) {
	for _, do := range f.settle(id, err) {
		do()
	}
}

// settle is end; it returns what is to be done then.
func (f *Fates) settle(id string, err error) []func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		now := time.Now()
		if len(f.lost) >= lostMost {
			maps.DeleteFunc(f.lost, func(_ string, at time.Time) bool { return now.Sub(at) > lostStands })
		}
		f.lost[id] = now
	}
	if at := f.open[id]; at != nil {
		if at.writers--; at.writers == 0 {
			delete(f.open, id)
			return at.then
		}
	}
	return nil
}

// check is ErrUndone when one of the bundles has come to nothing.
func (f *Fates) check(ids []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		if _, lost := f.lost[id]; lost {
			return fmt.Errorf("bundle %s: %w", id, ErrUndone)
		}
	}
	return nil
}

// then calls do once none of the bundles is under way, which may be at once. A bundle depends on such only as were submitted before it: so two
// never wait for one another.
func (f *Fates) then(ids []string, do func()) {
	if !f.wait(ids, do) {
		do()
	}
}

func (f *Fates) wait(ids []string, do func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, id := range ids {
		if at := f.open[id]; at != nil {
			at.then = append(at.then, func() { f.then(ids[i+1:], do) })
			return true
		}
	}
	return false
}

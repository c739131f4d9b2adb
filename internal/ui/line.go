package ui

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Bounds of the work that callers can cause.
const (
	atOnce      = 2  // questions that are worked on at a time
	inLineMost  = 32 // questions that are there at a time, those that wait included
	ofOneCaller = 8  // of these, one caller's
	// atDoor is how many tokens the API server is asked about at a time, doorMost how many requests wait for that, a quarter of them of one address at most.
	atDoor, doorMost = 8, 256
	// forAnswer is how long one answer may take, its wait included; forProof one with the proof that a gang starts at its place, of which there is one at a time.
	forAnswer = 15 * time.Second
	forProof  = 60 * time.Second
)

// busy says that there is no room for a question now, and when there may be.
type busy struct{ after time.Duration }

func (b *busy) Error() string {
	return fmt.Sprintf("too many questions are being answered: ask again in %d s", int(b.after.Seconds()))
}

// line lets so many questions be worked on at once, and so many wait. It is safe for concurrent use; make one with newLine.
type line struct {
	slots        chan struct{}
	most, caller int
	after        time.Duration

	mu  sync.Mutex
	all int
	of  map[string]int
}

func newLine(atOnce, most, caller int, after time.Duration) *line {
	return &line{slots: make(chan struct{}, atOnce), most: most, caller: caller, after: after, of: map[string]int{}}
}

// enter waits for its turn; leave ends it. The error is *busy: there is no room in the line, or ctx ended first.
func (l *line) enter(ctx context.Context, who string) (leave func(), err error) {
	l.mu.Lock()
	if l.all >= l.most || l.of[who] >= l.caller {
		l.mu.Unlock()
		return nil, &busy{l.after}
	}
	l.all++
	l.of[who]++
	l.mu.Unlock()
	gone := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all--
		if l.of[who]--; l.of[who] == 0 {
			delete(l.of, who)
		}
	}
	select {
	case l.slots <- struct{}{}:
		return func() { <-l.slots; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, &busy{l.after}
	}
}

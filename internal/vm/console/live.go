package console

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// live reads the raw output for those that are attached, from where it is when the first of them comes. It waits for nobody, neither for the log.
type live struct {
	o    Options
	hub  *hub
	file *os.File
	// punched is up to where the raw output may be empty.
	punched *atomic.Int64

	mu     sync.Mutex
	offset int64
}

func newLive(o Options, h *hub, punched *atomic.Int64) (*live, error) {
	f, err := os.OpenFile(o.raw(), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return &live{o: o, hub: h, file: f, punched: punched}, nil
}

// join adds a client, who sees what is said from now on.
func (l *live) join(c *client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hub.empty() {
		if _, size, err := idOf(l.file); err == nil {
			l.offset = size
		}
	}
	l.hub.mu.Lock()
	l.hub.clients[c] = struct{}{}
	l.hub.mu.Unlock()
	select {
	case l.hub.some <- struct{}{}:
	default:
	}
}

// run looks until ctx ends, and only while somebody is attached.
func (l *live) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.hub.some:
		}
		look, stop := l.o.Look, func() {}
		if look == nil {
			t := time.NewTicker(lookEvery)
			look, stop = t.C, t.Stop
		}
		for !l.hub.empty() && ctx.Err() == nil {
			l.look()
			select {
			case <-ctx.Done():
			case <-look:
			}
		}
		stop()
	}
}

// look gives what has been said since the last time, or some of it; whole says that it is all.
func (l *live) look() (whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hub.empty() {
		return true
	}
	b := make([]byte, 16<<10)
	for range 64 { // a guest that speaks without end lets others have their turn
		n, _ := l.file.ReadAt(b, l.offset) // what was read counts
		if n == 0 {
			return true
		}
		piece := b[:n]
		// The log may have been ahead, and its room given back meanwhile.
		if gone := min(l.punched.Load()-l.offset, int64(n)); gone > 0 {
			l.hub.lose(gone)
			piece = piece[gone:]
		}
		l.offset += int64(n)
		if len(piece) > 0 {
			l.hub.say(piece)
		}
	}
	return false
}

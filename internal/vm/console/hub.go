package console

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
)

// hub is those that are attached.
type hub struct {
	ring    int
	mu      sync.Mutex
	clients map[*client]struct{}
	over    chan struct{}
	ended   bool
	// some says that somebody was attached. It has room for one.
	some chan struct{}
	// typing is held by whoever writes to the guest. It has room for one.
	typing chan struct{}
}

func newHub(ring int) *hub {
	return &hub{ring: ring, clients: map[*client]struct{}{}, over: make(chan struct{}), some: make(chan struct{}, 1), typing: make(chan struct{}, 1)}
}

// end lets everybody go who is attached, once they have what waits for them.
func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.ended = true
		close(h.over)
	}
}

// empty reports whether nobody is attached.
func (h *hub) empty() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.clients) == 0
}

// say gives output to all that are attached. It never waits.
func (h *hub) say(b []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.clients { // order: each has its own
		c.add(b)
	}
}

// lose tells all that are attached that so much was said which nobody has.
func (h *hub) lose(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.clients { // order: each has its own
		c.lost += n
	}
}

// client is one that is attached. Its fields are the hub's mutex's.
type client struct {
	// ring holds what waits: waiting bytes from start on.
	ring           []byte
	start, waiting int
	lost           int64
	// wake has room for one.
	wake chan struct{}
}

// mark tells a client what it has missed.
func mark(lost int64) []byte {
	return fmt.Appendf(nil, "\r\n[muster-vm: %d bytes are missing here: they came faster than they were taken]\r\n", lost)
}

// add keeps all of b or nothing: after a loss, nothing until there is room for the mark and for what follows it.
func (c *client) add(b []byte) {
	need := len(b)
	var m []byte
	if c.lost > 0 {
		m = mark(c.lost)
		need += len(m)
	}
	if need > len(c.ring)-c.waiting {
		c.lost += int64(len(b))
	} else {
		c.put(m)
		c.put(b)
		c.lost = 0
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *client) put(b []byte) {
	for len(b) > 0 {
		at := (c.start + c.waiting) % len(c.ring)
		n := copy(c.ring[at:min(len(c.ring), at+len(c.ring)-c.waiting)], b)
		c.waiting += n
		b = b[n:]
	}
}

// take moves what waits into b; when nothing does, the mark of what was lost last.
func (h *hub) take(c *client, b []byte) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.waiting == 0 && c.lost > 0 {
		m := mark(c.lost)
		c.lost = 0
		return m
	}
	n := copy(b, c.ring[c.start:min(len(c.ring), c.start+c.waiting)])
	c.start, c.waiting = (c.start+n)%len(c.ring), c.waiting-n
	return b[:n]
}

// Attach gives out what the guest says from now on, and the guest what comes by in; either may be nil. It returns nil when the guest or the console has ended and out has all,
// ctx's error when ctx ends, and out's when that fails. The end of in ends only the typing. What out does not take in time it misses, and is told how much. When Attach returns, a Read or a Write
// that is under way may go on until the caller closes the two.
func (c *Console) Attach(ctx context.Context, in io.Reader, out io.Writer) error {
	h := c.hub
	if in == nil && out == nil {
		return vm.Errorf(vm.Invalid, "attach: neither input nor output is asked for")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if in != nil {
		go h.typed(ctx, in, c.input)
	}
	if out == nil {
		select {
		case <-h.over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	me := &client{ring: make([]byte, h.ring), wake: make(chan struct{}, 1)}
	c.live.join(me)
	defer func() {
		h.mu.Lock()
		delete(h.clients, me)
		h.mu.Unlock()
	}()
	wrote := make(chan error, 1)
	go func() { wrote <- h.show(ctx, me, out) }()
	select {
	case err := <-wrote:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// show writes what waits for a client until nothing more can come.
func (h *hub) show(ctx context.Context, me *client, out io.Writer) error {
	b := make([]byte, 8<<10)
	for ctx.Err() == nil {
		over := false
		select {
		case <-h.over: // looked at before what waits
			over = true
		default:
		}
		if piece := h.take(me, b); len(piece) > 0 {
			if _, err := out.Write(piece); err != nil {
				return fmt.Errorf("attach: %w", err)
			}
			continue
		}
		if over {
			return nil
		}
		select {
		case <-me.wake:
		case <-h.over:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// typed gives the guest what a client types. The guest takes it as fast as it can, and the client waits for it; about 64 KiB wait for a guest.
func (h *hub) typed(ctx context.Context, in io.Reader, guest *os.File) {
	b := make([]byte, 1<<10)
	for {
		n, err := in.Read(b)
		if n > 0 && !h.toGuest(ctx, b[:n], guest) || err != nil {
			return
		}
	}
}

func (h *hub) toGuest(ctx context.Context, b []byte, guest *os.File) bool {
	select {
	case h.typing <- struct{}{}:
		defer func() { <-h.typing }()
	case <-ctx.Done():
		return false
	case <-h.over:
		return false
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = guest.SetWriteDeadline(time.Unix(1, 0)) // long ago
		close(stopped)
	})
	_, err := guest.Write(b)
	if !stop() { // ctx has ended; others type on
		<-stopped
		_ = guest.SetWriteDeadline(time.Time{})
		return false
	}
	return err == nil
}

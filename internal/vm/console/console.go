package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Options are what a console is made of. The paths are absolute, and each is this console's alone.
type Options struct {
	// Pipe is the path that the serial port has in the domain's XML (<serial type="pipe">): the guest reads PIPE.in, a FIFO, and PIPE.out, a regular file, is the raw output. Open makes
	// them where they are not there, so it comes before the machine's start; they go when the container goes.
	Pipe string
	// Owner, where not nil, is who the two belong to: the user that QEMU runs as.
	Owner *Owner
	// State is the file of how far the raw output has been translated. It goes when the container goes, and not before.
	State string
	// Log is the CRI log; "" for none: then output is only for those that are attached. Its folder has to be there.
	Log string
	// Limit is how many bytes of the raw output may wait for the log, 64 MiB by default and at least 1 MiB. What was there at the opening does not count.
	Limit int64
	// Ring is how many bytes may wait for one attached client, 256 KiB by default and at least 4 KiB.
	Ring int
	// Now is the clock: the times of the log's entries.
	Now func() time.Time
	// Tick is when to look for output for the log, nil for every 200 ms; Look is when to look for those that are attached, nil for every 20 ms while there are any.
	Tick, Look <-chan time.Time
	Logger     logr.Logger

	// write is for tests: see writer.
	write func(what string, op func() error, half func()) error
}

// Owner is a user and a group by number.
type Owner struct{ UID, GID int }

const (
	defaultLimit = 64 << 20
	minLimit     = 1 << 20
	defaultRing  = 256 << 10
	minRing      = 4 << 10
	tickEvery    = 200 * time.Millisecond
	lookEvery    = 20 * time.Millisecond
)

func (o *Options) complete() error {
	if o.Limit == 0 {
		o.Limit = defaultLimit
	}
	if o.Ring == 0 {
		o.Ring = defaultRing
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	switch {
	case o.Limit < minLimit:
		return vm.Errorf(vm.Invalid, "console: limit %d: must be at least %d", o.Limit, minLimit)
	case o.Ring < minRing:
		return vm.Errorf(vm.Invalid, "console: ring %d: must be at least %d", o.Ring, minRing)
	case !filepath.IsAbs(o.Pipe) || !filepath.IsAbs(o.State):
		return vm.Errorf(vm.Invalid, "console: pipe %q, state %q: must be absolute paths", o.Pipe, o.State)
	}
	return nil
}

// Console is one guest's console. Run serves it; the other methods may be called from any goroutine while it does.
type Console struct {
	o        Options
	w        *writer
	input    *os.File
	live     *live
	hub      *hub
	requests chan request
	done     chan struct{} // Run has ended
	once     sync.Once

	mu     sync.Mutex
	failed error
}

// request is something for the goroutine that writes the log.
type request struct {
	finish bool       // else reopen
	answer chan error // has room for one
}

func (o *Options) raw() string { return o.Pipe + ".out" }

// Open makes the pipe's files, opens the state, and nothing else yet; the caller then has Run serve. A Console that is not run is closed by Close.
func Open(o Options) (*Console, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	c := &Console{o: o, hub: newHub(o.Ring), requests: make(chan request), done: make(chan struct{})}
	var err error
	if c.input, err = openPipe(o); err == nil {
		c.w, err = newWriter(o)
	}
	if err == nil {
		c.live, err = newLive(o, c.hub, &c.w.punched)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("console: %w", err)
	}
	return c, nil
}

// openPipe makes the two files, and opens the one that the guest reads: for both, so that it neither waits for QEMU nor ends with it.
func openPipe(o Options) (*os.File, error) {
	in := o.Pipe + ".in"
	if err := unix.Mkfifo(in, 0o600); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("%s: %w", in, err)
	}
	out, err := os.OpenFile(o.raw(), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	f, err := os.OpenFile(in, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.Mode()&os.ModeNamedPipe == 0:
		err = vm.Errorf(vm.Invalid, "%s is no FIFO", in)
	case o.Owner != nil:
		err = errors.Join(f.Chown(o.Owner.UID, o.Owner.GID), out.Chown(o.Owner.UID, o.Owner.GID))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close ends a console that was never run. After Run it does nothing.
func (c *Console) Close() {
	c.once.Do(func() {
		c.hub.end()
		if c.input != nil {
			c.input.Close()
		}
		if c.w != nil {
			c.w.close()
		}
		if c.live != nil {
			c.live.file.Close()
		}
		close(c.done)
	})
}

// Run serves until ctx ends: those that are attached, and the log. What cannot be written is tried again; Failed says what it is. A console runs once.
func (c *Console) Run(ctx context.Context) {
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	working.Go(func() { c.live.run(ctx) })
	c.writeLog(ctx)
}

// Failed is why the log cannot be written at present; nil if it can.
func (c *Console) Failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

func (c *Console) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.failed == nil {
		c.o.Logger.Error(err, "A container's log cannot be written; its output waits", "log", c.o.Log)
	}
	c.failed = err
}

// Reopen makes the log anew after it was renamed: when it returns nil, the file that has its name is the one that is written to. Everything that is in the old file stays there, and
// nothing of it is in the new one.
func (c *Console) Reopen(ctx context.Context) error {
	return c.ask(ctx, request{answer: make(chan error, 1)})
}

// Finish is for a guest that has ended, and QEMU with it: when it returns nil, all that it said is in the log, and those that are attached get the rest and are let go. While the log cannot
// be written, it waits for that, as long as ctx allows.
func (c *Console) Finish(ctx context.Context) error {
	return c.ask(ctx, request{finish: true, answer: make(chan error, 1)})
}

func (c *Console) ask(ctx context.Context, r request) error {
	over := vm.Errorf(vm.Unavailable, "console %s: it is not served any more", c.o.Pipe)
	select {
	case c.requests <- r:
	case <-ctx.Done():
		return errors.Join(ctx.Err(), c.Failed())
	case <-c.done:
		return over
	}
	select {
	case err := <-r.answer:
		return err
	case <-ctx.Done():
		return errors.Join(ctx.Err(), c.Failed())
	case <-c.done:
		return over
	}
}

// writeLog is the goroutine that has the writer.
func (c *Console) writeLog(ctx context.Context) {
	tick := c.o.Tick
	if tick == nil {
		t := time.NewTicker(tickEvery)
		defer t.Stop()
		tick = t.C
	}
	var ending []request // those that wait for the end
	always := make(chan struct{})
	close(always)
	more := true
	for ctx.Err() == nil {
		if more {
			var err error
			more, err = c.w.step(false)
			c.fail(err)
		}
		if !more {
			if len(ending) > 0 && c.Failed() == nil {
				ending = c.finish(ending)
			}
			c.w.buffer = nil // 500 consoles that are quiet hold no buffers
		}
		at, ready := tick, (<-chan struct{})(nil)
		if more { // look at what else there is, and go on
			at, ready = nil, always
		}
		select {
		case <-ctx.Done():
		case r := <-c.requests:
			if r.finish {
				ending = append(ending, r)
			} else {
				err := c.w.reopen()
				c.fail(err)
				r.answer <- err
			}
			more = true
		case <-at:
			more = true
		case <-ready:
		}
	}
}

// finish writes what has no line's end, and answers those that wait.
func (c *Console) finish(ending []request) []request {
	for {
		more, err := c.w.step(true)
		c.fail(err)
		if err != nil {
			return ending // the next tick tries again
		}
		if !more {
			break
		}
	}
	c.w.punch(true)
	for !c.live.look() { // it ends, because the guest has
	}
	c.hub.end()
	for _, r := range ending {
		r.answer <- nil
	}
	return nil
}

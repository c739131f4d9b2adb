package node

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/console"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/runtime"
)

// Consoles keeps the consoles of machines that this process serves. The state of each lies beside its pipe, in the container's folder, and goes with that.
type Consoles struct {
	owner *console.Owner
	log   logr.Logger

	mu   sync.Mutex
	open map[string]*served
}

// served is a console with the goroutine that serves it.
type served struct {
	*console.Console
	exit string // domain.Paths.Exit
	stop context.CancelFunc
	done chan struct{}
}

var _ runtime.Consoles = (*Consoles)(nil)

// NewConsoles has no console open. owner is QEMU's user; nil where that is the one who runs this.
func NewConsoles(owner *console.Owner, log logr.Logger) *Consoles {
	return &Consoles{owner: owner, log: log, open: map[string]*served{}}
}

// How often exit ports are looked after: a guest can write that long as fast as QEMU takes it. The second is where one floods its port.
const (
	trimEvery = 200 * time.Millisecond
	trimFlood = 10 * time.Millisecond
)

// Run looks after exit ports until ctx ends, and lets go of all consoles. Machines talk on, into their files.
func (c *Consoles) Run(ctx context.Context) {
	next := time.NewTimer(trimEvery)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			wait := trimEvery
			for id, s := range c.all() { // order: each for itself
				flood, err := runtime.TrimExit(s.exit)
				if flood {
					wait = trimFlood
				}
				if err != nil {
					c.log.V(1).Info("what a guest writes to its exit port cannot be bounded", "container", id, "error", err.Error())
				}
			}
			next.Reset(wait)
		case <-ctx.Done():
			for _, s := range c.all() { // order: all
				s.stop()
				<-s.done
			}
			return
		}
	}
}

func (c *Consoles) all() map[string]*served {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]*served, len(c.open))
	for id, s := range c.open { // order: a copy
		out[id] = s
	}
	return out
}

func (c *Consoles) get(id string) (*served, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.open[id]; s != nil {
		return s, nil
	}
	return nil, vm.Errorf(vm.Unavailable, "console of container %s: it is not open", id)
}

// Open is runtime.Consoles', as are the other methods.
func (c *Consoles) Open(_ context.Context, id string, paths domain.Paths, log string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[id] != nil {
		return nil
	}
	made, err := console.Open(console.Options{
		Pipe: paths.Serial, State: paths.Serial + ".state", Owner: c.owner, Log: log, Now: time.Now, Logger: c.log.WithValues("container", id),
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &served{Console: made, exit: paths.Exit, stop: stop, done: make(chan struct{})}
	c.open[id] = s
	go func() {
		defer close(s.done)
		made.Run(ctx)
	}()
	return nil
}

// Reopen goes on with a new log file.
func (c *Consoles) Reopen(ctx context.Context, id string) error {
	s, err := c.get(id)
	if err != nil {
		return err
	}
	return s.Console.Reopen(ctx)
}

// Attach connects a person.
func (c *Consoles) Attach(ctx context.Context, id string, stdin io.Reader, stdout io.Writer) error {
	s, err := c.get(id)
	if err != nil {
		return err
	}
	return s.Console.Attach(ctx, stdin, stdout)
}

// Close writes what is left. A console whose log cannot be written is let go of too: what it said stays in its file until the container goes.
func (c *Consoles) Close(ctx context.Context, id string) error {
	c.mu.Lock()
	s := c.open[id]
	delete(c.open, id)
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	err := s.Finish(ctx)
	s.stop()
	<-s.done
	return err
}

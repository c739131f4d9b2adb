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
	stop context.CancelFunc
	done chan struct{}
}

var _ runtime.Consoles = (*Consoles)(nil)

// NewConsoles has no console open. owner is QEMU's user; nil where that is the one who runs this.
func NewConsoles(owner *console.Owner, log logr.Logger) *Consoles {
	return &Consoles{owner: owner, log: log, open: map[string]*served{}}
}

// End lets go of all consoles. Machines talk on, into their files.
func (c *Consoles) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.open { // order: all
		s.stop()
		<-s.done
		delete(c.open, id)
	}
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
	s := &served{Console: made, stop: stop, done: make(chan struct{})}
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

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
)

// ErrEnded is the failure of a role that returned without an error before it was asked to.
var ErrEnded = errors.New("ended by itself")

// Group runs named roles in one process: all of them, or none.
type Group struct {
	// Grace bounds how long Run waits for the roles to end once they were asked; 0 means 10 s.
	Grace time.Duration
	// Await, if set, is waited for before the roles begin, but for those of AddEarly. Its error is Run's.
	Await func(context.Context) error

	roles []role
}

type role struct {
	name  string
	run   func(context.Context) error
	early bool
}

// Add names a role. Its function runs until its context ends and then returns soon; its context carries a logger of the role's
// name. Returning earlier, with or without an error, stops the whole group.
func (g *Group) Add(name string, run func(context.Context) error) {
	g.roles = append(g.roles, role{name: name, run: run})
}

// AddEarly names a role that does not wait for Await.
func (g *Group) AddEarly(name string, run func(context.Context) error) {
	g.roles = append(g.roles, role{name: name, run: run, early: true})
}

// Run starts every role and waits. It returns nil when ctx ended and all roles followed in time. Otherwise the error names each
// role that failed and each that did not end within the grace; the latter are still running, and the caller should exit.
func (g *Group) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	if len(g.roles) == 0 {
		return errors.New("no role to run")
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	type end struct {
		index int
		err   error
	}
	// Buffered, so that a role that ends after the grace does not wait for a reader.
	ends := make(chan end, len(g.roles))
	begin, awaited := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		if g.Await != nil {
			err = g.Await(running)
		}
		if err == nil && running.Err() == nil {
			close(begin)
		}
		awaited <- err
	}()
	for i, r := range g.roles {
		go func() {
			if !r.early {
				select {
				case <-begin:
				case <-running.Done():
					ends <- end{i, nil}
					return
				}
			}
			ends <- end{i, r.run(logr.NewContext(running, log.WithName(r.name)))}
		}()
	}
	grace := g.Grace
	if grace == 0 {
		grace = 10 * time.Second
	}
	var failures []error
	var deadline <-chan time.Time
	alive := make(map[int]bool, len(g.roles))
	for i := range g.roles {
		alive[i] = true
	}
	asked := ctx.Done()
	for len(alive) > 0 {
		select {
		case e := <-ends:
			delete(alive, e.index)
			name := g.roles[e.index].name
			early := running.Err() == nil
			switch {
			case e.err == nil && early:
				failures = append(failures, fmt.Errorf("role %s: %w", name, ErrEnded))
			case e.err != nil && (early || !errors.Is(e.err, context.Canceled)):
				failures = append(failures, fmt.Errorf("role %s: %w", name, e.err))
			}
			if early {
				log.Info("stopping: a role ended", "role", name, "error", fmt.Sprint(e.err))
				stop()
			}
		case err := <-awaited:
			if err != nil && running.Err() == nil {
				failures = append(failures, err)
				stop()
			}
		case <-asked:
			log.Info("stopping: asked to")
			asked = nil
		case <-deadline:
			var late []string
			for i, r := range g.roles {
				if alive[i] {
					late = append(late, r.name)
				}
			}
			failures = append(failures, fmt.Errorf("did not end within %s: %s", grace, strings.Join(late, ", ")))
			return errors.Join(failures...)
		}
		if running.Err() != nil && deadline == nil {
			timer := time.NewTimer(grace)
			defer timer.Stop()
			deadline = timer.C
		}
	}
	return errors.Join(failures...)
}

// SignalContext returns a context that ends at the first SIGINT or SIGTERM. A second signal kills the process at once, so that a
// stop that hangs can be cut short from the keyboard.
func SignalContext(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

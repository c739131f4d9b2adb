package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm"
)

// follow keeps records as true as the hypervisor's events, until ctx ends.
func (s *Server) follow(ctx context.Context) {
	for ctx.Err() == nil {
		events, err := s.Hypervisor.Events(ctx)
		if err == nil {
			s.away.Store(nil)
			s.lookAll()
			s.start(func() {
				if err := s.mend(ctx); err != nil {
					s.log.V(1).Info("not everything could be reconciled", "error", err.Error())
				}
			})
			for uuid := range events {
				s.mu.RLock()
				c := s.machines[uuid]
				s.mu.RUnlock()
				if c != nil {
					s.look(c)
				}
			}
			err = vm.Errorf(vm.Unavailable, "the hypervisor's events have ended")
		}
		if ctx.Err() != nil {
			return
		}
		why := short(err.Error())
		if s.away.Swap(&why) == nil {
			s.log.Info("the hypervisor is away", "error", why)
		}
		select {
		case <-time.After(s.opt.Retry):
		case <-ctx.Done():
		}
	}
}

// lookAll looks at all machines that ran, after events may have been missed.
func (s *Server) lookAll() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, c := range s.containers {
		if c.rec.Load().ran() {
			s.look(c)
		}
	}
}

// look has somebody look whether a machine has ended. It does not wait. There is one who looks for each container, and however often something
// happens while they do, they look once more.
func (s *Server) look(c *containerState) {
	c.poke.Lock()
	defer c.poke.Unlock()
	c.poked = true
	if c.looking || s.ctx.Err() != nil {
		return
	}
	c.looking = true
	s.start(func() {
		for {
			c.poke.Lock()
			if !c.poked || s.ctx.Err() != nil {
				c.looking = false
				c.poke.Unlock()
				return
			}
			c.poked = false
			c.poke.Unlock()
			if err := s.check(s.ctx, c); err != nil && s.ctx.Err() == nil {
				s.log.V(1).Info("whether a machine has ended is not known", "container", c.rec.Load().ID, "error", err.Error())
			}
		}
	})
}

// check asks for the state of a machine that ran, and records its end. What an event said is not looked at: it may be old.
func (s *Server) check(ctx context.Context, c *containerState) error {
	rec := c.rec.Load()
	if !rec.ran() {
		return nil
	}
	var m Machine
	err := s.do(ctx, "state", func(ctx context.Context) (err error) {
		m, err = s.Hypervisor.Machine(ctx, rec.UUID)
		return err
	})
	switch {
	case err != nil && vm.KindOf(err) == vm.NotFound, err == nil && m.ContainerID != rec.ID:
		m = Machine{}
	case err != nil:
		return err
	case m.State != Off:
		return nil
	}
	return s.finish(ctx, c, m)
}

// finish records how a machine ended, once. What it says: the guest's own word first, then the hypervisor's.
func (s *Server) finish(ctx context.Context, c *containerState, m Machine) error {
	c.finishing.Lock() // who destroyed it and who was told of its end come here at once
	defer c.finishing.Unlock()
	rec := c.rec.Load()
	if !rec.live() {
		return nil
	}
	// The log is whole before anybody can know that the machine has ended: also with what was said while no process of ours was there.
	if err := s.do(ctx, "console", func(ctx context.Context) error {
		return errors.Join(s.Consoles.Open(ctx, rec.ID, rec.Domain.Paths, rec.Domain.LogPath), s.Consoles.Close(ctx, rec.ID))
	}); err != nil {
		s.log.Error(err, "the end of a log may be missing", "container", rec.ID)
	}
	var text []byte
	if err := s.do(ctx, "exit code", func(ctx context.Context) (err error) {
		text, err = s.Folders.ExitText(ctx, rec.ID)
		return err
	}); err != nil {
		if vm.KindOf(err) == vm.Unavailable {
			return err
		}
		s.log.Error(err, "the guest's exit code cannot be read", "container", rec.ID)
	}
	code, reason, message := verdict(text, m.Why)
	if _, said := exitCode(text); !said { // one that has said how it ends has nothing to go on with
		kept, err := s.keep(ctx, rec)
		if err != nil {
			return err
		}
		if kept.reason != "" {
			code, reason, message = kept.code, kept.reason, kept.message
		}
	}
	err := s.saveContainer(ctx, c, func(r *Container) error {
		if !r.live() {
			return errUnchanged
		}
		if r.Started.IsZero() {
			r.Started = r.Created
		}
		r.Phase, r.Finished, r.ExitCode, r.Reason, r.Message, r.Domain = Exited, s.Clock(), code, reason, message, nil
		return nil
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	if err != nil {
		return err
	}
	if rec.Suspending {
		if err := s.States.Forget(memoryFile(rec.Domain)); err != nil {
			s.log.Error(err, "a machine's memory stays on the node until its container is removed", "container", rec.ID)
		}
	}
	s.announce(c.box, rec.ID, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	if err := s.forget(ctx, c); err != nil {
		s.log.V(1).Info("a machine that has ended could not be undefined yet", "container", rec.ID, "error", err.Error())
	}
	return nil
}

// verdict is what a machine's end means: exit code, reason, and what more there is to say.
func verdict(text []byte, why Why) (code int32, reason, message string) {
	if code, ok := exitCode(text); ok {
		if code == 0 {
			return 0, "Completed", ""
		}
		return code, "Error", ""
	}
	if len(bytes.TrimSpace(text)) > 0 {
		message = fmt.Sprintf("the guest wrote %q to its port dev.muster.exit, which is no number from 0 to 255", text)
	}
	switch why {
	case PoweredOff:
		return 0, "Completed", message
	case Destroyed:
		return 137, "Killed", message
	case Crashed:
		return 139, "Crashed", message
	case Unknown:
	}
	if message == "" {
		message = "nobody saw how the machine ended: the node or the hypervisor went down"
	}
	return 137, "Lost", message
}

// exitCode reads the first line of what a guest wrote: a number from 0 to 255 in decimal, blanks around it allowed.
func exitCode(text []byte) (int32, bool) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	n, err := strconv.ParseUint(string(bytes.Trim(line, " \t\r")), 10, 8)
	return int32(n), err == nil
}

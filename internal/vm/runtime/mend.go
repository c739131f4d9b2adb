package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/network"
)

// atOnce is how many pods are mended at the same time.
const atOnce = 16

// known asks every part what it has, and then reads the records. A part that does not answer is left out, and is in the error.
func (s *Server) known(ctx context.Context) (Known, error) {
	var k Known
	var errs []error
	ask := func(what string, f func(context.Context) error) {
		if err := s.do(ctx, what, f); err != nil {
			errs = append(errs, err)
		}
	}
	ask("machines", func(ctx context.Context) error {
		got, err := s.Hypervisor.List(ctx)
		if err == nil {
			k.Machines = append([]Machine{}, got...)
		}
		return err
	})
	ask("networks", func(ctx context.Context) error {
		got, err := s.Networks.List(ctx)
		if err == nil {
			k.Networks = []string{}
			for _, n := range got {
				k.Networks = append(k.Networks, n.ID)
			}
		}
		return err
	})
	for _, part := range []struct {
		what string
		list func(context.Context) ([]string, error)
		to   *[]string
	}{{"volumes", s.Volumes.List, &k.Volumes}, {"folders", s.Folders.List, &k.Folders}} {
		ask(part.what, func(ctx context.Context) (err error) {
			*part.to, err = part.list(ctx)
			return err
		})
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, box := range s.sandboxes {
		k.Sandboxes = append(k.Sandboxes, box.rec.Load())
	}
	for _, c := range s.containers {
		k.Containers = append(k.Containers, c.rec.Load())
	}
	return k, errors.Join(errs...)
}

// mend reconciles. Pods that somebody is at work on are left to them. What fails is tried again by the next mend.
func (s *Server) mend(ctx context.Context) error {
	select {
	case s.mending <- struct{}{}:
		defer func() { <-s.mending }()
	case <-ctx.Done():
		return ctx.Err()
	}
	k, err := s.known(ctx)
	errs := []error{err}
	groups := map[string][]Step{} // what has to be done in order
	var order []string
	for _, step := range Reconcile(k) {
		group := step.SandboxID // what is nobody's is one group: a machine has to go before the network and the disks that it uses
		if groups[group] == nil {
			order = append(order, group)
		}
		groups[group] = append(groups[group], step)
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	tokens := make(chan struct{}, atOnce)
	for _, group := range order {
		tokens <- struct{}{}
		wait.Go(func() {
			defer func() { <-tokens }()
			for _, step := range groups[group] {
				if err := s.take(ctx, step); err != nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("%s %s: %w", step.Verb, step.ID, err))
					mu.Unlock()
				}
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// take does one step, if it is still called for.
func (s *Server) take(ctx context.Context, step Step) error {
	if step.SandboxID == "" {
		return s.discard(ctx, step)
	}
	box := s.sandbox(step.SandboxID)
	if box == nil || !s.tryHold(box) {
		return nil
	}
	defer s.free(box)
	switch phase := box.rec.Load().Phase; step.Verb {
	case DropSandbox:
		if phase == Creating {
			return s.dropSandbox(ctx, box)
		}
		return nil
	case RemoveSandbox:
		if phase == Removing {
			return s.removeSandbox(ctx, box)
		}
		return nil
	case StopSandbox:
		if phase == Ready { // its network may have come since the parts were asked
			k, err := s.Networks.List(ctx)
			if err != nil || slices.ContainsFunc(k, func(n network.Listed) bool { return n.ID == step.ID }) {
				return err
			}
		}
		return s.stopSandbox(ctx, box)
	}
	c := s.container(step.ID)
	if c == nil {
		return nil
	}
	rec := c.rec.Load()
	switch step.Verb {
	case RemoveContainer:
		if rec.Phase == Creating || rec.Phase == Removing {
			return s.removeContainer(ctx, c)
		}
	case Settle:
		if rec.Phase == Starting {
			return s.settle(ctx, c)
		}
	case Keep:
		if rec.ran() {
			return s.do(ctx, "console", func(ctx context.Context) error {
				return s.Consoles.Open(ctx, rec.ID, rec.Domain.Paths, rec.Domain.LogPath)
			})
		}
	case Finish:
		if rec.Suspending { // to put it on its claim takes its time, for which other pods do not wait
			s.look(c)
			return nil
		}
		return s.check(ctx, c)
	case Forget:
		if rec.Phase == Exited {
			return s.forget(ctx, c)
		}
	}
	return nil
}

// discard takes away what is nobody's.
func (s *Server) discard(ctx context.Context, step Step) (err error) {
	defer func() {
		if err == nil && s.opt.Discarded != nil {
			s.opt.Discarded(step.Verb)
		}
	}()
	s.log.Info("nobody's", "verb", string(step.Verb), "id", step.ID)
	return s.do(ctx, string(step.Verb), func(ctx context.Context) error {
		switch step.Verb {
		case Kill:
			if m, err := s.Hypervisor.Machine(ctx, step.ID); err != nil || s.container(m.ContainerID) != nil {
				return err
			}
			if err := s.Hypervisor.Destroy(ctx, step.ID); err != nil && vm.KindOf(err) != vm.NotFound {
				return err
			}
			return s.Hypervisor.Undefine(ctx, step.ID)
		case Release:
			return s.Networks.Release(ctx, step.ID)
		case Teardown:
			return s.Volumes.Teardown(ctx, step.ID)
		case Clear:
			return s.Folders.Remove(ctx, step.ID)
		}
		return nil
	})
}

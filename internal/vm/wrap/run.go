package wrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Shell is what Run needs of the world.
type Shell struct {
	// Fetch takes a pod's taps from the network process. The files are the caller's, and each card's Descriptor is its place among them.
	Fetch func(ctx context.Context, k Key) ([]Card, []*os.File, error)
	// Emulators are where a probe's QEMU is looked for, in order; nil: DefaultEmulators.
	Emulators []string
	// Exec becomes another program and returns only if it cannot; nil: execve.
	Exec func(path string, argv, env []string) error
	// Patience bounds Fetch; 0: 20 s, which is less than libvirt waits for QEMU.
	Patience time.Duration
}

// DefaultEmulators are where distributions put QEMU.
func DefaultEmulators() []string {
	return []string{"/usr/bin/qemu-system-x86_64", "/usr/libexec/qemu-kvm", "/usr/bin/qemu-kvm", "/usr/bin/kvm"}
}

// Run becomes QEMU. It returns only an error, with nothing that was fetched left open.
func Run(ctx context.Context, s Shell, argv, env []string) error {
	r, err := Read(env)
	if err != nil {
		return err
	}
	fallback := ""
	if r.Emulator == "" {
		if s.Emulators == nil {
			s.Emulators = DefaultEmulators()
		}
		if i := slices.IndexFunc(s.Emulators, isFile); i >= 0 {
			fallback = s.Emulators[i]
		}
	} else if err := notMyself(r.Emulator); err != nil {
		return fmt.Errorf("%s: %q: %w", EnvEmulator, r.Emulator, err)
	}
	var cards []Card
	if r.Key != nil {
		fetched, files, err := s.fetch(ctx, *r.Key)
		if err != nil {
			return fmt.Errorf("%s: network cards of pod %s: %w", EnvNetKey, r.Key.ID, err)
		}
		defer func() {
			for _, f := range files {
				_ = f.Close()
			}
		}()
		for _, card := range fetched {
			if card.Descriptor < 0 || card.Descriptor >= len(files) {
				return fmt.Errorf("%s: card %.32q: there is no descriptor %d among %d", EnvNetKey, card.Name, card.Descriptor, len(files))
			}
			card.Descriptor = int(files[card.Descriptor].Fd())
			cards = append(cards, card)
		}
	}
	c, err := Build(r, argv, cards, fallback)
	if err != nil {
		return err
	}
	return s.become(c)
}

func (s Shell) fetch(ctx context.Context, k Key) ([]Card, []*os.File, error) {
	if s.Fetch == nil {
		return nil, nil, errors.New("nobody is there to fetch them")
	}
	if s.Patience == 0 {
		s.Patience = 20 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	return s.Fetch(ctx, k)
}

func (s Shell) become(c Command) error {
	// The thread that calls execve is the process's only one afterwards, and its CPUs are QEMU's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if len(c.CPUs) > 0 {
		if err := setCPUs(c.CPUs); err != nil {
			return fmt.Errorf("%s: none of the CPUs %v can be used here: %w", EnvCPUSets, c.CPUs, err)
		}
	}
	for _, fd := range c.Inherit {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("descriptor %d: %w", fd, err)
		}
	}
	if s.Exec == nil {
		s.Exec = syscall.Exec
	}
	if err := s.Exec(c.Path, c.Argv, c.Env); err != nil {
		return fmt.Errorf("%s: %q cannot be run: %w", EnvEmulator, c.Path, err)
	}
	return nil
}

// setCPUs says where the calling thread may run.
func setCPUs(list []int) error {
	var set unix.CPUSet
	for _, cpu := range list {
		set.Set(cpu)
	}
	return unix.SchedSetaffinity(0, &set)
}

func isFile(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular()
}

// notMyself keeps a wrapper from becoming itself for ever.
func notMyself(path string) error {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return err
	}
	fi, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !fi.Mode().IsRegular():
		return errors.New("must be a regular file")
	case os.SameFile(self, fi):
		return errors.New("must be QEMU, and is this program")
	}
	return nil
}

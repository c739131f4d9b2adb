// Package up keeps processes running: it starts them one after another, each when the one before has said that it is ready, starts again what ends, and ends
// all of them when it is told to.
//
// A scenario. Three processes are started. The second dies: it is started again at once; as it dies again and again, after a longer pause each
// time, up to ten seconds, while the others run on. Then up is told to end: the last one is told first, and each has its grace.
package up

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
)

// Process is what is kept running. It writes a line that begins with "ready" to its output when others may use it.
type Process struct {
	Name string
	// Argv is the program and its arguments.
	Argv []string
}

// Options are a group's settings. The zero value of each means its default.
type Options struct {
	// Pause is how long to wait before a process that has ended is started again; it doubles up to Most, and is as at first for one that had run
	// for Most. Defaults 100 ms, 10 s.
	Pause, Most time.Duration
	// Grace is how long a process has to end before it is killed. Default 30 s.
	Grace time.Duration
	// Errors is where what processes write goes, but for "ready". Default this one's.
	Errors io.Writer
	// Started, if set, is told the name of each process that has been started; by several at once.
	Started func(process string)
	// Ready is called when all have said so for the first time.
	Ready func()
	Log   logr.Logger
}

// Run keeps processes running until ctx ends, and then ends them, the last one first. Should this process be killed, the kernel tells them to end.
func Run(ctx context.Context, processes []Process, o Options) error {
	for _, d := range []struct {
		value *time.Duration
		is    time.Duration
	}{{&o.Pause, 100 * time.Millisecond}, {&o.Most, 10 * time.Second}, {&o.Grace, 30 * time.Second}} {
		if *d.value <= 0 {
			*d.value = d.is
		}
	}
	if o.Errors == nil {
		o.Errors = os.Stderr
	}
	var ends []func()
	defer func() {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i]()
		}
	}()
	for _, p := range processes {
		if len(p.Argv) == 0 {
			return fmt.Errorf("process %s: it has no command", p.Name)
		}
		ready, ended := make(chan struct{}), make(chan struct{})
		own, end := context.WithCancel(context.WithoutCancel(ctx))
		go func() {
			defer close(ended)
			o.keep(own, p, ready)
		}()
		ends = append(ends, func() { end(); <-ended })
		select {
		case <-ready:
		case <-ctx.Done():
			return nil
		}
	}
	if o.Ready != nil {
		o.Ready()
	}
	<-ctx.Done()
	return nil
}

// keep has one process running until ctx ends. ready is closed when it has said so for the first time.
func (o *Options) keep(ctx context.Context, p Process, ready chan struct{}) {
	// The kernel tells a process of its parent's end when the thread ends that started it: this one stays until the process has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for pause := o.Pause; ctx.Err() == nil; pause = min(2*pause, o.Most) {
		began := time.Now()
		err := o.once(ctx, p, func() {
			if ready != nil {
				close(ready)
				ready = nil
			}
		})
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= o.Most {
			pause = o.Pause
		}
		if err == nil {
			err = errors.New("it ended by itself")
		}
		o.Log.Error(err, "A process has ended and is started again", "process", p.Name, "after", pause.String())
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
	}
}

// once runs a process until it ends, or ctx does and it is told to.
func (o *Options) once(ctx context.Context, p Process, ready func()) error {
	c := exec.CommandContext(ctx, p.Argv[0], p.Argv[1:]...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = o.Grace
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true} // a terminal's Ctrl-C is for up alone
	said := make(chan bool, 1)
	// Pipes of our own: Wait must not wait for those that a process has left behind with its output, such as file servers.
	for _, w := range []struct {
		to   *io.Writer
		line func(string) bool // whether it is not to be passed on
	}{
		{&c.Stdout, func(line string) bool {
			if !strings.HasPrefix(line, "ready") {
				return false
			}
			select {
			case said <- true:
			default:
			}
			return true
		}},
		{&c.Stderr, func(string) bool { return false }},
	} {
		out, in, err := os.Pipe()
		if err != nil {
			return err
		}
		defer in.Close() // after the process has its own
		*w.to = in
		go func() {
			defer out.Close()
			lines := bufio.NewReaderSize(out, 16<<10)
			for {
				line, _, err := lines.ReadLine()
				if err != nil {
					return
				}
				if !w.line(string(line)) {
					_, _ = fmt.Fprintf(o.Errors, "%s\n", line)
				}
			}
		}()
	}
	if err := c.Start(); err != nil {
		return err
	}
	if o.Started != nil {
		o.Started(p.Name)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for {
		select {
		case <-said:
			ready()
		case err := <-ended:
			return err
		}
	}
}

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// restartMin and restartMax bound the wait before a container that ended is started again.
	restartMin = 200 * time.Millisecond
	restartMax = 10 * time.Second
	// steady is after how long a container's next wait is the shortest again.
	steady = time.Minute
)

// work is the processes of one pod.
type work struct {
	term, kill func() // ask to end, once; end
	commands   []*command
	done       chan struct{}
	code       int32 // of the first container that ended badly, or 0; valid when done is closed
}

// over says whether every process has ended for good.
func (w *work) over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// faces are what the processes look like at this moment.
func (w *work) faces() []face {
	out := make([]face, 0, len(w.commands))
	for _, c := range w.commands {
		out = append(out, c.look())
	}
	return out
}

// face is what a status tells of a process.
type face struct {
	name string
	// running: it is there. started and ready: its probes say so. Of a process that is not there all three are false.
	running, started, ready bool
	restarts                int32
	since                   time.Time // when it was started, if it is there
	begun, ended            time.Time // of the run before, if there was one
	code                    int32     // of that run
}

// command is one container's process.
type command struct {
	name      string
	argv, env []string
	log       string // file
	restart   corev1.RestartPolicy
	grace     time.Duration // between SIGTERM and SIGKILL when it is restarted for being ill
	changed   func()        // told that the face has changed; nil for nobody

	startup, readiness, liveness *probe // nil for none

	mu   sync.Mutex
	face face
}

// look is what it looks like.
func (c *command) look() face {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.face
	f.name = c.name
	return f
}

// show changes what it looks like, and tells.
func (c *command) show(change func(*face)) {
	c.mu.Lock()
	old := c.face
	change(&c.face)
	same := old == c.face
	c.mu.Unlock()
	if !same && c.changed != nil {
		c.changed()
	}
}

// begin runs the commands of a pod until each has ended for good, and then has a worker look at the pod. The end of ctx kills them.
func (p *Player) begin(ctx context.Context, pod types.UID, commands []*command) *work {
	ending, end := context.WithCancel(ctx)
	dying, die := context.WithCancel(ctx)
	w := &work{term: end, kill: die, commands: commands, done: make(chan struct{})}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, c := range commands {
		all.Go(func() {
			code := c.run(ending, dying)
			mu.Lock()
			defer mu.Unlock()
			if w.code == 0 {
				w.code = code
			}
		})
	}
	p.works.Go(func() {
		all.Wait()
		end()
		die()
		close(w.done)
		p.queue.Add(task{pod: pod})
	})
	return w
}

// run runs the process, again and again as its restart policy says, until ending ends, which the process is told by SIGTERM, or
// dying, which kills it. It returns the last exit code, as a shell counts.
func (c *command) run(ending, dying context.Context) int32 {
	for wait := restartMin; ; wait = min(2*wait, restartMax) {
		begun := time.Now()
		code := c.once(ending, dying)
		c.show(func(f *face) {
			*f = face{restarts: f.restarts, begun: begun, ended: time.Now(), code: code}
		})
		again := c.restart == corev1.RestartPolicyAlways || c.restart == corev1.RestartPolicyOnFailure && code != 0
		if !again || ending.Err() != nil {
			return code
		}
		if time.Since(begun) > steady {
			wait = restartMin
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			c.show(func(f *face) { f.restarts++ })
		case <-ending.Done():
			timer.Stop()
			return code
		}
	}
}

// once runs the process once, and ends it when a probe says that it is ill.
func (c *command) once(ending, dying context.Context) int32 {
	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 128
	}
	defer out.Close()
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = c.env, out, out, filepath.Dir(c.log)
	// Should the lab die, so does the process: the signal comes when the thread that started it ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	begun, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		begun <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-begun; err != nil {
		fmt.Fprintf(out, "start %s: %v\n", c.argv[0], err)
		return 128
	}
	c.show(func(f *face) { f.running, f.since = true, time.Now() })
	probing, stopProbing := context.WithCancel(ending)
	ill := make(chan error, 1)
	var probes sync.WaitGroup
	probes.Go(func() { c.attend(probing, func(err error) { ill <- err }) })
	defer probes.Wait()
	defer stopProbing()
	asked := ending.Done()
	var late <-chan time.Time
	for {
		select {
		case err := <-ended:
			return exitCode(err)
		case err := <-ill:
			fmt.Fprintf(out, "muster-lab: it is restarted: %v\n", err)
			_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if it has just ended
			timer := time.NewTimer(c.grace)
			defer timer.Stop()
			ill, late = nil, timer.C
		case <-late:
			late = nil
			_ = cmd.Process.Kill()
		case <-asked:
			_ = cmd.Process.Signal(syscall.SIGTERM)
			asked = nil
		case <-dying.Done():
			_ = cmd.Process.Kill()
			return exitCode(<-ended)
		}
	}
}

func exitCode(err error) int32 {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		return 128
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int32(status.Signal())
	}
	return int32(exit.ExitCode())
}

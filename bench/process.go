package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/lab"
)

// endGrace is how long a process may take to end before it is killed.
const endGrace = 20 * time.Second

// child is a process that is measured.
type child struct {
	name, log string
	cmd       *exec.Cmd
	done      chan struct{} // closed when it has ended
	err       error         // that, and the end of its log; valid then
	wanted    atomic.Bool   // is its end
}

// startChild starts a program, which says what it does to a file.
func startChild(name, log, path string, args ...string) (*child, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := &child{name: name, log: log, cmd: exec.Command(path, args...), done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = f, f
	// It dies with this program: see main.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		how := "by itself"
		if err := c.cmd.Wait(); err != nil {
			how = err.Error()
		}
		c.err = fmt.Errorf("%s has ended (%s); the end of its log:\n%s", c.name, how, tail(c.log, 2000))
		close(c.done)
	}()
	return c, nil
}

// signal sends one and waits for the end, which a further SIGKILL brings about after a grace.
func (c *child) signal(s syscall.Signal) {
	c.wanted.Store(true)
	_ = c.cmd.Process.Signal(s) // fails only if it has ended
	select {
	case <-c.done:
	case <-time.After(endGrace):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

func (c *child) end() { c.signal(syscall.SIGTERM) }

func (c *child) pid() int { return c.cmd.Process.Pid }

// ended is the error of a process that should run and does not; nil while it does.
func (c *child) ended() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// tail is the end of a file, at most so many bytes.
func tail(path string, most int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-most), io.SeekStart)
	}
	text, _ := io.ReadAll(f)
	return string(text)
}

// volcanoControllers is the role that stands for Volcano's controllers.
const volcanoControllers = "vc-controller-manager"

// muster starts one role of Muster, or all of them, with further flags. With a port it serves profiles there.
func (b *bench) muster(l *lab.Lab, role string, profiler int, more ...string) (*child, error) {
	args := []string{"run", role, "--kubeconfig", l.Kubeconfig(), "--qps", clientQPS, "--burst", clientBurst}
	switch role {
	case "all":
		args = append(args, "--listen-address", "0", "--health-probe-bind-address", "0")
	case volcanoControllers:
		args = append(args, "--listen-address", "0", "--healthz-address", "0")
	default:
		args = append(args, "--metrics-bind-address", "0", "--health-probe-bind-address", "0")
	}
	args = append(args, more...)
	if profiler > 0 {
		args = append(args, "--enable-profiler", "--profiler-port", strconv.Itoa(profiler))
	}
	return startChild("muster run "+role, filepath.Join(l.Dir(), role+".log"), filepath.Join(b.bin, "muster"), args...)
}

// The same pace for both sides.
const clientQPS, clientBurst = "3000", "6000"

// kubeScheduler starts a stock kube-scheduler, with feature gates besides its own defaults; "" for none.
func (b *bench) kubeScheduler(l *lab.Lab, gates string) (*child, error) {
	args := []string{"kube-scheduler", "--kubeconfig", l.Kubeconfig(), "--", "--kube-api-qps=" + clientQPS, "--kube-api-burst=" + clientBurst}
	if gates != "" {
		args = append(args, "--feature-gates="+gates)
	}
	return startChild("kube-scheduler", filepath.Join(l.Dir(), "kube-scheduler.log"), filepath.Join(b.bin, "muster-lab"), args...)
}

// ticks is how many a second of processor time has in /proc.
const ticks = 100

// cpuOf is the processor time of a process so far, in seconds; 0 if it is gone.
func cpuOf(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) / ticks
}

// memoryOf is a figure of a process's status in MiB: VmRSS is what it has, VmHWM the most it had; 0 if it is gone.
func memoryOf(pid int, key string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == key+":" {
			kib, _ := strconv.ParseFloat(f[1], 64)
			return kib / 1024
		}
	}
	return 0
}

// freePort is one of this machine's that nobody listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// profileSeconds is how much of a run the processor profiles show, from its start on.
const profileSeconds = 20

// keep writes what a getter answers to a file of the profiles' folder.
func (t *trial) keep(name string, get func(path string) ([]byte, error), path string) error {
	text, err := get(path)
	if err == nil {
		err = os.WriteFile(filepath.Join(t.b.profile, t.tag+"-"+name), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("profile %s: %w", name, err)
	}
	return nil
}

// getters ask for a path of the lab's API server, and of the profilers of Muster, of Volcano's controllers and of the role beside it.
func (t *trial) getters(ctx context.Context) map[string]func(string) ([]byte, error) {
	out := map[string]func(string) ([]byte, error){"lab": func(path string) ([]byte, error) {
		path, query, _ := strings.Cut(path, "?")
		r := t.lab.Client().Discovery().RESTClient().Get().AbsPath(path)
		if k, v, ok := strings.Cut(query, "="); ok {
			r = r.Param(k, v)
		}
		return r.DoRaw(ctx)
	}}
	for name, port := range map[string]int{sideMuster: t.port, volcanoControllers: t.controllersPort, install.UI: t.besidePort} { // order: into a map
		if port > 0 {
			out[name] = func(path string) ([]byte, error) {
				return get(ctx, fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
			}
		}
	}
	return out
}

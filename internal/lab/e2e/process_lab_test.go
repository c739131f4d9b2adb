//go:build lab

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// binaryEnv names the environment variable that points the tests at a built muster.
const binaryEnv = "MUSTER_BINARY"

// TestMain builds muster, unless it was given.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // the watches of the tests themselves
	os.Exit(func() int {
		if os.Getenv(binaryEnv) != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "muster-proof-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "muster")
		build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, "../../../cmd/muster")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build muster: %v\n%s", err, out)
			return 1
		}
		if err := os.Setenv(binaryEnv, path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// process is a muster process that can be killed and started again.
type process struct {
	t          testing.TB
	role       string
	kubeconfig string
	args       []string
	address    string // of its probes and metrics
	log        string // file
	// kept has it started again when it ends by itself, as a Deployment does: a leader that cannot renew its Lease ends.
	kept bool

	mu      sync.Mutex
	cmd     *exec.Cmd
	ended   chan struct{} // closed when it has ended
	err     error         // how, valid then
	started int           // how often it was started
	asked   bool          // it was told to end since
}

// logsEnv names a directory in which what processes said is kept whole; without it, it goes with the test.
const logsEnv = "MUSTER_LAB_LOGS"

// freeAddress returns an address on which nobody listens, and on which nobody will by chance: a process is started later, and again. Ports
// that the kernel gives away, to listeners and to outgoing connections, begin at 32768 with Linux' default.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000))
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("there is no free port from 20000 to 31999")
	return ""
}

// newProcess prepares `muster run ROLE`; start starts it. Whatever still runs at the end of the test is killed.
func newProcess(t testing.TB, role, kubeconfig string, args ...string) *process {
	t.Helper()
	address := freeAddress(t)
	dir := t.TempDir()
	if keep := os.Getenv(logsEnv); keep != "" {
		var err error
		if dir, err = os.MkdirTemp(keep, strings.ReplaceAll(t.Name(), "/", "-")+"-"); err != nil {
			t.Fatal(err)
		}
	}
	p := &process{t: t, role: role, kubeconfig: kubeconfig, address: address, log: filepath.Join(dir, role+".log")}
	p.args = append([]string{"run", role, "--kubeconfig", kubeconfig, "--qps=-1"}, args...)
	switch role {
	case "scheduler":
		p.args = append(p.args, "--listen-address="+address)
	case "queue":
		p.args = append(p.args, "--metrics-listen-address="+address)
	case "vc-controller-manager":
		p.args = append(p.args, "--listen-address="+address, "--healthz-address="+address)
	case "all":
		p.args = append(p.args, "--listen-address="+address, "--health-probe-bind-address="+address)
	default:
		p.args = append(p.args, "--metrics-bind-address="+address, "--health-probe-bind-address="+address)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the end of what %s said:\n%s", role, p.tail(40))
		}
	})
	return p
}

// start starts the process; it does not wait for it to be ready.
func (p *process) start() {
	p.t.Helper()
	p.launch(false)
}

// launch starts the process; again, unless somebody has asked it to end since.
func (p *process) launch(again bool) {
	p.t.Helper()
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(os.Getenv(binaryEnv), p.args...)
	cmd.Stdout, cmd.Stderr = out, out
	// Should this test die, so does the process: the signal comes when the thread that started it ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	ended, begun := make(chan struct{}), make(chan error)
	p.mu.Lock()
	defer p.mu.Unlock()
	if again && p.asked {
		out.Close()
		return
	}
	p.cmd, p.ended, p.err, p.asked = cmd, ended, nil, false
	p.started++
	go func() {
		runtime.LockOSThread()
		defer out.Close()
		err := cmd.Start()
		begun <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		p.mu.Lock()
		p.err = err
		again := p.kept && !p.asked
		p.mu.Unlock()
		close(ended)
		if again {
			p.launch(true)
		}
	}()
	if err := <-begun; err != nil {
		p.t.Fatalf("start %s: %v", p.role, err)
	}
}

// signal sends a signal if the process runs, and returns a channel that is closed when it has ended.
func (p *process) signal(s syscall.Signal) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = true
	if p.cmd == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	select {
	case <-p.ended:
	default:
		if err := p.cmd.Process.Signal(s); err == nil && s == syscall.SIGSTOP { // fails only if it has just ended
			awaitStop(p.cmd.Process.Pid)
		}
	}
	return p.ended
}

// awaitStop waits until a child that was sent SIGSTOP has stopped: the thread that takes the signal may have to wait for a processor, and the
// others go on until it has one. It returns too if the child has ended.
func awaitStop(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// send sends a signal to a process that runs and is to go on.
func (p *process) send(t testing.TB, s syscall.Signal) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("send %s to %s: %v", s, p.role, err)
	}
}

// kill ends the process by SIGKILL and waits until it is gone.
func (p *process) kill() { <-p.signal(syscall.SIGKILL) }

// stop asks the process to end, and fails the test unless it does so in time and without an error.
func (p *process) stop(t testing.TB) time.Duration {
	t.Helper()
	since := time.Now()
	select {
	case <-p.signal(syscall.SIGTERM):
	case <-time.After(10 * time.Second):
		t.Errorf("%s did not end within 10 s of SIGTERM", p.role)
		p.kill()
	}
	took := time.Since(since)
	if err := p.exit(); err != nil {
		t.Errorf("%s ended with %v after SIGTERM", p.role, err)
	}
	return took
}

// exit is how the process ended.
func (p *process) exit() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// running says whether the process is there.
func (p *process) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// ready asks /readyz.
func (p *process) ready() error {
	if !p.running() {
		return errors.New(p.role + " does not run")
	}
	c := http.Client{Timeout: 2 * time.Second}
	resp, err := c.Get("http://" + p.address + "/readyz")
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: /readyz says %s", p.role, resp.Status)
	}
	return nil
}

// awaitReady waits until /readyz says yes.
func (p *process) awaitReady(t testing.TB) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for {
		err := p.ready()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s is not ready: %v\n%s", p.role, err, p.tail(40))
		}
	}
}

// tail is the end of what the process said.
func (p *process) tail(lines int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(bytes.TrimSpace(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

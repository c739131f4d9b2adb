package up

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

const patience = time.Minute

// TestMain lets the test's program be an up that is killed.
func TestMain(m *testing.M) {
	if fifo := os.Getenv("UP_TEST_FIFO"); fifo != "" {
		script := "trap 'echo bye >" + fifo + "; exit 0' TERM; echo ready; echo here >" + fifo + "; while :; do sleep 0.02; done"
		_ = Run(context.Background(), []Process{{Name: "child", Argv: []string{"sh", "-c", script}}}, Options{Log: logr.Discard()})
	}
	os.Exit(m.Run())
}

// TestKilled: where up itself is killed, what it has started is told to end.
func TestKilled(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "f")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fifo, os.O_RDWR, 0) // both, so that nobody waits to open it
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(f)
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "UP_TEST_FIFO="+fifo)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "here" {
		t.Errorf("the child says %q: %v", lines.Text(), lines.Err())
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // it says that it was killed
	if !lines.Scan() || lines.Text() != "bye" {
		t.Errorf("the child says %q: %v", lines.Text(), lines.Err())
	}
}

// paper is a writer that many write to, and that somebody waits for.
type paper struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
}

func (p *paper) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.news <- struct{}{}:
	default:
	}
	return p.text.Write(b)
}

func (p *paper) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Split(strings.TrimSpace(p.text.String()), "\n")
}

// wait waits until so many lines are there that begin so.
func (p *paper) wait(t *testing.T, prefix string, n int) {
	t.Helper()
	over := time.After(patience)
	for {
		if count(p.lines(), prefix) >= n {
			return
		}
		select {
		case <-p.news:
		case <-over:
			t.Fatalf("%q: not %d times in %q", prefix, n, p.lines())
		}
	}
}

func count(lines []string, prefix string) (n int) {
	for _, l := range lines {
		if strings.HasPrefix(l, prefix) {
			n++
		}
	}
	return n
}

// TestRun: one after another, again what ends, and all end, the last one first; the others are not disturbed.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "die")
	script := func(name, more string) Process {
		return Process{Name: name, Argv: []string{"sh", "-c", `trap 'echo "end ` + name + `"; exit 0' TERM; echo "begin ` + name + `"; ` + more + ` echo ready; while :; do sleep 0.02; done`}}
	}
	out := &paper{news: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	processes := []Process{script("a", ""), script("b", `if [ -e `+file+` ]; then rm `+file+`; exit 3; fi;`), script("c", `(sleep 1000 & echo child $! >&2);`)}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		done <- Run(ctx, processes, Options{Pause: time.Millisecond, Errors: out, Ready: func() { close(ready) }, Log: logr.Discard()})
	}()
	select {
	case <-ready:
	case <-time.After(patience):
		t.Fatalf("not ready: %q", out.lines())
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	out.wait(t, "end a", 1)
	for _, l := range out.lines() {
		if pid, ok := strings.CutPrefix(l, "child "); ok {
			n, err := strconv.Atoi(pid)
			if err != nil || syscall.Kill(n, syscall.SIGKILL) != nil {
				t.Errorf("what c left behind is not there: %s", l)
			}
		}
	}
	got := slices.DeleteFunc(out.lines(), func(l string) bool { return strings.HasPrefix(l, "child") })
	want := []string{"begin a", "begin b", "begin b", "begin c", "end c", "end b", "end a"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDeaf: a process that does not end when it is told to is killed.
func TestDeaf(t *testing.T) {
	t.Parallel()
	out := &paper{news: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	deaf := Process{Name: "deaf", Argv: []string{"sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.02; done"}}
	go func() {
		done <- Run(ctx, []Process{deaf}, Options{Grace: time.Millisecond, Errors: out, Ready: cancel, Log: logr.Discard()})
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	if err := Run(t.Context(), []Process{{Name: "none"}}, Options{}); err == nil || !strings.Contains(err.Error(), "process none") {
		t.Error(err)
	}
}

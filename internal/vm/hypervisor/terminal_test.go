package hypervisor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
)

// hostAgent is a guest agent whose guest is this machine: it does with processes and files what QEMU's does, whose file calls are C's, on descriptors that do not wait.
type hostAgent struct {
	path string // of the guest's programs
	mu   sync.Mutex
	ran  map[int64]*ran
	open map[int64]*opened
	next int64
	gone bool // it does not answer
}

type ran struct {
	cmd  *exec.Cmd
	err  bytes.Buffer
	done chan struct{}
}

type opened struct {
	file *os.File
	kept []byte // written and not flushed
}

func (h *hostAgent) Agent(_ context.Context, _, command string) (string, error) {
	var q struct {
		Execute   string
		Arguments struct {
			Path, Mode string
			Arg        []string
			PID        int64
			Handle     int64
			Count      int
			Text       string `json:"buf-b64"`
		}
	}
	if err := json.Unmarshal([]byte(command), &q); err != nil {
		return "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return "", vm.Errorf(vm.Unavailable, "the guest agent does not answer")
	}
	a := q.Arguments
	answer := func(v any) (string, error) {
		b, err := json.Marshal(map[string]any{"return": v})
		return string(b), err
	}
	switch q.Execute {
	case "guest-ping":
		return answer(map[string]any{})
	case "guest-exec":
		r := &ran{cmd: exec.Command(a.Path, a.Arg...), done: make(chan struct{})}
		r.cmd.Env, r.cmd.Stderr = []string{"PATH=" + h.path}, &r.err
		if err := r.cmd.Start(); err != nil {
			return "", err
		}
		go func() { _ = r.cmd.Wait(); close(r.done) }()
		h.ran[int64(r.cmd.Process.Pid)] = r
		return answer(map[string]any{"pid": r.cmd.Process.Pid})
	case "guest-exec-status":
		r := h.ran[a.PID]
		select {
		case <-r.done:
			return answer(map[string]any{"exited": true, "exitcode": max(r.cmd.ProcessState.ExitCode(), 0), "err-data": base64.StdEncoding.EncodeToString(r.err.Bytes())})
		default:
			return answer(map[string]any{"exited": false})
		}
	case "guest-file-open":
		flags := map[string]int{"r": os.O_RDONLY, "w": os.O_WRONLY | os.O_TRUNC}[a.Mode] | syscall.O_CLOEXEC
		fd, err := syscall.Open(a.Path, flags, 0) // it waits, as QEMU's does, and with it everybody
		if err != nil {
			return "", fmt.Errorf("failed to open file: %w", err)
		}
		if err := syscall.SetNonblock(fd, true); err != nil {
			return "", err
		}
		h.next++
		h.open[h.next] = &opened{file: os.NewFile(uintptr(fd), a.Path)}
		return answer(h.next)
	}
	f := h.open[a.Handle]
	if f == nil {
		return "", fmt.Errorf("handle '%d' has not been found", a.Handle)
	}
	switch q.Execute {
	case "guest-file-close":
		delete(h.open, a.Handle)
		return answer(map[string]any{})
	case "guest-file-write":
		b, err := base64.StdEncoding.DecodeString(a.Text)
		f.kept = append(f.kept, b...)
		if err != nil {
			return "", err
		}
		return answer(map[string]any{"count": len(b), "eof": false})
	case "guest-file-flush":
		raw, err := f.file.SyscallConn()
		if err != nil {
			return "", err
		}
		var got error
		if err := raw.Control(func(fd uintptr) { _, got = syscall.Write(int(fd), f.kept) }); err != nil || got != nil {
			return "", fmt.Errorf("failed to flush file: %w", errors.Join(err, got))
		}
		f.kept = nil
		return answer(map[string]any{})
	case "guest-file-read":
		b := make([]byte, a.Count)
		n, err := f.file.Read(b)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		return answer(map[string]any{"count": n, "buf-b64": base64.StdEncoding.EncodeToString(b[:n]), "eof": errors.Is(err, io.EOF)})
	}
	return "", fmt.Errorf("the command %s has not been found", q.Execute)
}

// programs is a folder with a guest's programs: a shell's usual ones, and some.
func programs(t *testing.T, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range append([]string{"sh", "mkdir", "mkfifo", "tty", "stty", "cat", "sleep", "rm", "env"}, more...) {
		path, err := exec.LookPath(name)
		if fixed := "/usr/bin/" + name; err == nil && isFile(fixed) {
			path = fixed // the first of a developer's path may be a script that needs more than a guest has
		}
		if err != nil {
			t.Skipf("NOT CHECKED: this machine has no %s: %v", name, err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func isFile(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular()
}

// screen is what a terminal shows.
type screen struct {
	mu   sync.Mutex
	text string
	more chan struct{}
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	s.text += string(b)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

// shows waits for a text, and forgets what was before its end.
func (s *screen) shows(t *testing.T, text string) {
	t.Helper()
	for end := time.After(2 * time.Minute); ; {
		s.mu.Lock()
		at := strings.Index(s.text, text)
		was := s.text
		if at >= 0 {
			s.text = s.text[at+len(text):]
		}
		s.mu.Unlock()
		if at >= 0 {
			return
		}
		select {
		case <-s.more:
		case <-end:
			t.Fatalf("the terminal shows %q, and not %q", was, text)
		}
	}
}

// TestTerminal is a person at a terminal in a guest, with each program that may open it: what is typed is echoed, ^C reaches the command, the size is the
// person's, the exit code the command's, and nothing of it stays.
func TestTerminal(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"script", "python3"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			atTerminal(t, &hostAgent{path: programs(t, by), ran: map[int64]*ran{}, open: map[int64]*opened{}})
		})
	}
	t.Run("QEMU's own agent", func(t *testing.T) {
		t.Parallel()
		atTerminal(t, qemuAgent(t))
	})
}

func atTerminal(t *testing.T, a Agent) {
	t.Helper()
	before := leftovers(t)
	typed, in := io.Pipe()
	type end struct {
		code int32
		err  error
	}
	show, sizes, ended := &screen{more: make(chan struct{}, 1)}, make(chan [2]uint16, 1), make(chan end, 1)
	go func() {
		code, err := Terminal{In: typed, Out: show, Sizes: sizes}.Exec(t.Context(), a, "u", []string{"sh", "-c", `PS1='> ' sh; echo "it's $? of" "$0"; exit 7`, "a 'b' $c"})
		ended <- end{code, err}
	}()
	types := func(text string) {
		if _, err := io.WriteString(in, text); err != nil {
			t.Error(err)
		}
	}
	sizes <- [2]uint16{100, 30}
	show.shows(t, "> ")
	types("echo he''llo; tty\n")
	show.shows(t, "echo he''llo; tty\r\nhello\r\n/dev/pts/")
	show.shows(t, "\r\n> ") // what is typed ahead of the prompt is shown ahead of it
	types("until [ \"$(stty size)\" = '30 100' ]; do sleep 0.1; done; echo si''zed\n")
	show.shows(t, "\r\nsized\r\n> ")
	types("cat\n")
	show.shows(t, "cat\r\n")
	types(strings.Repeat("y", 50) + "\n")
	show.shows(t, strings.Repeat("y", 50)+"\r\n"+strings.Repeat("y", 50)+"\r\n")
	types("\x03")
	show.shows(t, "> ")
	types("exit 5\n")
	show.shows(t, "it's 5 of a 'b' $c\r\n")
	got := <-ended
	_ = typed.Close()
	if got.err != nil || got.code != 7 {
		t.Errorf("ended with %d, %v", got.code, got.err)
	}
	soon(t, "files of the terminal are left in the guest", func() bool { return leftovers(t) <= before })
}

// soon waits for what comes true by itself.
func soon(t *testing.T, otherwise string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !is(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal(otherwise)
		}
	}
}

// leftovers counts what terminals have left in this machine's /tmp, other tests' included: those only go.
func leftovers(t *testing.T) int {
	t.Helper()
	all, err := filepath.Glob("/tmp/muster-exec-*")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestTerminalEnds: who leaves takes the terminal and its command along, Ctrl-D is the end of what is typed, and a guest without the programs says so.
func TestTerminalEnds(t *testing.T) {
	t.Parallel()
	a := &hostAgent{path: programs(t, "script"), ran: map[int64]*ran{}, open: map[int64]*opened{}}
	show := &screen{more: make(chan struct{}, 1)}
	code, err := Terminal{In: strings.NewReader("typed\n"), Out: show}.Exec(t.Context(), a, "u", []string{"cat"})
	if err != nil || code != 0 {
		t.Errorf("cat ended with %d, %v", code, err)
	}
	show.shows(t, "typed\r\ntyped\r\n")
	ctx, leave := context.WithCancel(t.Context())
	mark := filepath.Join(t.TempDir(), "pid")
	done := make(chan error, 1)
	go func() {
		_, err := Terminal{Out: show}.Exec(ctx, a, "u", []string{"sh", "-c", "echo $$ >" + mark + "; echo he''re; exec sleep 1000"})
		done <- err
	}()
	show.shows(t, "here\r\n")
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("who left is told %v", err)
	}
	text, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	soon(t, "the command lives on without its terminal", func() bool {
		_, err := os.Stat("/proc/" + strings.TrimSpace(string(text)) + "/cmdline")
		return err != nil
	})
	bare := &hostAgent{path: programs(t), ran: map[int64]*ran{}, open: map[int64]*opened{}}
	if _, err := (Terminal{Out: show}).Exec(t.Context(), bare, "u", []string{"sh"}); vm.KindOf(err) != vm.Invalid || !strings.Contains(err.Error(), "neither script") {
		t.Errorf("a guest that has no terminals: %v", err)
	}
	bare.gone = true
	if _, err := (Terminal{Out: show}).Exec(t.Context(), bare, "u", []string{"sh"}); vm.KindOf(err) != vm.Unavailable {
		t.Errorf("a guest whose agent does not answer: %v", err)
	}
}

// qemuAgent is QEMU's guest agent on this machine, where it is installed or MUSTER_QEMU_GA names it.
func qemuAgent(t *testing.T) Agent {
	t.Helper()
	program := os.Getenv("MUSTER_QEMU_GA")
	if program == "" {
		var err error
		if program, err = exec.LookPath("qemu-ga"); err != nil {
			t.Skipf("NOT CHECKED: QEMU's guest agent is not here (Debian: qemu-guest-agent): %v", err)
		}
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	c := exec.Command(program, "-m", "unix-listen", "-p", socket, "-t", dir, "-f", filepath.Join(dir, "pid"))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	var conn net.Conn
	soon(t, "QEMU's guest agent does not listen", func() bool {
		var err error
		conn, err = net.Dial("unix", socket)
		return err == nil
	})
	t.Cleanup(func() { _ = conn.Close() })
	return &socketAgent{conn: conn, lines: bufio.NewReader(conn)}
}

type socketAgent struct {
	mu    sync.Mutex
	conn  net.Conn
	lines *bufio.Reader
}

func (s *socketAgent) Agent(_ context.Context, _, command string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := io.WriteString(s.conn, command+"\n"); err != nil {
		return "", err
	}
	line, err := s.lines.ReadString('\n')
	var bad struct {
		Error *struct{ Desc string }
	}
	if err == nil && json.Unmarshal([]byte(line), &bad) == nil && bad.Error != nil {
		err = errors.New(bad.Error.Desc)
	}
	return line, err
}

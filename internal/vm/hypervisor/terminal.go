package hypervisor

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Terminal is a person's end of a terminal.
type Terminal struct {
	// In is what is typed; nil for nothing. Who calls closes it after Terminal.Exec.
	In io.Reader
	// Out gets what the terminal shows.
	Out io.Writer
	// Sizes are columns and rows, each time that they change; nil where they are not known.
	Sizes <-chan [2]uint16
}

const (
	// typedAtOnce is what a FIFO takes whole or not at all, with room to spare (pipe(7), PIPE_BUF).
	typedAtOnce = 1024
	// shownAtOnce is what is read of the terminal's file in one call, and shownMost what it may have in all: it lies in the guest, mostly in memory.
	shownAtOnce = 64 << 10
	shownMost   = 64 << 20
	// openBound is how long a guest may take to open a terminal.
	openBound = 30 * time.Second
	// idlePoll is how long what a terminal shows may wait to be seen while nobody types.
	idlePoll = 250 * time.Millisecond
)

// opens runs in the guest. A guest agent has no terminals, and reading a FIFO by it loses what was read before the FIFO was empty; but it writes FIFOs, and reads a file
// that grows. So the guest's own script (util-linux, busybox) or Python opens the terminal, is typed at by a FIFO, and shows to a file. The FIFO is open for
// reading before the agent opens it, which would wait for that, and with it everybody.
const opens = `umask 077
mkdir "$1" && cd "$1" && mkfifo in && : >out || exit 125
exec 3<>in
export TERM=xterm SHELL=/bin/sh
if command -v script >/dev/null 2>&1; then
	: >ready
	exec script -q -f -c "$2" /dev/null <&3 3>&- >out 2>&1
elif command -v python3 >/dev/null 2>&1; then
	: >ready
	exec python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' /bin/sh -c "$2" <&3 3>&- >out 2>&1
fi
echo "the guest has neither script (util-linux) nor python3" >&2
exit 126`

// Exec runs a command in a guest on a terminal of its own, until it ends or ctx does; then the terminal is taken away, which tells the command's processes (SIGHUP). In's end is Ctrl-D.
// It needs a shell in the guest, and script or python3: Invalid, where they are missing. The exit code is the command's, as a shell has it. Unavailable: no agent answers (yet), and nothing was run.
func (t Terminal) Exec(ctx context.Context, a Agent, uuid string, command []string) (int32, error) {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the program instead
	s := &session{agent: a, uuid: uuid, dir: "/tmp/muster-exec-" + hex.EncodeToString(random[:])}
	code, err := s.run(ctx, t, command)
	if err != nil {
		return 0, fmt.Errorf("exec in machine %s: terminal: %w", uuid, err)
	}
	return code, nil
}

type session struct {
	agent Agent
	uuid  string
	dir   string
	pid   int64
	in    int64 // handles of the agent
	out   int64
	shown int
}

func (s *session) ask(ctx context.Context, verb string, args, into any) error {
	return ask(ctx, s.agent, s.uuid, verb, args, into)
}

func (s *session) run(ctx context.Context, t Terminal, command []string) (int32, error) {
	if err := s.ask(ctx, "guest-ping", nil, nil); err != nil {
		return 0, err
	}
	inside := fmt.Sprintf("tty >%[1]s/tty; %[2]s; echo $? >%[1]s/code", s.dir, quoted(command))
	var started struct {
		PID int64 `json:"pid"`
	}
	args := map[string]any{"path": "/bin/sh", "arg": []string{"-c", opens, "muster", s.dir, inside}, "capture-output": true}
	if err := s.ask(ctx, "guest-exec", args, &started); err != nil {
		if vm.KindOf(err) == vm.Unavailable {
			err = vm.Errorf(vm.Internal, "whether the command runs is not known: %w", err) // it must not run twice unasked
		}
		return 0, err
	}
	s.pid = started.PID
	defer s.end(ctx)
	if err := s.open(ctx); err != nil {
		return 0, err
	}
	return s.serve(ctx, t)
}

// open waits until the terminal is there, and opens its ends.
func (s *session) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openBound)
	defer cancel()
	var ready int64
	for wait := pollFirst; ; wait = min(2*wait, idlePoll) {
		err := s.ask(ctx, "guest-file-open", map[string]any{"path": s.dir + "/ready", "mode": "r"}, &ready)
		if err == nil {
			break
		}
		if ended, said, status := s.ended(ctx); status == nil && ended {
			return vm.Errorf(vm.Invalid, "it cannot be opened: %s; attach leads to the machine's console", said)
		}
		if !pause(ctx, wait) {
			return vm.Errorf(vm.Internal, "it was not opened within %v: %w", openBound, err)
		}
	}
	_ = s.ask(ctx, "guest-file-close", map[string]any{"handle": ready}, nil)
	if err := s.ask(ctx, "guest-file-open", map[string]any{"path": s.dir + "/in", "mode": "w"}, &s.in); err != nil {
		return settled(err)
	}
	return settled(s.ask(ctx, "guest-file-open", map[string]any{"path": s.dir + "/out", "mode": "r"}, &s.out))
}

// settled is the error of a command that was started: it is not to be tried again.
func settled(err error) error {
	if vm.KindOf(err) == vm.Unavailable {
		return vm.Errorf(vm.Internal, "%w", err)
	}
	return err
}

// ended says whether what opened the terminal has ended, and what it said.
func (s *session) ended(ctx context.Context) (bool, string, error) {
	var status struct {
		Exited   bool   `json:"exited"`
		ExitCode int    `json:"exitcode"`
		Err      string `json:"err-data"`
	}
	if err := s.ask(ctx, "guest-exec-status", map[string]any{"pid": s.pid}, &status); err != nil {
		return false, "", err
	}
	said, _, err := decode(status.Err, 256)
	if err != nil || len(said) == 0 {
		said = []byte("exit code " + strconv.Itoa(status.ExitCode))
	}
	return status.Exited, strings.TrimSpace(string(said)), nil
}

// serve carries what is typed and what is shown.
func (s *session) serve(ctx context.Context, t Terminal) (int32, error) {
	typed, stop := typing(ctx, t.In)
	defer stop()
	wait := pollFirst
	for over := false; ; {
		n, err := s.show(ctx, t.Out)
		switch {
		case err != nil && (vm.KindOf(err) != vm.Unavailable || ctx.Err() != nil):
			return 0, settled(err)
		case n > 0:
			wait = pollFirst
			continue
		case over:
			return s.code(ctx)
		case err == nil:
			// What it has shown last is read once more after its end.
			if over, _, err = s.ended(ctx); err != nil && vm.KindOf(err) != vm.Unavailable {
				return 0, err
			}
			if over {
				continue
			}
		}
		timer := time.NewTimer(wait)
		select {
		case b, ok := <-typed:
			if !ok {
				typed = nil
				b = []byte{4}
			}
			if err := s.write(ctx, b); err != nil {
				timer.Stop()
				return 0, settled(err)
			}
			wait = pollFirst
		case size, ok := <-t.Sizes:
			if !ok {
				t.Sizes = nil
			} else if err := s.resize(ctx, size); err != nil && vm.KindOf(err) != vm.Unavailable {
				timer.Stop()
				return 0, err
			}
		case <-timer.C:
			wait = min(2*wait, idlePoll)
		case <-ctx.Done():
			timer.Stop()
			return 0, vm.Errorf(vm.Internal, "the command has not ended: %w", context.Cause(ctx))
		}
		timer.Stop()
	}
}

// typing gives what is typed, in pieces, until its end or stop.
func typing(ctx context.Context, from io.Reader) (<-chan []byte, func()) {
	ctx, stop := context.WithCancel(ctx)
	if from == nil {
		return nil, stop
	}
	out := make(chan []byte)
	go func() { // ends when the stream does, which the caller closes afterwards
		defer close(out)
		for {
			b := make([]byte, typedAtOnce)
			n, err := from.Read(b)
			if n > 0 {
				select {
				case out <- b[:n]:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return out, stop
}

// show passes on what the terminal has shown since.
func (s *session) show(ctx context.Context, to io.Writer) (int, error) {
	var r struct {
		Count int    `json:"count"`
		Text  string `json:"buf-b64"`
	}
	if err := s.ask(ctx, "guest-file-read", map[string]any{"handle": s.out, "count": shownAtOnce}, &r); err != nil {
		return 0, err
	}
	b, _, err := decode(r.Text, shownAtOnce)
	if err != nil {
		return 0, err
	}
	if s.shown += len(b); s.shown > shownMost {
		return 0, vm.Errorf(vm.Exhausted, "it has shown more than %d MiB, which lie in the guest until the command ends", shownMost>>20)
	}
	if to == nil {
		return len(b), nil
	}
	_, err = to.Write(b)
	return len(b), err
}

// write types. A FIFO that is full is tried again: what was not taken is still in the agent's buffer.
func (s *session) write(ctx context.Context, b []byte) error {
	if err := s.ask(ctx, "guest-file-write", map[string]any{"handle": s.in, "buf-b64": base64.StdEncoding.EncodeToString(b)}, nil); err != nil {
		return err
	}
	for wait := pollFirst; ; wait = min(2*wait, idlePoll) {
		err := s.ask(ctx, "guest-file-flush", map[string]any{"handle": s.in}, nil)
		if err == nil || vm.KindOf(err) == vm.Unavailable || !strings.Contains(err.Error(), "temporarily unavailable") {
			return err
		}
		if !pause(ctx, wait) {
			return err
		}
	}
}

// resize tells the terminal its size; the kernel tells the command.
func (s *session) resize(ctx context.Context, size [2]uint16) error {
	set := fmt.Sprintf(`for i in 1 2 3 4 5 6 7 8 9 10; do [ -s %[1]s/tty ] && break; sleep 0.2 2>/dev/null || sleep 1; done; exec stty -F "$(cat %[1]s/tty)" cols %[2]d rows %[3]d`, s.dir, size[0], size[1])
	return s.ask(ctx, "guest-exec", map[string]any{"path": "/bin/sh", "arg": []string{"-c", set}}, nil)
}

// code is the command's exit code; 137 where something ended it with its terminal.
func (s *session) code(ctx context.Context) (int32, error) {
	var file int64
	if err := s.ask(ctx, "guest-file-open", map[string]any{"path": s.dir + "/code", "mode": "r"}, &file); err != nil {
		if vm.KindOf(err) == vm.Unavailable {
			return 0, settled(err)
		}
		return 137, nil
	}
	var r struct {
		Text string `json:"buf-b64"`
	}
	err := s.ask(ctx, "guest-file-read", map[string]any{"handle": file, "count": 16}, &r)
	_ = s.ask(ctx, "guest-file-close", map[string]any{"handle": file}, nil)
	if err != nil {
		return 0, settled(err)
	}
	text, _, err := decode(r.Text, 16)
	if err != nil {
		return 0, err
	}
	code, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 8)
	if err != nil {
		return 0, fmt.Errorf("exit code: %w", err)
	}
	return int32(code), nil
}

// end takes the terminal away, with what is left of it in the guest.
func (s *session) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killBound)
	defer cancel()
	for _, handle := range []int64{s.in, s.out} {
		if handle != 0 {
			_ = s.ask(ctx, "guest-file-close", map[string]any{"handle": handle}, nil)
		}
	}
	ends := fmt.Sprintf("kill -HUP %d 2>/dev/null; kill -KILL %[1]d 2>/dev/null; rm -rf %s", s.pid, s.dir)
	if ended, _, err := s.ended(ctx); err == nil && ended {
		ends = "rm -rf " + s.dir // its number may be another's by now
	}
	_ = s.ask(ctx, "guest-exec", map[string]any{"path": "/bin/sh", "arg": []string{"-c", ends}}, nil)
}

// pause waits, and says whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// quoted is a command as a shell reads it, word by word.
func quoted(command []string) string {
	words := make([]string, len(command))
	for i, w := range command {
		words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}

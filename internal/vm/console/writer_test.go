package console

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func testOptions(dir string) Options {
	return Options{
		Pipe: filepath.Join(dir, "console"), State: filepath.Join(dir, "state"), Log: filepath.Join(dir, "0.log"),
		Now:    func() time.Time { return time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC) },
		Logger: logr.Discard(),
	}
}

func testWriter(t testing.TB, o Options) *writer {
	t.Helper()
	must(t, o.complete())
	if f, err := os.OpenFile(o.raw(), os.O_CREATE, 0o600); err == nil { // as Open does
		f.Close()
	}
	w, err := newWriter(o)
	must(t, err)
	return w
}

// drain translates until there is nothing more.
func drain(w *writer, end bool) error {
	for {
		more, err := w.step(end)
		if err != nil || !more {
			return err
		}
	}
}

// guest appends to the raw output as QEMU does.
type guest struct {
	t    testing.TB
	raw  string
	said strings.Builder
}

func (g *guest) say(text string) {
	f, err := os.OpenFile(g.raw, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	must(g.t, err)
	defer f.Close()
	_, err = f.WriteString(text)
	must(g.t, err)
	g.said.WriteString(text)
}

// logged is what is in the logs, in order, without times. Every line has to be whole.
func logged(t testing.TB, paths ...string) []string {
	t.Helper()
	var out []string
	for _, p := range paths {
		b, err := os.ReadFile(p)
		must(t, err)
		if len(b) > 0 && b[len(b)-1] != '\n' {
			t.Fatalf("%s ends in the midst of a line: %.100q", p, b[bytes.LastIndexByte(b, '\n')+1:])
		}
		for line := range bytes.Lines(b) {
			at, _, _ := bytes.Cut(line, []byte(" "))
			if _, err := time.Parse(time.RFC3339Nano, string(at)); err != nil {
				t.Fatalf("%s: %.100q: %v", p, line, err)
			}
			out = append(out, string(withoutTime(line[:len(line)-1])))
		}
	}
	return out
}

func same(t testing.TB, where string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	part := func(s []string) []string { return s[min(i, len(s)):min(i+3, len(s))] }
	t.Fatalf("%s: %d lines, want %d; from line %d:\n got %.300q\nwant %.300q", where, len(got), len(want), i, part(got), part(want))
}

var errDead = errors.New("the process is dead")

// mortal dies before, in the midst of, or after one of the writer's writes. After it nothing is written any more.
type mortal struct {
	at    int // 0: never
	how   int // 0 before, 1 in the midst, 2 after
	calls int
	dead  bool
	log   []string
}

func (m *mortal) write(what string, op func() error, half func()) error {
	if m.dead {
		return errDead
	}
	m.calls++
	m.log = append(m.log, what)
	if m.calls != m.at {
		return op()
	}
	m.dead = true
	switch {
	case m.how == 1 && half != nil:
		half()
	case m.how == 2:
		_ = op()
	}
	return errDead
}

// TestEachLineOnce: a runtime that dies before, in the midst of, or after any of its writes, while the guest goes on speaking and the kubelet renames the log; the
// log has each line once, in order, and nothing else.
func TestEachLineOnce(t *testing.T) {
	points := 0
	for how := range 3 {
		for at := 1; ; at++ {
			m := &mortal{at: at, how: how}
			whole := lifeOfALog(t, m, fmt.Sprintf("dead at %d, how %d", at, how))
			if !whole {
				points++
				continue
			}
			if how == 0 {
				t.Logf("%d writes: %v", len(m.log), count(m.log))
			}
			break
		}
	}
	if points < 60 {
		t.Errorf("only %d points", points)
	}
}

func count(words []string) map[string]int {
	out := map[string]int{}
	for _, w := range words {
		out[w]++
	}
	return out
}

// lifeOfALog plays one; it tells whether the writer lived through.
func lifeOfALog(t *testing.T, m *mortal, where string) bool {
	dir := t.TempDir()
	o := testOptions(dir)
	o.write = m.write
	testWriter := func(t testing.TB, o Options) *writer {
		w := testWriter(t, o)
		w.punchEvery = 8 << 10
		return w
	}
	w := testWriter(t, o)
	g := &guest{t: t, raw: o.raw()}
	var logs []string // renamed, oldest first
	// again is the next process, when the last has died; what it does may be told to fail only by death.
	do := func(act func() error) {
		if err := act(); err == nil {
			return
		} else if !m.dead {
			t.Fatalf("%s: %v", where, err)
		}
		w.close()
		o.write = nil
		w = testWriter(t, o)
	}
	rename := func() {
		// As a kubelet: rename, ask, and rename back if that fails.
		to := fmt.Sprintf("%s.%d", o.Log, len(logs))
		if os.Rename(o.Log, to) != nil {
			return // not there yet
		}
		err := w.reopen()
		if err == nil {
			logs = append(logs, to)
			return
		}
		if !m.dead {
			t.Fatalf("%s: reopen: %v", where, err)
		}
		w.close()
		o.write = nil
		w = testWriter(t, o)
		if len(logs)%2 == 0 {
			logs = append(logs, to) // the kubelet died too, and does not rename it back
			return
		}
		if _, err := os.Stat(o.Log); err != nil {
			must(t, os.Rename(to, o.Log))
		} else {
			logs = append(logs, to)
		}
	}
	for i := range 6 {
		g.say(fmt.Sprintf("round %d\r\nno end yet", i))
		do(func() error { return drain(w, false) })
		g.say(fmt.Sprintf(", now\n\n%s\r\n", strings.Repeat(string(rune('a'+i)), MaxLine+i*7000)))
		if i == 3 {
			g.say(strings.Repeat("much\n", 6_000)) // several batches, and holes
		}
		do(func() error { return drain(w, false) })
		if i == 1 || i == 3 {
			rename()
			g.say("after the rename\n")
		}
	}
	g.say("last words")
	// The guest has ended. What died in the midst of this is done again.
	do(func() error { return drain(w, true) })
	must(t, drain(w, true))
	w.close()
	same(t, where, logged(t, append(logs, o.Log)...), told(g.said.String(), true))
	return !m.dead
}

// TestRandomDeaths: the same with many processes after each other, each dying somewhere, and random output.
func TestRandomDeaths(t *testing.T) {
	rounds := 10
	if testing.Short() {
		rounds = 5
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		dir := t.TempDir()
		o := testOptions(dir)
		g := &guest{t: t, raw: o.raw()}
		deaths := 0
		for range 40 {
			m := &mortal{at: 1 + r.IntN(8), how: r.IntN(3)}
			o.write = m.write
			w := testWriter(t, o)
			for range 1 + r.IntN(3) {
				g.say(randomOutput(r))
				if err := drain(w, false); err != nil && !m.dead {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if m.dead {
					deaths++
					break
				}
			}
			w.close()
		}
		o.write = nil
		w := testWriter(t, o)
		must(t, drain(w, true))
		w.close()
		same(t, fmt.Sprintf("seed %d, %d deaths", seed, deaths), logged(t, o.Log), told(g.said.String(), true))
	}
}

func randomOutput(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(30) {
		switch r.IntN(6) {
		case 0:
			b.WriteString(strings.Repeat("x", r.IntN(2*MaxLine)))
		case 1:
			b.WriteString("\r")
		case 2:
			b.WriteString("\r\n")
		case 3:
			b.WriteByte(byte(r.IntN(256)))
		default:
			fmt.Fprintf(&b, "line %d\n", r.IntN(1000))
		}
	}
	return b.String()
}

// blocks is how much room a file takes on disk.
func blocks(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

// TestDiskFull: while the log cannot be written, output waits up to the limit; then the oldest goes, is counted to the byte, and the log tells of it. The log never has a torn line, and the raw
// file takes no more room than it may.
func TestDiskFull(t *testing.T) {
	o := testOptions(t.TempDir())
	o.Limit = 2 << 20
	full := false
	o.write = func(what string, op func() error, half func()) error {
		if full && what == "append log" {
			half() // as a disk does
			return syscall.ENOSPC
		}
		return op()
	}
	if err := Probe(filepath.Dir(o.raw())); err != nil {
		t.Skip("NOT CHECKED: ", err)
	}
	w := testWriter(t, o)
	defer w.close()
	g := &guest{t: t, raw: o.raw()}
	g.say("before\n")
	must(t, drain(w, false))
	full = true
	line := func(i int) string { return fmt.Sprintf("%09d\n", i) } // 10 bytes
	n := 0
	for range 50 { // 5 MB
		var b strings.Builder
		for range 10_000 {
			b.WriteString(line(n))
			n++
		}
		g.say(b.String())
		if err := drain(w, false); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("a full disk: %v", err)
		}
		if room := blocks(t, o.raw()); room > o.Limit+2*punchEvery {
			t.Fatalf("the raw file takes %d bytes", room)
		}
	}
	full = false
	must(t, drain(w, true))
	got := logged(t, o.Log)
	if got[0] != "stdout F before" {
		t.Fatalf("first %q", got[0])
	}
	var lost int
	if _, err := fmt.Sscanf(got[1], "stderr F [muster-vm: %d bytes of the console are missing here", &lost); err != nil {
		t.Fatalf("then %q: %v", got[1], err)
	}
	if lost%10 != 0 || lost < 3_000_000 {
		t.Errorf("lost %d", lost)
	}
	var want []string
	for i := lost / 10; i < n; i++ {
		want = append(want, "stdout F "+strings.TrimSuffix(line(i), "\n"))
	}
	same(t, "after the loss", got[2:], want)
	w.punch(true)
	if room := blocks(t, o.raw()); room > 2*blockLength {
		t.Errorf("in the end the raw file takes %d bytes", room)
	}
}

// TestLossIsToldOnce: a death between leaving out and telling, or right after telling, tells it once.
func TestLossIsToldOnce(t *testing.T) {
	for how := range 3 {
		for at := 1; ; at++ {
			o := testOptions(t.TempDir())
			small := func(w *writer) *writer {
				w.o.Limit = 32 << 10
				return w
			}
			g := &guest{t: t, raw: o.raw()}
			g.say("before\n")
			m := &mortal{how: how}
			full := true
			o.write = func(what string, op func() error, half func()) error {
				if full && what == "append log" {
					return syscall.ENOSPC
				}
				return m.write(what, op, half)
			}
			w := small(testWriter(t, o))
			_ = drain(w, false) // the disk is full
			m.calls, m.at = 0, at
			g.say(strings.Repeat("123456789\n", 5_000))
			_ = drain(w, false) // the disk is full, or the process dies
			full = false
			_ = drain(w, false) // it may die
			w.close()
			o.write = nil
			w = small(testWriter(t, o))
			must(t, drain(w, true))
			w.close()
			lost, lines := 0, 0
			for _, l := range logged(t, o.Log) {
				n := 0
				if _, err := fmt.Sscanf(l, "stderr F [muster-vm: %d bytes of the console", &n); err == nil {
					lost += n
				} else {
					lines += len(strings.TrimPrefix(l, "stdout F ")) + 1
				}
			}
			if all := len(g.said.String()); lost+lines != all {
				t.Fatalf("dead at %d, how %d: %d lost and %d there are not %d", at, how, lost, lines, all)
			}
			if !m.dead {
				break
			}
		}
	}
}

// TestTakenAway: raw output that was replaced or cut before it was read is told of.
func TestTakenAway(t *testing.T) {
	o := testOptions(t.TempDir())
	g := &guest{t: t, raw: o.raw()}
	again := func() {
		w := testWriter(t, o)
		must(t, drain(w, true))
		w.close()
	}
	g.say("one\n")
	again()
	g.say("gone\n")
	must(t, os.Rename(o.raw(), o.raw()+".aside"))
	g.say("now\n")
	again()
	must(t, os.Truncate(o.raw(), 2))
	again()
	missing := lossEntry(0, true)
	text := string(missing.appendText(nil))
	same(t, "the log", logged(t, o.Log), []string{"stdout F one", text, "stdout F now", text, "stdout P no"})
}

// TestHostileOutput: gigabytes without a line's end take no memory; here 16 MiB, of which each byte arrives.
func TestHostileOutput(t *testing.T) {
	o := testOptions(t.TempDir())
	w := testWriter(t, o)
	defer w.close()
	g := &guest{t: t, raw: o.raw()}
	const pieces = 16
	for range pieces {
		g.say(strings.Repeat("\x00\xff\r", 1<<20/3))
	}
	most := testing.AllocsPerRun(1, func() { must(t, drain(w, true)) })
	if cap(w.buffer) > readLength {
		t.Errorf("the buffer has grown to %d", cap(w.buffer))
	}
	n := 0
	for _, l := range logged(t, o.Log) {
		n += len(strings.TrimPrefix(l, "stdout P "))
	}
	if n != len(g.said.String()) {
		t.Errorf("%d of %d bytes arrived (%v allocations)", n, len(g.said.String()), most)
	}
}

// TestStateSlots: a state that was written by half leaves the one before; one that is none is no state.
func TestStateSlots(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "state"))
	must(t, err)
	defer f.Close()
	if _, ok, err := readState(f); ok || err != nil {
		t.Errorf("an empty file: %v, %v", ok, err)
	}
	for i := uint64(1); i < 6; i++ {
		slot, err := state{Sequence: i, Offset: int64(i) * 100}.encode()
		must(t, err)
		_, err = f.WriteAt(slot, int64(i%2)*slotLength)
		must(t, err)
		if got, ok, _ := readState(f); !ok || got.Sequence != i || got.Offset != int64(i)*100 {
			t.Errorf("%d: %+v, %v", i, got, ok)
		}
	}
	_, err = f.WriteAt([]byte("0000"), slotLength+100)
	must(t, err)
	if got, ok, _ := readState(f); !ok || got.Sequence != 4 {
		t.Errorf("after damage: %+v, %v", got, ok)
	}
}

// BenchmarkTranslate is lines of 80 bytes from the raw file into the log.
func BenchmarkTranslate(b *testing.B) {
	o := testOptions(b.TempDir())
	w := testWriter(b, o)
	defer w.close()
	g := &guest{t: b, raw: o.raw()}
	text := strings.Repeat(strings.Repeat("x", 79)+"\n", 10_000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		b.StopTimer()
		g.said.Reset()
		g.say(text)
		b.StartTimer()
		must(b, drain(w, false))
	}
}

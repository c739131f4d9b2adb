package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
)

// patience bounds what a test waits for; nothing is expected to take that long.
const patience = 30 * time.Second

// served is a console that runs, with a guest.
type served struct {
	*Console
	t          *testing.T
	g          *guest
	tick, look chan time.Time
	// keyboard is what the guest reads, as QEMU has it open.
	keyboard *os.File
	stop     func()
}

func serve(t *testing.T, change func(*Options)) *served {
	t.Helper()
	o := testOptions(t.TempDir())
	s := &served{t: t, g: &guest{t: t, raw: o.raw()}, tick: make(chan time.Time), look: make(chan time.Time)}
	o.Tick, o.Look = s.tick, s.look
	if change != nil {
		change(&o)
	}
	var err error
	s.Console, err = Open(o)
	must(t, err)
	s.keyboard, err = os.OpenFile(o.Pipe+".in", os.O_RDWR, 0)
	must(t, err)
	t.Cleanup(func() { s.keyboard.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { s.Run(ctx); close(over) }()
	s.stop = func() {
		cancel()
		select {
		case <-over:
		case <-time.After(patience):
			t.Fatal("Run does not end")
		}
	}
	t.Cleanup(s.stop)
	return s
}

func (s *served) say(text string) { s.g.say(text) }

// ticks has the console look at the file until act has happened.
func (s *served) ticks(act func() error) error {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- act() }()
	limit := time.After(patience)
	for {
		select {
		case err := <-done:
			return err
		case s.tick <- time.Time{}:
		case <-limit:
			s.t.Fatal("it takes too long")
		}
	}
}

func (s *served) finish() error {
	return s.ticks(func() error {
		ctx, cancel := context.WithTimeout(s.t.Context(), patience)
		defer cancel()
		return s.Finish(ctx)
	})
}

// screen is what a client sees. It can be waited on.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
	// hold, where not nil, is received from before each write: a client that is slow.
	hold chan struct{}
}

func newScreen() *screen { return &screen{news: make(chan struct{}, 1)} }

func (s *screen) Write(b []byte) (int, error) {
	if s.hold != nil {
		<-s.hold
	}
	s.mu.Lock()
	s.text.Write(b)
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// sees waits until a client has seen something.
func (s *served) sees(c *screen, what string) {
	s.t.Helper()
	limit := time.After(patience)
	for !strings.Contains(c.String(), what) {
		select {
		case <-c.news:
		case s.look <- time.Time{}:
		case <-limit:
			s.t.Fatalf("%.300q has no %q", c.String(), what)
		}
	}
}

// attach returns when the client is there.
func (s *served) attach(ctx context.Context, in io.Reader, out io.Writer) chan error {
	s.t.Helper()
	before := s.clients()
	over := make(chan error, 1)
	go func() { over <- s.Attach(ctx, in, out) }()
	for limit := time.Now().Add(patience); s.clients() == before; runtime.Gosched() {
		if time.Now().After(limit) {
			s.t.Fatal("nobody is attached")
		}
	}
	return over
}

func (s *served) clients() int {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return len(s.hub.clients)
}

// TestConsole is the scenario of the package comment.
func TestConsole(t *testing.T) {
	s := serve(t, func(o *Options) { o.Ring = minRing })
	typist, lid := newScreen(), newScreen()
	lid.hold = make(chan struct{})
	keys, typing := io.Pipe()
	first := s.attach(t.Context(), keys, typist)
	second := s.attach(t.Context(), nil, lid)
	s.say("login: ")
	s.sees(typist, "login: ")
	_, err := typing.Write([]byte("root\n"))
	must(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(s.keyboard, got)
	must(t, err)
	if string(got) != "root\n" {
		t.Errorf("the guest read %q", got)
	}
	// The client whose lid is closed holds nobody up, however much is said.
	for i := range 500 {
		s.say(fmt.Sprintf("line %d\r\n", i))
		s.sees(typist, fmt.Sprintf("line %d\r\n", i))
	}
	close(lid.hold)
	s.sees(lid, " bytes are missing here")
	s.say("after\r\n")
	s.sees(lid, "after\r\n")
	var lost int
	seen := lid.String()
	if _, err := fmt.Sscanf(seen[strings.Index(seen, "[muster-vm: "):], "[muster-vm: %d bytes", &lost); err != nil {
		t.Fatal(err)
	}
	if whole := len(s.g.said.String()); lost+len(seen)-len(mark(int64(lost))) != whole {
		t.Errorf("it saw %d bytes and missed %d, of %d", len(seen)-len(mark(int64(lost))), lost, whole)
	}
	if strings.Contains(typist.String(), "missing") {
		t.Error("the quick client missed something")
	}
	// The kubelet rotates the log.
	must(t, s.ticks(func() error {
		must(t, os.Rename(s.o.Log, s.o.Log+".old"))
		return s.Reopen(t.Context())
	}))
	s.say("in the new log\nlast words")
	must(t, s.finish())
	for _, over := range []chan error{first, second} {
		select {
		case err := <-over:
			must(t, err)
		case <-time.After(patience):
			t.Fatal("a client is not let go")
		}
	}
	s.sees(typist, "last words")
	same(t, "the logs", logged(t, s.o.Log+".old", s.o.Log), told(s.g.said.String(), true))
	if got := logged(t, s.o.Log); len(got) < 2 || got[len(got)-2] != "stdout F in the new log" {
		t.Errorf("the new log has %q", got)
	}
	if err := typing.Close(); err != nil {
		t.Error(err)
	}
}

// TestStuckGuest: a guest that does not read holds up those that type, and nobody else; one that gives up lets the next type.
func TestStuckGuest(t *testing.T) {
	s := serve(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	sees := newScreen()
	over := s.attach(ctx, endless{}, sees)
	s.say("still here\n")
	s.sees(sees, "still here")
	cancel()
	if err := <-over; err == nil {
		t.Error("an attachment that was given up ended well")
	}
	sees = newScreen()
	s.attach(t.Context(), strings.NewReader("!"), sees)
	read := make(chan struct{})
	go func() { // the guest reads again
		defer close(read)
		b := make([]byte, 64<<10)
		for {
			n, err := s.keyboard.Read(b)
			if bytes.IndexByte(b[:n], '!') >= 0 || err != nil {
				return
			}
		}
	}()
	select {
	case <-read:
	case <-time.After(patience):
		t.Fatal("the next client cannot type")
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return copy(b, bytes.Repeat([]byte("y"), len(b))), nil }

// TestBrokenLog: a log that cannot be made is said, tried again, and then has everything; Finish waits as long as it may.
func TestBrokenLog(t *testing.T) {
	s := serve(t, func(o *Options) { o.Log = filepath.Join(filepath.Dir(o.Log), "pods", "0.log") })
	s.say("early\n")
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() { asked <- s.Finish(ctx) }()
	for s.Failed() == nil {
		select {
		case s.tick <- time.Time{}:
		case <-time.After(patience):
			t.Fatal("nothing is said")
		}
	}
	cancel()
	if err := <-asked; !errors.Is(err, context.Canceled) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Finish says %v", err)
	}
	must(t, os.Mkdir(filepath.Dir(s.o.Log), 0o700))
	must(t, s.finish())
	same(t, "the log", logged(t, s.o.Log), []string{"stdout F early"})
	if err := s.Failed(); err != nil {
		t.Errorf("it still says %v", err)
	}
}

// TestOver: what is asked of a console that has ended is Unavailable, and what cannot be is Invalid.
func TestOver(t *testing.T) {
	s := serve(t, nil)
	s.stop()
	if err := s.Reopen(t.Context()); vm.KindOf(err) != vm.Unavailable {
		t.Errorf("Reopen says %v", err)
	}
	if err := s.Attach(t.Context(), nil, newScreen()); err != nil {
		t.Errorf("Attach says %v", err)
	}
	if err := s.Attach(t.Context(), nil, nil); vm.KindOf(err) != vm.Invalid {
		t.Errorf("Attach of nothing says %v", err)
	}
	for _, change := range []func(*Options){
		func(o *Options) { o.Limit = 1 }, func(o *Options) { o.Ring = 1 }, func(o *Options) { o.Pipe = "" }, func(o *Options) { o.State = "state" },
	} {
		o := testOptions(t.TempDir())
		change(&o)
		if _, err := Open(o); vm.KindOf(err) != vm.Invalid {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestRing: against a plain definition, a client sees what was said in order, and marks that add up to what is missing.
func TestRing(t *testing.T) {
	h := newHub(minRing)
	c := &client{ring: make([]byte, minRing), wake: make(chan struct{}, 1)}
	h.clients[c] = struct{}{}
	var said, seen []byte
	b := make([]byte, 300)
	for i := range 5000 {
		piece := bytes.Repeat([]byte{byte('a' + i%26)}, 1+i*37%900)
		h.say(piece)
		said = append(said, piece...)
		for range i * 13 % 3 {
			seen = append(seen, h.take(c, b)...)
		}
	}
	for {
		piece := h.take(c, b)
		if len(piece) == 0 {
			break
		}
		seen = append(seen, piece...)
	}
	marks := 0
	for at := 0; len(seen) > 0; {
		var lost int
		if bytes.HasPrefix(seen, []byte("\r\n[muster-vm: ")) {
			if _, err := fmt.Sscanf(string(seen[:80]), "\r\n[muster-vm: %d", &lost); err != nil {
				t.Fatal(err)
			}
			marks++
			said, seen, at = said[lost:], seen[len(mark(int64(lost))):], at+lost
			continue
		}
		if len(said) == 0 || said[0] != seen[0] {
			t.Fatalf("at %d it sees another byte", at)
		}
		said, seen, at = said[1:], seen[1:], at+1
	}
	if len(said) > 0 || marks == 0 {
		t.Errorf("%d bytes neither seen nor told of, %d marks", len(said), marks)
	}
}

// TestMany: 500 quiet consoles take little memory, and all their goroutines end.
func TestMany(t *testing.T) {
	dir := t.TempDir()
	before := runtime.NumGoroutine()
	var start, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&start)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	tick := make(chan time.Time)
	for i := range 500 {
		o := testOptions(filepath.Join(dir, fmt.Sprint(i)))
		must(t, os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o700))
		o.Tick = tick
		(&guest{t: t, raw: o.raw()}).say("booted\n")
		c, err := Open(o)
		must(t, err)
		all.Go(func() { c.Run(ctx) })
	}
	for range 500 { // each looks once or so
		tick <- time.Time{}
	}
	runtime.GC()
	runtime.ReadMemStats(&now)
	used := now.HeapInuse + now.StackInuse - start.HeapInuse - start.StackInuse
	t.Logf("%d KiB, %d goroutines", used>>10, runtime.NumGoroutine()-before)
	if used > 48<<20 {
		t.Errorf("500 consoles take %d bytes", used)
	}
	cancel()
	all.Wait()
}

// TestLiveBehind: what went out of the raw output before those that are attached had it is told as lost, and no empty bytes are shown.
func TestLiveBehind(t *testing.T) {
	o := testOptions(t.TempDir())
	g := &guest{t: t, raw: o.raw()}
	g.say("before")
	h := newHub(minRing)
	var punched atomic.Int64
	l, err := newLive(o, h, &punched)
	must(t, err)
	defer l.file.Close()
	c := &client{ring: make([]byte, minRing), wake: make(chan struct{}, 1)}
	l.join(c)
	g.say("gone, and there")
	punched.Store(int64(len("before" + "gone, ")))
	if !l.look() {
		t.Error("there is more")
	}
	if got := string(h.take(c, make([]byte, 1000))); got != string(mark(6))+"and there" {
		t.Errorf("it sees %q", got)
	}
}

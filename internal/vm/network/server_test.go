package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/network/wire"
	"github.com/muster-scheduler/muster/internal/vm/socket"
)

// served is a manager on a fake world behind a real socket. Who calls is the test's choice.
type served struct {
	Client
	w   *fakeHost
	b   *bench
	mu  sync.Mutex
	uid uint32
}

const (
	adminUID = 0
	getUID   = 64055 // libvirt-qemu's, on Debian
)

func serveFake(t *testing.T) *served {
	t.Helper()
	dir := t.TempDir()
	w := newFakeHost()
	b := begin(t, w, dir)
	l, err := socket.Listen(filepath.Join(dir, "s"), socketMode)
	must(t, err)
	s := &served{Client: Client{Socket: filepath.Join(dir, "s")}, w: w, b: b, uid: adminUID}
	server := &server{manager: b.Manager, admins: []uint32{adminUID}, getters: []uint32{getUID}, log: logr.Discard(), who: func(*net.UnixConn) (uint32, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.uid, nil
	}}
	ended := make(chan error, 1)
	go func() { ended <- server.serve(context.Background(), l.UnixListener) }()
	t.Cleanup(func() {
		_ = l.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		b.end()
	})
	return s
}

func (s *served) as(uid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uid = uid
}

func (s *served) dial(t *testing.T) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.Socket, Net: "unix"})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	return c
}

// TestCalls is every verb over the socket: what the manager says arrives, with kinds and descriptors.
func TestCalls(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), serveFake(t)
	a, err := s.Add(ctx, pod("p1"))
	must(t, err)
	_, err = s.Add(ctx, pod("p1"))
	kind(t, err, vm.Conflict)
	bad := pod("p2")
	bad.MTU = 1
	_, err = s.Add(ctx, bad)
	kind(t, err, vm.Invalid)
	must(t, s.Status(ctx))
	l, err := s.List(ctx)
	if err != nil || len(l) != 1 || l[0].ID != "p1" || l[0].Network.Interfaces[0].Addresses[0].String() != "10.89.0.2/24" {
		t.Errorf("list %s, %v", text(t, l), err)
	}
	s.as(getUID)
	taps, files, err := s.Get(ctx, "p1", a.Token)
	must(t, err)
	if len(taps) != 1 || len(files) != 1 || taps[0].Name != "eth0" {
		t.Errorf("taps %+v, %d files", taps, len(files))
	}
	for _, f := range files {
		if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err != nil || name != "/dev/null" {
			t.Errorf("the fake tap is %s: %v", name, err)
		}
		_ = f.Close()
	}
	_, _, err = s.Get(ctx, "p1", a.Token)
	kind(t, err, vm.Conflict)
	s.as(adminUID)
	_, err = s.Recover(ctx, "p1")
	must(t, err)
	must(t, s.Release(ctx, "p1"))
	kind(t, s.Release(ctx, "p1"), vm.NotFound)
}

// TestWhoMayCall: the wrapper's user may Get and nothing else, anybody else nothing.
func TestWhoMayCall(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), serveFake(t)
	s.as(getUID)
	_, err := s.Add(ctx, pod("p"))
	kind(t, err, vm.Invalid)
	kind(t, s.Release(ctx, "p"), vm.Invalid)
	_, _, err = s.Get(ctx, "p", "guess")
	kind(t, err, vm.NotFound)
	s.as(1000)
	for range 50 {
		_, err = s.List(ctx)
		kind(t, err, vm.Invalid)
	}
	if !strings.Contains(err.Error(), "user 1000") {
		t.Errorf("error %q does not say who", err)
	}
	if left := s.w.left(); left != "[] [] 0" {
		t.Errorf("left %s", left)
	}
}

// TestHostileClients: what no honest client sends is refused, and has no effect.
func TestHostileClients(t *testing.T) {
	t.Parallel()
	s := serveFake(t)
	s.as(getUID)
	for _, garbage := range [][]byte{
		[]byte("GET / HTTP/1.1\r\n\r\n"),
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		[]byte("MVN\x01\xff\xff\xff\xff"), []byte("MVN\x01\x00\x00\x00\x02[]"),
		append([]byte("MVN\x01\x00\x00\x0f\x00"), bytes.Repeat([]byte("["), 0xf00)...),
		[]byte(`MVN` + "\x01\x00\x00\x00\x0d" + `{"verb":"??"}`),
	} {
		c := s.dial(t)
		_, err := c.Write(garbage)
		must(t, err)
		var r response
		if _, err := wire.Read(c, &r, maxResponse, 0); err != nil || r.Error == nil || r.Error.Kind != "Invalid" {
			t.Errorf("%q was answered %+v, %v", garbage[:min(len(garbage), 16)], r, err)
		}
	}
	// Descriptors that nobody asked for.
	c := s.dial(t)
	_, _, err := c.WriteMsgUnix([]byte("MVN\x01\x00\x00\x00\x02{}"), unix.UnixRights(0, 0, 0), nil)
	must(t, err)
	var r response
	if _, err := wire.Read(c, &r, maxResponse, 0); err != nil || r.Error == nil {
		t.Errorf("descriptors were answered %+v, %v", r, err)
	}
	if left := s.w.left(); left != "[] [] 0" {
		t.Errorf("left %s", left)
	}
}

// TestCrowd: all the room of the wrapper's user is taken by callers that say nothing, or half a frame. The runtime is served all the same.
func TestCrowd(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), serveFake(t)
	s.as(getUID)
	var idle []*net.UnixConn
	for i := range maxGetConns {
		c := s.dial(t)
		idle = append(idle, c)
		if i%2 == 0 {
			_, err := c.Write([]byte("MVN\x01\x00"))
			must(t, err)
		}
	}
	// The next one is told so. (Those before were accepted first: a socket's queue keeps its order.)
	_, _, err := s.Get(ctx, "p", "t")
	kind(t, err, vm.Exhausted)
	s.as(adminUID)
	if _, err := s.Add(ctx, pod("p")); err != nil {
		t.Errorf("the runtime is kept out: %v", err)
	}
	must(t, s.Release(ctx, "p"))
	// They are let go when their time is over; here, when they go.
	for _, c := range idle {
		_ = c.Close()
	}
	if left := s.w.left(); left != "[] [] 0" {
		t.Errorf("left %s", left)
	}
}

// TestClient: a process that is not there, does not answer, or answers nonsense.
func TestClient(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := Client{Socket: filepath.Join(dir, "s")}
	_, err := c.List(t.Context())
	kind(t, err, vm.Unavailable)
	l, err := socket.Listen(c.Socket, socketMode)
	must(t, err)
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	called := make(chan error, 1)
	go func() { called <- c.Status(ctx) }()
	silent, err := l.AcceptUnix()
	must(t, err)
	cancel()
	if err := <-called; vm.KindOf(err) != vm.Unavailable || !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up: %v", err)
	}
	_ = silent.Close()
	for _, answer := range []string{"", "MVN\x01", "MVN\x02\x00\x00\x00\x02{}", "MVN\x01\x00\x00\x00\x02{}", "MVN\x01\xff\xff\xff\xff", `MVN` + "\x01\x00\x00\x00\x25" + `{"taps":[{"name":"a","descriptor":0}]}`} {
		go func() {
			_, _, err := c.Get(t.Context(), "p", "t")
			called <- err
		}()
		s, err := l.AcceptUnix()
		must(t, err)
		_, _ = s.Write([]byte(answer))
		_ = s.CloseWrite()
		err = <-called
		_ = s.Close()
		if honest := answer == "MVN\x01\x00\x00\x00\x02{}"; (err == nil) != honest {
			t.Errorf("the answer %q is %v", answer, err)
		}
	}
	// An error of each kind comes out as it went in; one of a kind that is not known is Internal.
	for k := range kindNames() { // order: each by itself
		if err := fromWire(toWire(vm.Errorf(k, "text"))); vm.KindOf(err) != k || err.Error() != "text" {
			t.Errorf("kind %d came back as %v", k, err)
		}
	}
	if err := fromWire(&wireError{Kind: "Later", Text: "x"}); vm.KindOf(err) != vm.Internal {
		t.Errorf("an unknown kind is %d", vm.KindOf(err))
	}
}

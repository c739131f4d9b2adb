package libvirt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor"
)

// xdr writes values as libvirt does.
func xdr(values ...any) []byte {
	var out []byte
	for _, v := range values {
		switch v := v.(type) {
		case int:
			out = binary.BigEndian.AppendUint32(out, uint32(v))
		case uint64:
			out = binary.BigEndian.AppendUint64(out, v)
		case string:
			out = append(binary.BigEndian.AppendUint32(out, uint32(len(v))), v...)
			for len(out)%4 > 0 {
				out = append(out, 0)
			}
		case []byte:
			out = append(out, v...)
		}
	}
	return out
}

func packet(program, procedure, kind, serial, status uint32, body []byte) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(packetHeader+len(body)))
	for _, w := range []uint32{program, 1, procedure, kind, serial, status} {
		out = binary.BigEndian.AppendUint32(out, w)
	}
	return append(out, body...)
}

// libvirtd is one that answers as a test wants: what answer gives for a procedure and serial is sent as it is; nil: the honest answer of a
// libvirtd without machines.
type libvirtd struct {
	listener net.Listener
	answer   func(procedure, serial uint32) []byte
}

func newLibvirtd(t *testing.T, answer func(procedure, serial uint32) []byte) (*libvirtd, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	d := &libvirtd{listener: l, answer: answer}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go d.serve(c)
		}
	}()
	return d, path
}

func (d *libvirtd) serve(c net.Conn) {
	defer c.Close()
	for {
		var header [packetHeader]byte
		if _, err := io.ReadFull(c, header[:]); err != nil {
			return
		}
		word := func(i int) uint32 { return binary.BigEndian.Uint32(header[4*i:]) }
		if _, err := io.CopyN(io.Discard, c, int64(word(0))-packetHeader); err != nil {
			return
		}
		var out []byte
		if d.answer != nil {
			out = d.answer(word(3), word(5))
		}
		if out == nil {
			body := map[uint32][]byte{66: xdr(1, 0), 316: xdr(7), 273: xdr(0, 0), 157: xdr(uint64(9_000_000))}[word(3)]
			out = packet(word(1), word(3), typeReply, word(5), statusOK, body)
		}
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// TestHostileLibvirtd: whatever comes, the process lives, calls end, and nothing is left.
func TestHostileLibvirtd(t *testing.T) {
	reply := func(body []byte) func(uint32, uint32) []byte {
		return func(procedure, serial uint32) []byte {
			if procedure != 273 {
				return nil
			}
			return packet(remoteProgram, 273, typeReply, serial, statusOK, body)
		}
	}
	always := func(b []byte) func(uint32, uint32) []byte { return func(uint32, uint32) []byte { return b } }
	for what, answer := range map[string]func(uint32, uint32) []byte{
		"no length":         always(make([]byte, 64)),
		"a short length":    always(xdr(27, 0, 0, 0, 0, 0, 0)),
		"a long length":     always([]byte{0xff, 0xff, 0xff, 0xff}),
		"text":              always([]byte("HTTP/1.1 400 Bad Request\r\n\r\n                     ")),
		"another's serial":  func(p, s uint32) []byte { return packet(remoteProgram, p, typeReply, s+1, 0, nil) },
		"another procedure": func(_, s uint32) []byte { return packet(remoteProgram, 3, typeReply, s, 0, nil) },
		"a call":            func(p, s uint32) []byte { return packet(remoteProgram, p, typeCall, s, 0, nil) },
		"a stream":          func(p, s uint32) []byte { return packet(remoteProgram, p, typeReply, s, 2, nil) },
		"many domains":      reply(xdr(1<<31-1, 0)),
		"a long name":       reply(xdr(1, 1<<31-1, 0)),
		"nothing":           reply(nil),
		"a long error":      func(p, s uint32) []byte { return packet(remoteProgram, p, typeReply, s, 1, xdr(1, 10, 1, 1<<31-1)) },
		"twice":             twice,
		"a malformed event": func(_, s uint32) []byte {
			return packet(remoteProgram, procLifecycle, typeMessage, s, 0, xdr(7, 1<<30))
		},
		"an error in its place": func(p, s uint32) []byte { return packet(remoteProgram, p, typeReply, s, 1, xdr(1, 10, 1, "no", 2)) },
	} {
		_, path := newLibvirtd(t, answer)
		h := Open(t.Context(), Options{Socket: path})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := h.List(ctx)
		cancel()
		if what != "twice" && (err == nil || vm.KindOf(err) != vm.Unavailable) {
			t.Errorf("%s: %v", what, err)
		}
		h.Close()
	}
	settled(t)
}

// twice answers everything twice: the library would lock itself up.
func twice(p, s uint32) []byte {
	body := map[uint32][]byte{66: xdr(1, 0), 316: xdr(7), 273: xdr(0, 0)}[p]
	one := packet(remoteProgram, p, typeReply, s, statusOK, body)
	return append(one, one...)
}

// TestSilentLibvirtd: one that takes calls and says nothing holds nobody longer than the caller's context, and is taken for gone.
func TestSilentLibvirtd(t *testing.T) {
	silent := make(chan struct{})
	_, path := newLibvirtd(t, func(uint32, uint32) []byte {
		select {
		case <-silent:
			return []byte{}
		default:
			return nil
		}
	})
	h := Open(t.Context(), Options{Socket: path, Patience: 200 * time.Millisecond})
	if list, err := h.List(t.Context()); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
	events := h.Events(t.Context())
	close(silent)
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := h.List(ctx); return err },
		func(ctx context.Context) error { return h.Destroy(ctx, "c0f00000-0000-4000-8000-000000000001") },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := call(ctx)
		cancel()
		if err == nil || vm.KindOf(err) != vm.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	}
	// Without a deadline it is the link's end that ends a call.
	if _, err := h.List(t.Context()); err == nil || vm.KindOf(err) != vm.Unavailable {
		t.Errorf("%v", err)
	}
	h.Close()
	for range events { // it is closed
	}
	settled(t)
}

func TestNobodyThere(t *testing.T) {
	h := Open(t.Context(), Options{Socket: filepath.Join(t.TempDir(), "nothing")})
	if _, err := h.List(t.Context()); err == nil || vm.KindOf(err) != vm.Unavailable {
		t.Errorf("%v", err)
	}
	if err := h.Undefine(t.Context(), "c0f00000-0000-4000-8000-000000000001"); err == nil || vm.KindOf(err) != vm.Unavailable {
		t.Errorf("%v", err)
	}
	h.Close()
	settled(t)
}

// settled waits until no goroutine of this package or of the library is left.
func settled(t *testing.T) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for {
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		left := bytes.Count(buf, []byte("/go-libvirt.")) + bytes.Count(buf, []byte("libvirt.(*Hypervisor)")) + bytes.Count(buf, []byte("libvirt.(*guard)"))
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("goroutines are left:\n%s", buf)
		}
		runtime.Gosched()
	}
}

func FuzzGuard(f *testing.F) {
	f.Add(packet(remoteProgram, 273, typeReply, 1, 0, xdr(1, "name", make([]byte, 16), 3, 0)))
	f.Add(packet(remoteProgram, procLifecycle, typeMessage, 0, 0, xdr(7, "name", make([]byte, 16), 3, 5, 0)))
	f.Add(packet(remoteProgram, 344, typeReply, 2, 0, xdr(1, "name", make([]byte, 16), 3, 1, "cpu.time", 4, uint64(5))))
	f.Fuzz(func(t *testing.T, b []byte) {
		here, there := net.Pipe()
		g := newGuard(here)
		g.asked = map[int32]procedure{1: {remoteProgram, 273}, 2: {remoteProgram, 344}, 3: {qemuProgram, 3}}
		go func() {
			_, _ = there.Write(b)
			_ = there.Close()
		}()
		out, err := io.ReadAll(g)
		if err != nil || len(out) > len(b) {
			t.Errorf("%d bytes of %d, %v", len(out), len(b), err)
		}
		<-g.dead
	})
}

func TestStates(t *testing.T) {
	for _, c := range []struct {
		state  int32
		reason int32
		want   hypervisor.State
		why    hypervisor.Reason
	}{
		{1, 1, hypervisor.Running, ""},
		{2, 0, hypervisor.Running, ""},
		{4, 1, hypervisor.Running, ""},
		{3, 1, hypervisor.Paused, hypervisor.Held},
		{3, 5, hypervisor.Paused, hypervisor.IOError},
		{3, 3, hypervisor.Paused, hypervisor.Busy},
		{3, 2, hypervisor.Paused, hypervisor.Held},
		{3, 99, hypervisor.Paused, ""},
		{5, 0, hypervisor.Off, ""},
		{5, 1, hypervisor.Off, hypervisor.ShutDown},
		{5, 2, hypervisor.Off, hypervisor.Destroyed},
		{5, 3, hypervisor.Off, hypervisor.Crashed},
		{5, 5, hypervisor.Off, hypervisor.Saved},
		{5, 6, hypervisor.Off, hypervisor.Failed},
		{5, 8, hypervisor.Off, ""},
		{7, 0, hypervisor.Paused, hypervisor.Asleep},
		{99, 0, hypervisor.Paused, ""},
	} {
		if s, r := stateOf(golibvirt.DomainState(c.state), c.reason); s != c.want || r != c.why {
			t.Errorf("%d %d: %s %q", c.state, c.reason, s, r)
		}
	}
}

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair is the two ends of a connection.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		uc, ok := c.(*net.UnixConn)
		if !ok {
			t.Fatalf("%T", c)
		}
		if err := uc.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = uc.Close() })
		out[i] = uc
	}
	return out[0], out[1]
}

func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// TestDescriptors: files arrive beside their frame, in order, close on exec, and are the same files.
func TestDescriptors(t *testing.T) {
	a, b := pair(t)
	var send []int
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		send = append(send, int(w.Fd()))
	}
	if err := Write(a, "taps", send); err != nil {
		t.Fatal(err)
	}
	if err := Write(a, "next", nil); err != nil {
		t.Fatal(err)
	}
	var v string
	files, err := Read(b, &v, 100, 3)
	if err != nil || v != "taps" || len(files) != 3 {
		t.Fatalf("%q with %d files: %v", v, len(files), err)
	}
	for i, f := range files {
		var mine, theirs unix.Stat_t
		if unix.Fstat(send[i], &mine) != nil || unix.Fstat(int(f.Fd()), &theirs) != nil || mine.Ino != theirs.Ino || mine.Ino == 0 {
			t.Errorf("file %d is another one", i)
		}
		if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("file %d does not close on exec: %v", i, err)
		}
		_ = f.Close()
	}
	if files, err := Read(b, &v, 100, 0); err != nil || v != "next" || len(files) != 0 {
		t.Errorf("the next frame is %q: %v", v, err)
	}
	_ = a.Close()
	if _, err := Read(b, &v, 100, 0); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: %v", err)
	}
}

// TestLong: a body larger than a socket's buffer arrives whole.
func TestLong(t *testing.T) {
	a, b := pair(t)
	long := strings.Repeat("x", 4<<20)
	sent := make(chan error, 1)
	go func() { sent <- Write(a, long, nil) }()
	var v string
	if _, err := Read(b, &v, 5<<20, 0); err != nil || v != long {
		t.Errorf("%d bytes arrived: %v", len(v), err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestMalformed: what no honest peer sends is an error, and no descriptor of it stays open.
func TestMalformed(t *testing.T) {
	good := append([]byte{'M', 'V', 'N', 1, 0, 0, 0, 3}, `"x"`...)
	change := func(i int, v byte) []byte {
		f := bytes.Clone(good)
		f[i] = v
		return f
	}
	for _, test := range []struct {
		name  string
		bytes []byte
		fds   int
		want  error
		text  string
	}{
		{"another protocol", []byte("GET / HTTP/1.1\r\n"), 0, ErrMalformed, "MVN"},
		{"another version", change(3, 2), 0, ErrMalformed, "version 2"},
		{"a huge length", change(4, 0xff), 0, ErrMalformed, "at most 100"},
		{"no JSON", change(8, '{'), 0, ErrMalformed, ""},
		{"half a header", good[:5], 0, io.ErrUnexpectedEOF, ""},
		{"half a body", good[:9], 0, io.ErrUnexpectedEOF, ""},
		{"descriptors that nobody asked for", good, 5, ErrMalformed, "descriptors"},
		{"too many descriptors", good, 60, ErrMalformed, "descriptors"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := pair(t)
			before := descriptors(t)
			fds := make([]int, test.fds)
			if _, _, err := a.WriteMsgUnix(test.bytes, unix.UnixRights(fds...), nil); err != nil {
				t.Fatal(err)
			}
			_ = a.CloseWrite()
			var v string
			files, err := Read(b, &v, 100, 1)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) || files != nil {
				t.Errorf("%d files, error %v; want %v with %q", len(files), err, test.want, test.text)
			}
			if after := descriptors(t); after != before {
				t.Errorf("%d descriptors are open, there were %d", after, before)
			}
		})
	}
}

// FuzzRead: whatever arrives, reading ends, and what is accepted is JSON within the bound.
func FuzzRead(f *testing.F) {
	f.Add([]byte("MVN\x01\x00\x00\x00\x02{}"))
	f.Add([]byte("MVN\x01\xff\xff\xff\xff"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1<<16 {
			return
		}
		a, b := pair(t)
		if len(in) > 0 {
			if _, err := a.Write(in); err != nil {
				t.Fatal(err)
			}
		}
		_ = a.Close()
		var v json.RawMessage
		_, err := Read(b, &v, 1<<10, 0)
		switch {
		case err == nil && (len(v) > 1<<10 || !json.Valid(v)):
			t.Errorf("accepted %q", v)
		case err != nil && !errors.Is(err, ErrMalformed) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, unix.ECONNRESET):
			t.Errorf("error %v", err)
		}
	})
}

package socket

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shortDir is a folder whose path leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestNoMoment: a socket is never at its path without its mode. The kernel tells every change of the folder: the socket comes by a move, and
// was not made there, and its mode is not changed there.
func TestNoMoment(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd) //nolint:errcheck // a test's
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_ATTRIB|unix.IN_MOVED_TO|unix.IN_MOVED_FROM|unix.IN_DELETE); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(filepath.Join(dir, "sock"), 0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	buf := make([]byte, 1<<16)
	n, err := unix.Read(fd, buf)
	if err != nil {
		t.Fatal(err)
	}
	var seen []uint32
	for at := 0; at < n; {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at])) //nolint:gosec // as the kernel lays them out
		name := buf[at+unix.SizeofInotifyEvent:][:e.Len]
		if string(bytes.TrimRight(name, "\x00")) == "sock" {
			seen = append(seen, e.Mask)
		}
		at += unix.SizeofInotifyEvent + int(e.Len)
	}
	if len(seen) != 1 || seen[0] != unix.IN_MOVED_TO {
		t.Errorf("changes of the socket at its path: %#x, not one move to it", seen)
	}
	if st, err := os.Stat(filepath.Join(dir, "sock")); err != nil || st.Mode() != os.ModeSocket|0o666 {
		t.Errorf("socket: %v, %v", st, err)
	}
}

// TestListen looks at what may be in a socket's place.
func TestListen(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	path := filepath.Join(dir, "s")
	l, err := Listen(path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != os.ModeSocket|0o660 {
		t.Errorf("socket: %v, %v", st.Mode(), err)
	}
	if _, err := Listen(path, 0o600); err == nil || !strings.Contains(err.Error(), "another process serves it") {
		t.Errorf("a served socket: %v", err)
	}
	_ = l.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a closed socket stays: %v", err)
	}

	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	first, err := Listen(path, 0o600)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	// Another has put its own in the place: it is not removed.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("another's socket was removed: %v", err)
	}
	_ = second.Close()

	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, 0o600); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("a file: %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

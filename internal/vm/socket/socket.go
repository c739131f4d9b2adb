// Package socket makes the unix sockets that the processes of muster-vm serve.
package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Listener is a unix socket that removes its path when it is closed, unless another process has put its own there since.
type Listener struct {
	*net.UnixListener
	path string
	made os.FileInfo
	once sync.Once
}

// Close ends listening.
func (l *Listener) Close() error {
	l.once.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.made) {
			_ = os.Remove(l.path) // a path that stays is replaced by the next listener
		}
	})
	return l.UnixListener.Close()
}

// Listen makes the socket at path, whose folder has to be there, with exactly the permission bits of mode, whatever the umask. A socket that nobody
// serves any more is replaced; one that is served, and anything else of that name, is an error that names path and leaves it as it is. The socket is made
// in a folder that only this user can enter, beside path, and moved to its place when its mode is right: before that nobody can connect. The name of
// that folder counts for the kernel's limit of 107 bytes.
func Listen(path string, mode os.FileMode) (*Listener, error) {
	fail := func(err error) (*Listener, error) { return nil, fmt.Errorf("socket %s: %w", path, err) }
	if st, err := os.Lstat(path); err == nil {
		if st.Mode().Type() != os.ModeSocket {
			return fail(errors.New("what is there is no socket, and is not removed"))
		}
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			conn.Close()
			return fail(errors.New("another process serves it"))
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fail(fmt.Errorf("it cannot be told whether another process serves it: %w", err))
		}
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	if len(made) > 107 {
		return fail(errors.New("a socket's path, and that of a folder beside it, has at most 107 bytes"))
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return fail(err)
	}
	l.SetUnlinkOnClose(false)
	var st os.FileInfo
	err = os.Chmod(made, mode)
	if err == nil {
		st, err = os.Lstat(made)
	}
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		_ = l.Close()
		return fail(err)
	}
	return &Listener{UnixListener: l, path: path, made: st}, nil
}

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ErrRunning says that another lab runs in the folder.
var ErrRunning = errors.New("a lab is already running in this folder")

// Lock takes the folder for one lab. The kernel drops the lock when the process ends, however it ends, so a lock
// is truth about liveness where a process id alone could be stale. The returned file must stay open.
func Lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lab.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the lab's folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", dir, ErrRunning)
		}
		return nil, fmt.Errorf("lock the lab's folder: %w", err)
	}
	return f, nil
}

// Running says whether a lab's process holds dir at this moment.
func Running(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, "lab.lock")); err != nil {
		return false
	}
	f, err := Lock(dir)
	if err != nil {
		return errors.Is(err, ErrRunning)
	}
	f.Close()
	return false
}

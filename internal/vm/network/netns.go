package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// linux is the machine itself: namespaces, and what netlink does. It starts no program.
type linux struct {
	dir string // of namespaces
	// sys is where sysfs is, "" for /sys; write, if set, writes its files, and vfMAC gives a function its MAC in the place of netlink. They are for tests.
	sys   string
	write func(file, text string) error
	vfMAC func(pf string, index int, mac string) error
	// fault is asked before each change and may forbid it: kill points of tests. nil in the product.
	fault func(change string) error
}

func (l *linux) may(format string, args ...any) error {
	if l.fault == nil {
		return nil
	}
	return l.fault(fmt.Sprintf(format, args...))
}

// aside runs f on a thread of its own, which f may move to another network namespace. A thread that cannot be brought home is thrown away,
// and so is one on which f ended in a defect.
func aside(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // without the unlock below, the thread ends with this goroutine
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("a defect: %v", p)
			}
		}()
		home, err := netns.Get()
		if err != nil {
			done <- fmt.Errorf("network namespace of this thread: %w", err)
			return
		}
		defer func() { _ = home.Close() }()
		err = f()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// inside runs f in a network namespace. f must not start goroutines that are to be there.
func inside(path string, f func() error) error {
	return aside(func() error {
		there, err := netns.GetFromPath(path)
		if err != nil {
			return fmt.Errorf("network namespace %s: %w", path, err)
		}
		defer func() { _ = there.Close() }()
		if err := netns.Set(there); err != nil {
			return fmt.Errorf("network namespace %s: enter: %w", path, err)
		}
		return f()
	})
}

func (l *linux) makeNetns(path string) error {
	if err := l.removeNetns(path); err != nil {
		return err
	}
	if err := l.may("make file %s", path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY|unix.O_NOFOLLOW, 0o444)
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	_ = f.Close()
	return aside(func() error {
		if err := l.may("make namespace %s", path); err != nil {
			return err
		}
		made, err := netns.New()
		if err != nil {
			return fmt.Errorf("network namespace: %w", err)
		}
		defer func() { _ = made.Close() }()
		// The name is the thread's own: it is in the new namespace now.
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("network namespace %s: bind: %w", path, err)
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("lo: %w", err)
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return fmt.Errorf("lo: up: %w", err)
		}
		return l.may("namespace %s is made", path)
	})
}

func (l *linux) removeNetns(path string) error {
	// One mount is what this process makes; more are somebody's mistake.
	for range 8 {
		if err := l.may("unmount %s", path); err != nil {
			return err
		}
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break
		}
		if err != nil {
			return fmt.Errorf("network namespace %s: unmount: %w", path, err)
		}
	}
	if err := l.may("remove %s", path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("network namespace: %w", err)
	}
	return nil
}

func (l *linux) alive(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.NSFS_MAGIC
}

func (l *linux) listNetns() ([]string, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = filepath.Join(l.dir, e.Name())
	}
	return out, nil
}

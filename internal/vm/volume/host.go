package volume

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
)

// host is all that the package does to files and devices. Tests count the calls that change something, end the process's life before and
// after each, and have devices that are plain files.
type host interface {
	// Mkdir makes a directory, unless there is one.
	Mkdir(path string, mode os.FileMode) error
	// Create makes a new file for reading and writing, for this user alone. What has its name goes first.
	Create(path string) (file, error)
	// Mknod makes a special file for a block device.
	Mknod(path string, d device, mode os.FileMode) error
	Chown(path string, uid, gid int) error
	Rename(from, to string) error
	// Remove removes a file or an empty directory; what is not there is removed.
	Remove(path string) error
	// SyncDir makes names in a directory outlive the machine's power.
	SyncDir(path string) error

	// Device says which block device a path leads to, links followed; an error of kind Invalid where it is none.
	Device(path string) (device, error)
	// Open opens a file or device. Exclusive fails with EBUSY while a device is mounted or part of another.
	Open(path string, write, exclusive bool) (file, error)
	// Number is the device of a special file, whatever lies behind it; false if there is none.
	Number(path string) (uint64, bool)
	ReadDir(path string) ([]os.DirEntry, error)
	ReadFile(path string) ([]byte, error)
}

// device is a block device.
type device struct {
	number uint64
	// size is in bytes.
	size int64
}

// file is an open file or device.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	// Fd is the descriptor, to ask where data is.
	Fd() uintptr
}

// machine is the host that the process runs on.
type machine struct{}

func (machine) Mkdir(path string, mode os.FileMode) error {
	err := os.Mkdir(path, mode)
	if errors.Is(err, os.ErrExist) {
		info, err := os.Lstat(path)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s: must be a directory", path)
		}
		return err
	}
	if err == nil {
		err = os.Chmod(path, mode) // whatever the process's umask
	}
	return err
}

func (machine) Create(path string) (file, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

func (machine) Mknod(path string, d device, mode os.FileMode) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := unix.Mknod(path, unix.S_IFBLK|uint32(mode), int(d.number)); err != nil {
		return &os.PathError{Op: "mknod", Path: path, Err: err}
	}
	return os.Chmod(path, mode)
}

func (machine) Chown(path string, uid, gid int) error { return os.Lchown(path, uid, gid) }
func (machine) Rename(from, to string) error          { return os.Rename(from, to) }

func (machine) Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (machine) SyncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (machine) Device(path string) (device, error) {
	// Nothing is opened before it is known to be a block device: opening others can do something.
	info, err := os.Stat(path)
	if err != nil {
		return device{}, err
	}
	number, ok := blockNumber(info)
	if !ok {
		return device{}, vm.Errorf(vm.Invalid, "%s: must be a block device, is %s", path, kindOf(info))
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return device{}, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return device{}, err
	}
	if after, ok := blockNumber(info); !ok || after != number {
		return device{}, fmt.Errorf("%s: was exchanged while it was opened", path)
	}
	size, err := f.Seek(0, io.SeekEnd)
	return device{number: number, size: size}, err
}

func (machine) Open(path string, write, exclusive bool) (file, error) {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	if exclusive {
		flag |= os.O_EXCL
	}
	return os.OpenFile(path, flag|syscall.O_NOFOLLOW, 0)
}

func (machine) Number(path string) (uint64, bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, false
	}
	return blockNumber(info)
}

func (machine) ReadDir(path string) ([]os.DirEntry, error) { return os.ReadDir(path) }

func (machine) ReadFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 4096))
}

func blockNumber(info os.FileInfo) (uint64, bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&os.ModeDevice == 0 || info.Mode()&os.ModeCharDevice != 0 {
		return 0, false
	}
	return stat.Rdev, true
}

// kindOf says in words what a file is.
func kindOf(info os.FileInfo) string {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return "a regular file"
	case mode.IsDir():
		return "a directory"
	case mode&os.ModeSymlink != 0:
		return "a link"
	case mode&os.ModeNamedPipe != 0:
		return "a pipe"
	case mode&os.ModeSocket != 0:
		return "a socket"
	case mode&os.ModeCharDevice != 0:
		return "a character device"
	}
	return "a block device"
}

// place makes a file with content in one step: it has its name when it is whole, synced, and QEMU's if it is to be.
func (s *site) place(path string, forQEMU bool, write func(file) error) error {
	part := path + partSuffix
	f, err := s.host.Create(part)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil && forQEMU {
		err = s.give(part)
	}
	if err == nil {
		err = s.host.Rename(part, path)
	}
	if err == nil {
		err = s.host.SyncDir(filepath.Dir(path))
	}
	return err
}

// give gives a file to QEMU's user.
func (s *site) give(path string) error {
	if s.options.QEMU == nil {
		return nil
	}
	return s.host.Chown(path, s.options.QEMU.UID, s.options.QEMU.GID)
}

const partSuffix = ".part"

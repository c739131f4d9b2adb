package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// fileSystem is all that the store does to its directory. Names are relative to it. Tests count the calls that change something, and end
// the process's life before and after each.
type fileSystem interface {
	// Mkdir makes a folder, unless there is one.
	Mkdir(name string, mode os.FileMode) error
	// Open opens a regular file. Links, devices and files with a second name are refused.
	Open(name string, write bool) (file, error)
	// Create makes a new file, for reading and writing.
	Create(name string, mode os.FileMode) (file, error)
	Rename(from, to string) error
	// Remove removes a file. What is not there is removed.
	Remove(name string) error
	Lstat(name string) (os.FileInfo, error)
	ReadDir(name string) ([]os.DirEntry, error)
	// SyncDir makes names in a folder outlive the machine's power.
	SyncDir(name string) error
	// Free is what unprivileged users may still write to the filesystem, in bytes.
	Free() (int64, error)
}

// file is a regular file of the store.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Chmod(mode os.FileMode) error
	Sync() error
	Stat() (os.FileInfo, error)
}

// directory is a fileSystem below one folder. os.Root lets no name and no link lead out of it.
type directory struct {
	root *os.Root
}

func (d directory) Mkdir(name string, mode os.FileMode) error {
	err := d.root.Mkdir(name, mode)
	if errors.Is(err, os.ErrExist) {
		info, err := d.root.Lstat(name)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s: must be a folder, is %s", name, info.Mode().Type())
		}
		return err
	}
	if err == nil {
		err = d.root.Chmod(name, mode) // whatever the process's umask
	}
	return err
}

func (d directory) Open(name string, write bool) (file, error) {
	before, err := d.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if stat, ok := before.Sys().(*syscall.Stat_t); !before.Mode().IsRegular() || ok && stat.Nlink != 1 {
		return nil, fmt.Errorf("%s: must be a regular file of one name, and was not put there by the image store", name)
	}
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	f, err := d.root.OpenFile(name, flag|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	after, err := f.Stat()
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%s: was exchanged while it was opened", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (d directory) Create(name string, mode os.FileMode) (file, error) {
	return d.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
}

func (d directory) Rename(from, to string) error { return d.root.Rename(from, to) }

func (d directory) Remove(name string) error {
	if err := d.root.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (d directory) Lstat(name string) (os.FileInfo, error) { return d.root.Lstat(name) }

func (d directory) ReadDir(name string) ([]os.DirEntry, error) {
	f, err := d.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

func (d directory) SyncDir(name string) error {
	f, err := d.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (d directory) Free() (int64, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var stat syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &stat); err != nil {
		return 0, fmt.Errorf("statfs: %w", err)
	}
	return int64(stat.Bavail) * stat.Bsize, nil
}

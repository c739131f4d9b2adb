package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Garbage is a file that GC takes.
type Garbage struct {
	// Path of the file, below the store's directory.
	Path string
	// Bytes that it takes on the disk.
	Bytes int64
	// Why it goes, in a few words.
	Why string
}

// GC removes the files that nobody needs: disks that no image has and that are not in use, and rests of pulls that broke off longer ago than
// Options.PartAge. It gives them in order of path; with dry it removes none. Images themselves never go: they are the kubelet's to remove. If
// Options.InUse fails, nothing goes, and the error is Unavailable.
func (s *Store) GC(dry bool) ([]Garbage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	garbage, err := s.garbage()
	if err != nil || dry {
		return garbage, err
	}
	for i, g := range garbage {
		if err := s.fs.Remove(g.Path); err != nil {
			return garbage[:i], fmt.Errorf("image store: %w", err)
		}
	}
	return garbage, nil
}

func (s *Store) garbage() ([]Garbage, error) {
	used, err := s.used()
	if err != nil {
		return nil, vm.Errorf(vm.Unavailable, "image store: which images are in use is not known, so none is collected: %w", err)
	}
	var garbage []Garbage
	take := func(path string, info os.FileInfo, why string) {
		garbage = append(garbage, Garbage{Path: path, Bytes: allocated(info), Why: why})
	}
	err = s.each(disksDir, func(path string, info os.FileInfo) {
		id, err := ParseDigest(sha256Prefix + filepath.Base(path))
		if err == nil && s.index.byID(id) < 0 && !used[id] {
			take(path, info, "no image has this disk")
		}
	})
	if err != nil {
		return nil, err
	}
	err = s.each(partsDir, func(path string, info os.FileInfo) {
		key, _, _ := strings.Cut(filepath.Base(path), ".")
		if age := s.options.Now().Sub(info.ModTime()); s.busy[key] == nil && age >= s.options.PartAge {
			take(path, info, "a pull that broke off")
		}
	})
	if err != nil {
		return nil, err
	}
	if info, err := s.fs.Lstat(indexFile + temporary); err == nil && info.Mode().IsRegular() {
		take(indexFile+temporary, info, "an index that was not finished")
	}
	slices.SortFunc(garbage, func(a, b Garbage) int { return strings.Compare(a.Path, b.Path) })
	return garbage, nil
}

// each visits the regular files of a folder. What else lies there is not the store's.
func (s *Store) each(dir string, visit func(path string, info os.FileInfo)) error {
	entries, err := s.fs.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("image store: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		info, err := s.fs.Lstat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("image store: %w", err)
		}
		if info.Mode().IsRegular() {
			visit(path, info)
		}
	}
	return nil
}

func allocated(info os.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512
	}
	return info.Size()
}

// Usage is what the store takes of its filesystem.
type Usage struct {
	// Mountpoint is where that filesystem is mounted: the highest folder above the store with the same device.
	Mountpoint string
	// Bytes and Inodes of the store's files and folders. Holes take no bytes.
	Bytes, Inodes int64
}

// Usage counts the store's files.
func (s *Store) Usage() (Usage, error) {
	var u Usage
	count := func(_ string, info os.FileInfo) {
		u.Bytes += allocated(info)
		u.Inodes++
	}
	for _, dir := range []string{".", disksDir, partsDir} {
		info, err := s.fs.Lstat(dir)
		if err != nil {
			return Usage{}, fmt.Errorf("image store: %w", err)
		}
		count(dir, info)
		if err := s.each(dir, count); err != nil {
			return Usage{}, err
		}
	}
	at, err := filepath.Abs(s.dir)
	if err == nil {
		at, err = filepath.EvalSymlinks(at)
	}
	if err != nil {
		return Usage{}, fmt.Errorf("image store: %w", err)
	}
	device, err := deviceOf(at)
	for ; err == nil && at != filepath.Dir(at); at = filepath.Dir(at) {
		var above uint64
		if above, err = deviceOf(filepath.Dir(at)); above != device {
			break
		}
	}
	if err != nil {
		return Usage{}, fmt.Errorf("image store: %w", err)
	}
	u.Mountpoint = at
	return u, nil
}

func deviceOf(path string) (uint64, error) {
	var stat syscall.Stat_t
	err := syscall.Lstat(path, &stat)
	return uint64(stat.Dev), err
}

package console

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openRaw opens the raw output, if it is not open. One that is another file than the state's, or shorter than it was, has lost something.
func (w *writer) openRaw() error {
	if w.raw != nil {
		return nil
	}
	f, err := os.OpenFile(w.o.raw(), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	id, size, err := idOf(f)
	if err != nil {
		f.Close()
		return err
	}
	w.raw = f
	if id != w.state.Raw || size < w.state.Offset {
		first := w.state
		first.Raw, first.Offset, first.Unknown = id, 0, first.Unknown || first.Raw != fileID{}
		if err := w.commit(first); err != nil {
			return err
		}
	}
	w.behind = size - w.state.Offset
	return nil
}

// read fills the buffer with what follows the state's offset.
func (w *writer) read() ([]byte, error) {
	n, err := w.raw.ReadAt(w.buffer[:cap(w.buffer)], w.state.Offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return w.buffer[:n], err
}

// waiting is how many bytes have not been read.
func (w *writer) waiting() (int64, error) {
	_, size, err := idOf(w.raw)
	return max(size-w.state.Offset, 0), err
}

const (
	blockLength = 4096
	// punchEvery keeps the calls few: so many bytes that are in the log already may still take room.
	punchEvery = 1 << 20
)

// punch gives back the room of what is in the log.
func (w *writer) punch(all bool) {
	if w.raw == nil || w.noHoles {
		return
	}
	from, to := w.punched.Load(), w.state.Offset/blockLength*blockLength
	if to <= from || to-from < w.punchEvery && !all {
		return
	}
	w.punched.Store(to) // before it is done: who reads there afterwards knows that it may be nothing
	err := w.write("punch raw", func() error {
		return unix.Fallocate(int(w.raw.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
	}, nil)
	if err != nil {
		w.noHoles = true
		w.o.Logger.Error(err, "The room of a guest's raw output cannot be given back: the file grows until the guest ends", "file", w.raw.Name())
	}
}

// Probe says whether a folder is fit for raw output: its file system has to punch holes (ext4, XFS, Btrfs and tmpfs do).
func Probe(folder string) error {
	f, err := os.CreateTemp(folder, ".probe-*")
	if err != nil {
		return err
	}
	defer f.Close()
	defer func() { _ = os.Remove(f.Name()) }()
	if _, err := f.Write(make([]byte, 2*blockLength)); err != nil {
		return err
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, blockLength); err != nil {
		return fmt.Errorf("folder %s: its file system cannot punch holes, so the raw output of guests would not be bounded; use ext4, XFS, Btrfs or tmpfs: %w",
			filepath.Clean(folder), err)
	}
	return nil
}

package console

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// readLength is how much of the raw output is looked at in one step, batchLength about how much of the log is written in one.
	readLength  = 64 << 10
	batchLength = 128 << 10
	// maxTail is how much of the log may be unknown to the state: batches of a process that could not write its state.
	maxTail = 4 << 20
)

// writer makes the log out of the raw output. One goroutine uses it.
type writer struct {
	o     Options
	state state
	// dirty says that the state is not in its file.
	dirty     bool
	stateFile *os.File
	log       *os.File
	raw       *os.File
	buffer    []byte
	// replay are lines of the log that the state does not know of, and replayEnd where they end.
	replay    [][]byte
	replayEnd int64
	// behind is what was there to be read when the raw output was opened, and has not been yet: it does not count for the limit.
	behind  int64
	noHoles bool
	// punched is up to where room was given back, or is about to be.
	punched    atomic.Int64
	punchEvery int64
	// write does what changes something on disk. half is a part of it, for a test that dies in its midst.
	write func(what string, op func() error, half func()) error
}

func newWriter(o Options) (*writer, error) {
	w := &writer{o: o, write: o.write, punchEvery: punchEvery}
	if w.write == nil {
		w.write = func(_ string, op func() error, _ func()) error { return op() }
	}
	f, err := os.OpenFile(o.State, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	w.stateFile = f
	s, ok, err := readState(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("console: %w", err)
	}
	if info, err := f.Stat(); err == nil && !ok && info.Size() > slotLength {
		o.Logger.Info("The state of a console is damaged; its output is read from the beginning, and the log may have lines twice", "file", o.State)
	}
	w.state = s
	return w, nil
}

func (w *writer) close() {
	w.stateFile.Close()
	if w.log != nil {
		w.log.Close()
	}
	if w.raw != nil {
		w.raw.Close()
	}
}

// commit makes a state the state, and writes it. The state counts even if it cannot be written: what is in the log is in the log.
func (w *writer) commit(s state) error {
	s.Sequence = w.state.Sequence + 1
	w.state, w.dirty = s, true
	return w.flush()
}

func (w *writer) flush() error {
	if !w.dirty {
		return nil
	}
	slot, err := w.state.encode()
	if err != nil {
		return err
	}
	at := int64(w.state.Sequence%2) * slotLength
	err = w.write("write state", func() error {
		_, err := w.stateFile.WriteAt(slot, at)
		return err
	}, func() { _, _ = w.stateFile.WriteAt(slot[:sumLength+32], at) })
	if err == nil {
		w.dirty = false
	}
	return err
}

// openLog opens the log, if it is not open. Lines that the state does not know of are found in it, or, if the kubelet has renamed it since, in the file of
// another name, which is then read to its end before the log is made anew.
func (w *writer) openLog() error {
	if w.log != nil || w.o.Log == "" {
		return nil
	}
	if path := w.findLog(); path != "" {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		if err := w.readTail(f); err != nil {
			f.Close()
			return err
		}
		w.log = f
		return nil
	}
	return w.switchLog()
}

// findLog is where the state's log file lies now; "" where it is nowhere.
func (w *writer) findLog() string {
	if w.state.Log == (fileID{}) {
		return ""
	}
	if id, err := idAt(w.o.Log); err == nil && id == w.state.Log {
		return w.o.Log
	}
	dir, base := filepath.Split(w.o.Log)
	f, err := os.Open(dir)
	if err != nil {
		return ""
	}
	defer f.Close()
	names, _ := f.Readdirnames(1 << 16) // what was read counts
	for _, name := range names {
		if path := filepath.Join(dir, name); strings.HasPrefix(name, base+".") {
			if id, err := idAt(path); err == nil && id == w.state.Log {
				return path
			}
		}
	}
	return ""
}

// readTail finds the lines after the state's size, and takes off one that was cut short.
func (w *writer) readTail(f *os.File) error {
	_, size, err := idOf(f)
	if err != nil {
		return err
	}
	w.replay, w.replayEnd = nil, size
	if size < w.state.Size { // somebody has cut it
		w.state.Size = size
		return nil
	}
	from := max(w.state.Size, size-maxTail)
	tail, err := io.ReadAll(io.NewSectionReader(f, from, size-from))
	if err != nil {
		return err
	}
	if torn := len(tail) - 1 - bytes.LastIndexByte(tail, '\n'); torn > 0 {
		w.replayEnd = size - int64(torn)
		if err := w.write("cut log", func() error { return f.Truncate(w.replayEnd) }, nil); err != nil {
			return err
		}
		tail = tail[:len(tail)-torn]
	}
	if from > w.state.Size { // too much to be ours
		w.state.Size = w.replayEnd
		return nil
	}
	for line := range bytes.Lines(tail) {
		w.replay = append(w.replay, line[:len(line)-1])
	}
	return nil
}

// switchLog opens the file that has the log's name, or makes it.
func (w *writer) switchLog() error {
	var f *os.File
	err := w.write("open log", func() (err error) {
		f, err = os.OpenFile(w.o.Log, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o640)
		return err
	}, nil)
	if err != nil {
		if f != nil {
			f.Close()
		}
		return err
	}
	id, size, err := idOf(f)
	if err != nil {
		f.Close()
		return err
	}
	if w.log != nil {
		w.log.Close()
	}
	w.log, w.replay, w.replayEnd = f, nil, size
	if id == w.state.Log && size == w.state.Size {
		return nil
	}
	s := w.state
	s.Log, s.Size = id, size
	return w.commit(s)
}

// reopen is what the kubelet asks for after it has renamed the log.
func (w *writer) reopen() error {
	if w.o.Log == "" {
		return nil
	}
	if err := w.openLog(); err != nil {
		return err
	}
	for len(w.replay) > 0 { // they are in the old file
		more, err := w.step(false)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	return w.switchLog()
}

// step translates some of what has been said. more says that there may be more to do at once. end says that the guest has ended: what has no line's end is written
// too. After an error nothing is lost: it is tried again.
func (w *writer) step(end bool) (more bool, err error) {
	if err := w.openRaw(); err != nil {
		return false, err
	}
	err = errors.Join(w.flush(), w.openLog())
	if err := errors.Join(err, w.bound()); err != nil { // a log that cannot be opened bounds nothing
		return false, err
	}
	if len(w.replay) == 0 && w.renamed() {
		return true, w.switchLog()
	}
	waiting, err := w.waiting()
	if err != nil {
		return false, err
	}
	if need := int(min(readLength, waiting+1)); cap(w.buffer) < need { // one more than there is shows that it was all
		w.buffer = make([]byte, 0, need)
	}
	said, err := w.read()
	if err != nil {
		return false, err
	}
	return w.translate(said, end && len(said) < cap(said))
}

// renamed says that the open log is a file that no longer has its name because the kubelet renamed it while no runtime was there to be told. One that was renamed under a
// running one is written to until reopen, as the kubelet expects.
func (w *writer) renamed() bool {
	return w.log != nil && w.log.Name() != w.o.Log
}

// translate writes the entries of what was said, and then the state.
func (w *writer) translate(said []byte, end bool) (more bool, err error) {
	now, after := w.o.Now(), w.state
	var out, text []byte
	add := func(e entry) {
		if w.o.Log == "" {
			return
		}
		if len(w.replay) > 0 {
			text = e.appendText(text[:0])
			if line := w.replay[0]; bytes.Equal(withoutTime(line), text) {
				w.replay = w.replay[1:]
				after.Size += int64(len(line)) + 1
				return
			}
			w.replay, after.Size = nil, w.replayEnd // somebody else wrote them
		}
		out = e.appendTo(out, now)
	}
	if after.Lost > 0 || after.Unknown {
		add(lossEntry(after.Lost, after.Unknown))
		after.Lost, after.Unknown = 0, false
	}
	used := 0
	for len(out) < batchLength {
		e, n := next(said[used:], end)
		if n == 0 {
			break
		}
		add(e)
		used += n
	}
	if after == w.state && used == 0 {
		return false, nil
	}
	after.Offset += int64(used)
	if len(out) > 0 {
		if err := w.append(out, after.Size); err != nil {
			return false, err
		}
		after.Size += int64(len(out))
	}
	w.behind = max(0, w.behind-int64(used))
	if err := w.commit(after); err != nil {
		return false, err
	}
	w.punch(false)
	return true, nil
}

// append writes to the end of the log, which is at size, all or nothing.
func (w *writer) append(out []byte, size int64) error {
	err := w.write("append log", func() error {
		_, err := w.log.Write(out)
		return err
	}, func() { _, _ = w.log.Write(out[:len(out)/2]) })
	if err == nil {
		return nil
	}
	// What was written of it is taken off; if that fails too, opening the log again does it.
	_ = w.write("cut log", func() error { return w.log.Truncate(size) }, nil)
	w.log.Close()
	w.log = nil
	return err
}

// bound leaves out the oldest output when more is waiting than may.
func (w *writer) bound() error {
	if len(w.replay) > 0 {
		return nil
	}
	waiting, err := w.waiting()
	if err != nil || waiting <= w.behind+w.o.Limit {
		return err
	}
	skip := waiting - w.behind - w.o.Limit/2
	// What is left begins with a line, if there is one near.
	b := make([]byte, lookahead)
	n, _ := w.raw.ReadAt(b, w.state.Offset+skip) // what was read counts
	skip += int64(bytes.IndexByte(b[:n], '\n') + 1)
	after := w.state
	after.Offset += skip
	after.Lost += skip
	err = w.commit(after)
	w.punch(false)
	return err
}

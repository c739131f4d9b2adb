package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options say where a journal is, and how much it keeps.
type Options struct {
	// Folder is made if it is not there. One process at a time may write in it.
	Folder string
	// Keep is how long entries are kept, at least an hour; Bytes how much of the disk they may take, at least 64 KiB. Zero values are DefaultKeep and DefaultBytes.
	Keep  time.Duration
	Bytes int64
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	open func(path string) (file, error) // of segments; tests break it
}

// What a journal keeps if nobody says otherwise, and the least that it can be told to.
const (
	DefaultKeep          = 7 * 24 * time.Hour
	DefaultBytes   int64 = 2 << 30
	leastKeep            = time.Hour
	leastBytes     int64 = 64 << 10
	segmentPart          = 32      // a segment is this part of the bytes, and of the time, at most
	largestSegment       = 8 << 20 // so that to replay a cycle does not read more
)

// ErrInUse says that another process writes in the folder.
var ErrInUse = errors.New("another process keeps a journal there")

// ErrFull wraps the disk's error of an entry that could not be written. The journal goes on: the next entry that can be written is a gap that counts what was left out.
var ErrFull = errors.New("the journal could not be written")

// file is a segment that is written.
type file interface {
	io.Writer
	Truncate(size int64) error
	Sync() error
	Close() error
}

// Journal is an open one. It is safe for concurrent use; Close it.
type Journal struct {
	o    Options
	lock *os.File

	mu       sync.Mutex
	segments []*segment // oldest first; the last one is written, if active is set
	active   file
	packer   packer
	bases    map[string]bool // shards that have a whole cycle in the active segment, from which the next can differ
	next     uint64
	latest   map[string]time.Time // moment of each shard's last cycle
	lost     uint64               // entries that could not be written, and since when
	lostAt   time.Time
	lostWhy  string
	closed   bool
}

// segment is a file.
type segment struct {
	path        string
	first       uint64 // number
	size        int64
	begun, last time.Time // of its first entry, and the latest of it
	cycles      int
}

const suffix = ".journal"

// Open opens the journal in a folder, or begins one. What a crash has left unfinished is cut off. The journal begins with a gap that says since when nobody kept it, and another for what was cut. An
// error is of the options, of the folder, or wraps ErrInUse.
func Open(o Options) (*Journal, error) {
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	if o.Bytes == 0 {
		o.Bytes = DefaultBytes
	}
	switch {
	case o.Folder == "":
		return nil, errors.New("a journal takes a folder")
	case o.Keep < leastKeep:
		return nil, fmt.Errorf("a journal of %s is too short: at least %s", o.Keep, leastKeep)
	case o.Bytes < leastBytes:
		return nil, fmt.Errorf("a journal of %d bytes is too small: at least %d", o.Bytes, leastBytes)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.open == nil {
		o.open = openFile
	}
	if err := os.MkdirAll(o.Folder, 0o700); err != nil {
		return nil, fmt.Errorf("make the journal's folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(o.Folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("%w: %s: %w", ErrInUse, o.Folder, err)
	}
	j := &Journal{o: o, lock: lock, next: 1, bases: map[string]bool{}, latest: map[string]time.Time{}}
	gaps, err := j.load()
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	for _, g := range gaps { // a disk that is full now is told when it takes something again
		_, _ = j.Append(&Entry{Kind: Gap, At: o.Now(), Missing: g}, nil)
	}
	return j, nil
}

func openFile(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// load finds the segments that are there, and cuts the last one where its last whole entry ends.
func (j *Journal) load() (gaps []*Missing, err error) {
	names, err := filepath.Glob(filepath.Join(j.o.Folder, "*"+suffix))
	if err != nil {
		return nil, err
	}
	slices.Sort(names) // numbers are of one width
	for i, name := range names {
		first, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(name), suffix), 10, 64)
		if err != nil {
			continue // somebody else's
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		s := &segment{path: name, first: first, size: info.Size()}
		whole, last := i == len(names)-1, uint64(0)
		good, err := j.scan(s, func(f *framed) bool {
			if s.begun.IsZero() {
				s.begun = f.At
			}
			if f.At.After(s.last) {
				s.last = f.At
			}
			last = f.Number
			return whole // of earlier ones the first entry is enough
		})
		if err != nil && !errors.Is(err, errFrame) {
			return nil, err
		}
		if s.begun.IsZero() { // nothing whole is in it
			gaps = append(gaps, &Missing{Why: Torn, Detail: fmt.Sprintf("%d bytes of a file that has no whole entry", s.size)})
			j.next = max(j.next, first+1)
			if err := os.Remove(name); err != nil {
				return nil, err
			}
			continue
		}
		if whole && errors.Is(err, errFrame) {
			gaps = append(gaps, &Missing{Why: Torn, Since: s.last, Detail: fmt.Sprintf("%d bytes after the last whole entry", s.size-good)})
			if err := os.Truncate(name, good); err != nil {
				return nil, err
			}
			s.size = good
			last++ // the number that was being written
		}
		if n := len(j.segments); n > 0 && j.segments[n-1].last.Before(s.begun) {
			j.segments[n-1].last = s.begun // at the latest
		}
		j.segments = append(j.segments, s)
		j.next = max(j.next, last+1, first+1)
	}
	if n := len(j.segments); n > 0 {
		gaps = append(gaps, &Missing{Why: Away, Since: j.segments[n-1].last})
	}
	return gaps, nil
}

// scan reads a segment from its start on, as long as the callee wants more. It returns up to where whatever was read is whole, and errFrame if what follows is no whole entry.
func (j *Journal) scan(s *segment, each func(*framed) bool) (good int64, err error) {
	f, err := os.Open(s.path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<16)
	for {
		e, err := readFrame(r, s.size-good)
		if errors.Is(err, io.EOF) {
			return good, nil
		}
		if err != nil {
			return good, err
		}
		good += e.size
		if !each(e) {
			return good, nil
		}
	}
}

// Append writes an entry, and gives it its number, which it returns. A cycle has a body, which is asked for once it is known whether it has to be a whole one; whoever makes it says which it is. An error
// wraps ErrFull, or is the body's; nothing has been written then, and the shard's next cycle will be asked for whole. It blocks for as long as the disk does.
func (j *Journal) Append(e *Entry, body func(w io.Writer, whole bool) (isWhole bool, err error)) (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lost > 0 {
		g := &Entry{At: j.o.Now(), Kind: Gap, Missing: &Missing{Why: Full, Count: j.lost, Since: j.lostAt, Detail: j.lostWhy}}
		if err := j.append(g, nil); err != nil {
			return 0, j.lose(err)
		}
		j.lost, j.lostWhy = 0, ""
	}
	if back := j.latest[e.Shard].Sub(e.At); e.Kind == Cycle && back > 0 {
		g := &Entry{At: e.At, Shard: e.Shard, Kind: Gap, Missing: &Missing{Why: SetBack, Since: j.latest[e.Shard], Detail: "the clock was set back by " + back.String()}}
		if err := j.append(g, nil); err != nil {
			return 0, j.lose(err)
		}
	}
	if err := j.append(e, body); err != nil {
		return 0, j.lose(err)
	}
	return e.Number, nil
}

// lose counts an entry that is not written.
func (j *Journal) lose(err error) error {
	clear(j.bases)
	if j.lost == 0 {
		j.lostAt, j.lostWhy = j.o.Now(), reasonOf(err)
	}
	j.lost++
	return fmt.Errorf("%w: %w", ErrFull, err)
}

// reasonOf is what the system says, without paths.
func reasonOf(err error) string {
	var n syscall.Errno
	if errors.As(err, &n) {
		return n.Error()
	}
	return "it could not be written"
}

func (j *Journal) append(e *Entry, body func(io.Writer, bool) (bool, error)) error {
	if j.closed {
		return os.ErrClosed
	}
	if err := j.roll(e.At); err != nil {
		return err
	}
	s := j.segments[len(j.segments)-1]
	e.Number = j.next
	isWhole := false
	var write func(io.Writer) error
	if body != nil {
		write = func(w io.Writer) (err error) {
			if isWhole, err = body(w, !j.bases[e.Shard]); err == nil && !isWhole && !j.bases[e.Shard] {
				err = errors.New("a cycle is to be whole, and is not")
			}
			return err
		}
	}
	out, err := j.packer.frame(e, write)
	if err != nil {
		return err
	}
	j.drop(e.At, int64(len(out)))
	if _, err := j.active.Write(out); err != nil {
		// What is there of it is cut off; if that fails too, another segment begins, and readers of this one meet what is no whole entry at its end.
		if cut := j.active.Truncate(s.size); cut != nil || s.size == 0 {
			j.seal()
		}
		return err
	}
	if isWhole {
		j.bases[e.Shard] = true
	}
	if body != nil {
		s.cycles++
	}
	if s.begun.IsZero() {
		s.begun = e.At
	}
	if e.At.After(s.last) {
		s.last = e.At
	}
	if e.Kind == Cycle {
		j.latest[e.Shard] = e.At
	}
	s.size += int64(len(out))
	j.next++
	return nil
}

// seal ends the active segment; an empty one is removed.
func (j *Journal) seal() {
	if j.active == nil {
		return
	}
	_ = j.active.Sync()  // what the disk did not keep is found damaged,
	_ = j.active.Close() // and told
	j.active = nil
	clear(j.bases)
	if n := len(j.segments); j.segments[n-1].size == 0 {
		_ = os.Remove(j.segments[n-1].path)
		j.segments = j.segments[:n-1]
	}
}

// roll begins a segment where there is none that is neither full nor old.
func (j *Journal) roll(now time.Time) error {
	if j.active != nil {
		if s := j.segments[len(j.segments)-1]; s.size >= min(j.o.Bytes/segmentPart, largestSegment) || s.cycles >= 1024 || now.Sub(s.begun) >= j.o.Keep/segmentPart && !s.begun.IsZero() {
			j.seal()
		}
	}
	if j.active != nil {
		return nil
	}
	s := &segment{path: filepath.Join(j.o.Folder, fmt.Sprintf("%020d%s", j.next, suffix)), first: j.next}
	f, err := j.o.open(s.path)
	if err != nil {
		return err
	}
	j.active = f
	j.segments = append(j.segments, s)
	clear(j.bases)
	return nil
}

// drop removes the oldest segments, as long as there are too many bytes, with those that are to come, or they are too old.
func (j *Journal) drop(now time.Time, more int64) {
	total := int64(0)
	for _, s := range j.segments {
		total += s.size
	}
	for len(j.segments) > 1 && (total+more > j.o.Bytes || now.Sub(j.segments[0].last) > j.o.Keep) {
		total -= j.segments[0].size
		_ = os.Remove(j.segments[0].path) // what stays is found at the next start
		j.segments = j.segments[1:]
	}
}

// Close ends writing. Nothing may be appended after it.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var err error
	j.closed = true
	if j.active != nil {
		err = errors.Join(j.active.Sync(), j.active.Close())
		j.active = nil
	}
	if err := errors.Join(err, j.lock.Close()); err != nil {
		return fmt.Errorf("close the journal: %w", err)
	}
	return nil
}

package history

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"os"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"go.etcd.io/bbolt"
)

// The file's form. Times are Unix milliseconds, as eight bytes, the highest first, so that keys are in their order.
//
//	"last"                      "time" ──► the newest time that has a sample
//	"blocks" / start / metric / "series"    labels as JSON ──► number, from 1 on
//	                          / "samples"   time ──► row: (number − the one before, value)…
//
// A block has the samples of the blockLength that begins at its start, and its own numbers, so that deleting it leaves nothing of
// queues that are gone. The numbers of a row are uvarints, and so are its values, as the eight bytes of IEEE 754 in reverse order: what
// is round in binary, as whole GPUs are, takes few bytes.
var (
	keyLast    = []byte("last")
	keyTime    = []byte("time")
	keyBlocks  = []byte("blocks")
	keySeries  = []byte("series")
	keySamples = []byte("samples")
)

// blockLength is in milliseconds. Blocks begin at multiples of it.
const blockLength = int64(6 * time.Hour / time.Millisecond)

// series is one as the file has it.
type series struct {
	metric string
	key    string // its labels as JSON, the metric's name among them
}

// point is what a series was at a time that its user knows.
type point struct {
	of    series
	value float64
}

func seriesOf(l labels.Labels) (series, error) {
	key, err := json.Marshal(l)
	if err != nil {
		return series{}, fmt.Errorf("the labels %s: %w", l, err)
	}
	name := l.Get(model.MetricNameLabel)
	if name == "" {
		return series{}, fmt.Errorf("the labels %s name no metric", l)
	}
	return series{name, string(key)}, nil
}

// damage is an error of a file that cannot be read.
type damage struct {
	path string
	what any
}

// Error implements error.
func (d *damage) Error() string {
	return fmt.Sprintf("%s is damaged: %v (without the file the history begins anew)", d.path, d.what)
}

// handle does something with the file at a path. bbolt trusts what it reads: of a damaged file it panics, or reads where there is nothing.
// That is an error of the file, not of the program. Errors name the path.
func handle(path string, do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &damage{path, p}
		}
	}()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// openFile opens the file. A file that turns out to be damaged is let go of, so that it can be tried again; bbolt would keep its lock.
func openFile(path string, sync bool) (db *bbolt.DB, file *os.File, err error) {
	err = handle(path, func() (err error) {
		db, err = bbolt.Open(path, 0o666, &bbolt.Options{
			Timeout: lockWait, NoSync: !sync, FreelistType: bbolt.FreelistMapType,
			OpenFile: func(path string, flag int, mode os.FileMode) (_ *os.File, err error) {
				file, err = os.OpenFile(path, flag, mode)
				return file, err
			},
		})
		return err
	})
	if errors.As(err, new(*damage)) {
		_ = letGo(file) // the damage is what matters
	}
	return db, file, err
}

// letGo closes a file that bbolt cannot close. It stays mapped, which would keep its lock.
func letGo(file *os.File) error {
	return errors.Join(syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
}

// view reads the file, and update changes it: wholly and for good, or not at all.
func (s *Store) view(do func(*bbolt.Tx) error) error {
	return s.handle(func() error { return s.db.View(do) })
}

func (s *Store) update(do func(*bbolt.Tx) error) error {
	return s.handle(func() error { return s.db.Update(do) })
}

// handle does something with the file as long as it is not damaged. Then nobody asks it again: bbolt may hold its own locks for ever.
func (s *Store) handle(do func() error) error {
	if d := s.damage.Load(); d != nil {
		return d
	}
	err := handle(s.path, do)
	if d := new(damage); errors.As(err, &d) {
		s.damage.Store(d)
	}
	return err
}

// closeFile lets go of the file, and of what it was mapped to unless that is damaged.
func (s *Store) closeFile() error {
	if s.damage.Load() != nil {
		return letGo(s.file)
	}
	return s.db.Close()
}

func timeKey(at int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(at)) }

func keyTimeOf(key []byte) int64 {
	if len(key) != 8 {
		return math.MinInt64
	}
	return int64(binary.BigEndian.Uint64(key))
}

// newest is the newest time that has a sample, if any has.
func newest(tx *bbolt.Tx) (at int64, known bool) {
	b := tx.Bucket(keyLast)
	if b == nil {
		return 0, false
	}
	key := b.Get(keyTime)
	return keyTimeOf(key), key != nil
}

// put adds points at a time. What a series has at that time already stays.
func put(tx *bbolt.Tx, at int64, points []point) error {
	if at < 0 {
		return fmt.Errorf("a sample of %s: there is no usage before 1970", time.UnixMilli(at).UTC().Format(time.RFC3339))
	}
	if last, known := newest(tx); !known || at > last {
		b, err := tx.CreateBucketIfNotExists(keyLast)
		if err != nil {
			return err
		}
		if err := b.Put(keyTime, timeKey(at)); err != nil {
			return err
		}
	}
	block, err := below(tx, keyBlocks, timeKey(at-at%blockLength))
	if err != nil {
		return err
	}
	byMetric := map[string][]point{}
	for _, p := range points {
		byMetric[p.of.metric] = append(byMetric[p.of.metric], p)
	}
	for metric, points := range byMetric { // order: each has its own bucket
		b, err := below(block, []byte(metric))
		if err != nil {
			return err
		}
		if err := putRow(b, at, points); err != nil {
			return err
		}
	}
	return nil
}

// parent is what buckets can be made in.
type parent interface {
	CreateBucketIfNotExists(key []byte) (*bbolt.Bucket, error)
}

// below is the bucket at the end of a path, made where it is missing.
func below(p parent, path ...[]byte) (b *bbolt.Bucket, err error) {
	for _, key := range path {
		if b, err = p.CreateBucketIfNotExists(key); err != nil {
			return nil, fmt.Errorf("%q: %w", key, err)
		}
		p = b
	}
	return b, nil
}

// putRow adds points of one metric at a time.
func putRow(metric *bbolt.Bucket, at int64, points []point) error {
	numbers, err := below(metric, keySeries)
	if err != nil {
		return err
	}
	rows, err := below(metric, keySamples)
	if err != nil {
		return err
	}
	rows.FillPercent = 0.95 // times grow: pages are filled from left to right
	values := make(map[uint64]float64, len(points))
	for _, p := range points {
		number, err := numberOf(numbers, p.of.key)
		if err != nil {
			return err
		}
		values[number] = p.value
	}
	err = readRow(rows.Get(timeKey(at)), func(number uint64, value float64) { values[number] = value })
	if err != nil {
		return err
	}
	var row []byte
	last := uint64(0)
	for _, number := range slices.Sorted(maps.Keys(values)) {
		row = binary.AppendUvarint(row, number-last)
		row = binary.AppendUvarint(row, bits.ReverseBytes64(math.Float64bits(values[number])))
		last = number
	}
	return rows.Put(timeKey(at), row)
}

// numberOf is the number of a series in a block, which it gets if it is new.
func numberOf(numbers *bbolt.Bucket, key string) (uint64, error) {
	if known := numbers.Get([]byte(key)); len(known) == 8 {
		return binary.BigEndian.Uint64(known), nil
	}
	number, err := numbers.NextSequence()
	if err != nil {
		return 0, err
	}
	return number, numbers.Put([]byte(key), binary.BigEndian.AppendUint64(nil, number))
}

// readRow visits what a row holds.
func readRow(row []byte, visit func(number uint64, value float64)) error {
	number := uint64(0)
	for len(row) > 0 {
		step, n := binary.Uvarint(row)
		if n <= 0 {
			return errors.New("a row is damaged")
		}
		value, m := binary.Uvarint(row[n:])
		if m <= 0 {
			return errors.New("a row is damaged")
		}
		row = row[n+m:]
		number += step
		visit(number, math.Float64frombits(bits.ReverseBytes64(value)))
	}
	return nil
}

// prune deletes the blocks that the window reaches no more, and one more while the file is too large: a block is the work of hours, so
// that one at each sample is enough. The file itself never shrinks; what is free in it is used again.
func (s *Store) prune(tx *bbolt.Tx, now int64) error {
	blocks := tx.Bucket(keyBlocks)
	if blocks == nil {
		return nil
	}
	used := s.used(tx)
	var old [][]byte
	c := blocks.Cursor()
	for key, _ := c.First(); key != nil; key, _ = c.Next() {
		start := keyTimeOf(key)
		if over := used > s.most && len(old) == 0 && start+blockLength <= now; !over && start+blockLength > now-s.keep {
			break
		}
		old = append(old, bytes.Clone(key))
	}
	for _, key := range old {
		if err := blocks.DeleteBucket(key); err != nil {
			return fmt.Errorf("delete what is too old: %w", err)
		}
	}
	return nil
}

// used is how many bytes of the file are in use.
func (s *Store) used(tx *bbolt.Tx) int64 {
	stats := s.db.Stats()
	return tx.Size() - int64(stats.FreePageN+stats.PendingPageN)*int64(s.db.Info().PageSize)
}

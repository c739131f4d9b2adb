package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/muster-scheduler/muster/internal/vm"
)

// The bucket and the key beside those of records.
const (
	bucketMeta = "meta"
	keyFormat  = "format"
)

// format is a form of the file, and how an earlier one becomes it.
type format struct {
	number int
	// upgrade brings a file of the number before up to this one. nil: it is the first.
	upgrade func(*bbolt.Tx) error
}

// formats are those that this program reads; the last is the one it writes.
func formats() []format { return []format{{number: 1}} }

// openWait bounds how long another process may hold the file: the one that ends while this one starts.
const openWait = 2 * time.Second

// Open opens the store in a file, which it makes where there is none; the folder has to be there. Errors: Unavailable where another process has it
// openWith; Invalid where a later version wrote it; Internal where it is damaged, with what to do about it. In none of these is the file changed.
func Open(path string) (*Store, error) { return openWith(path, formats()) }

func openWith(path string, known []format) (*Store, error) {
	_, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := create(path, known[len(known)-1].number); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
	case err != nil:
		return nil, fmt.Errorf("store: %w", err)
	default:
		if err := inspect(path, known); err != nil {
			return nil, err
		}
	}
	db, err := openDB(path)
	if err != nil {
		return nil, err
	}
	if err := upgrade(db, known); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("store: %s: %w", path, err)
	}
	return &Store{db: db}, nil
}

func openDB(path string) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: openWait})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, inUse(path)
	}
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", path, err)
	}
	return db, nil
}

func inUse(path string) error {
	return vm.Errorf(vm.Unavailable, "store: %s is in use: is another runtime running?", path)
}

// create makes the file whole or not at all.
func create(path string, number int) error {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := openDB(fresh)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, kind := range kinds() {
			if _, err := tx.CreateBucket([]byte(kind)); err != nil {
				return err
			}
		}
		return setFormat(tx, number)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func setFormat(tx *bbolt.Tx, number int) error {
	meta, err := tx.CreateBucketIfNotExists([]byte(bucketMeta))
	if err != nil {
		return err
	}
	return meta.Put([]byte(keyFormat), encodeText(keyFormat, []byte(strconv.Itoa(number))))
}

// readFormat is the number in a value of keyFormat.
func readFormat(value []byte) (int, error) {
	text, err := decodeText([]byte(keyFormat), value)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// errNewer is a file of a later version.
type errNewer struct{ number int }

func (e errNewer) Error() string { return fmt.Sprintf("format %d", e.number) }

// inspect looks at a file before the database does, and refuses what is damaged or of a later version.
func inspect(path string, known []format) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer f.Close()
	if err := lock(f, path); err != nil {
		return err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("store: %w", err)
	case !info.Mode().IsRegular():
		return vm.Errorf(vm.Invalid, "store: %s is no file", path)
	}
	last := known[len(known)-1].number
	err = check(f, info.Size(), last)
	var newer errNewer
	switch {
	case err == nil:
		return nil
	case errors.As(err, &newer):
		return vm.Errorf(vm.Invalid, "store: %s has format %d, and this program knows formats up to %d: a later version wrote it. Start that version, or one after it; "+
			"the file is as it was", path, newer.number, last)
	}
	kept, copyErr := keep(f, info.Size(), path)
	if copyErr != nil {
		kept = fmt.Sprintf("no copy could be made: %v", copyErr)
	}
	return vm.Errorf(vm.Internal, "store: %s is damaged: %w. It is as it was (%s). Put back a copy that is whole; or, if there is none, move it away and start again: "+
		"then the machines of this node belong to no pod any more and are ended, and the kubelet makes its pods anew", path, err, kept)
}

// check walks the file. What a later version wrote may break every rule but those of its form and of keyFormat, so this error comes first.
func check(f io.ReaderAt, size int64, last int) error {
	number := -1
	var wrong error
	err := walkPages(f, size, func(bucket string, key, value []byte) (err error) {
		defer func() {
			if wrong == nil {
				wrong = err
			}
			err = nil
		}()
		name := strings.TrimPrefix(bucket, "/")
		switch {
		case name == bucketMeta && string(key) != keyFormat:
			return fmt.Errorf("key %q is not known", key)
		case name == bucketMeta:
			number, err = readFormat(value)
			return err
		case slices.Contains(kinds(), Kind(name)):
			_, err = decodeText(key, value)
			return err
		}
		return fmt.Errorf("bucket %q is not known", bucket)
	})
	switch {
	case err != nil:
		return err
	case number > last:
		return errNewer{number}
	case wrong != nil:
		return wrong
	case number < 1:
		return errors.New("it does not say which format it has")
	}
	return nil
}

// lock waits for the database's own lock, which goes with the file.
func lock(f *os.File, path string) error {
	for end := time.Now().Add(openWait); ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return fmt.Errorf("store: lock of %s: %w", path, err)
		case time.Now().After(end):
			return inUse(path)
		}
		pause := time.NewTimer(50 * time.Millisecond)
		<-pause.C
	}
}

// keep copies a damaged file to a place that is called after what it holds: a start that is tried again makes no second copy.
func keep(f *os.File, size int64, path string) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, size)); err != nil {
		return "", err
	}
	name := path + ".damaged-" + hex.EncodeToString(sum.Sum(nil))[:12]
	if info, err := os.Lstat(name); err == nil && info.Size() == size {
		return "a copy is " + name, nil
	}
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, io.NewSectionReader(f, 0, size))
	return "a copy is " + name, errors.Join(err, out.Sync(), out.Close())
}

// upgrade brings an older file up to date, in one transaction.
func upgrade(db *bbolt.DB, known []format) error {
	return db.Update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte(bucketMeta))
		if meta == nil {
			return errors.New("it has no format")
		}
		number, err := readFormat(meta.Get([]byte(keyFormat)))
		if err != nil {
			return err
		}
		was := number
		for _, f := range known {
			if f.number <= number {
				continue
			}
			if f.number != number+1 || f.upgrade == nil {
				return fmt.Errorf("format %d cannot become format %d", number, f.number)
			}
			if err := f.upgrade(tx); err != nil {
				return fmt.Errorf("from format %d to %d: %w", number, f.number, err)
			}
			number = f.number
		}
		if number == was {
			return nil
		}
		return setFormat(tx, number)
	})
}

package store

import (
	"fmt"
	"regexp"

	"go.etcd.io/bbolt"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Kind is what a record is of.
type Kind string

// The kinds.
const (
	Sandboxes  Kind = "sandboxes"
	Containers Kind = "containers"
)

// kinds are all there are: each has a bucket.
func kinds() []Kind { return []Kind{Sandboxes, Containers} }

// Store is an open store. Its methods may be called at once from many goroutines.
type Store struct{ db *bbolt.DB }

// Close ends the store, once what is under way has ended. Nothing may be called after it.
func (s *Store) Close() error { return s.db.Close() }

var idForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)

// maxRecord bounds one record in the file, in bytes. A pod's annotations are at most 256 KiB in Kubernetes.
const maxRecord = 4 << 20

// Put writes a record as JSON, new or in the place of the one with its id: 1 to 128 letters, digits, dots, underscores and dashes, the first a letter or
// digit. When it returns nil, the record is on the disk. Errors: Invalid; the disk's, and then the record is there or the one before.
func (s *Store) Put(kind Kind, id string, record any) error {
	if !idForm.MatchString(id) {
		return vm.Errorf(vm.Invalid, "store: %s %.64q: id: must be 1 to 128 letters, digits, '_', '.' or '-', and begin with a letter or digit", kind, id)
	}
	value, err := encode(id, record)
	if err != nil {
		return fmt.Errorf("store: %s: %w", kind, err)
	}
	return s.update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(kind)).Put([]byte(id), value) })
}

// Delete takes a record away, if it is there.
func (s *Store) Delete(kind Kind, id string) error {
	return s.update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(kind)).Delete([]byte(id)) })
}

func (s *Store) update(f func(*bbolt.Tx) error) error {
	if err := s.db.Update(f); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// Load reads all records of a kind, in order of id. It is strict: a record with a field that T has not is an error.
func Load[T any](s *Store, kind Kind) ([]*T, error) {
	var out []*T
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(kind)).ForEach(func(k, v []byte) error {
			r := new(T)
			out = append(out, r)
			return decode(k, v, r)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", kind, err)
	}
	return out, nil
}

package proxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// store keeps what backends are known to have in a file. Its layout: a bucket per backend; in it the keys "trust/KIND" with one byte, and
// a bucket per kind with the items by id. Beside them the bucket "proxy" with the last UpdateRuntimeConfig request.
//
// A nil store forgets.
type store struct {
	db  *bolt.DB
	log logr.Logger
	// wake has room for one: there is something to write.
	wake chan struct{}
	all  map[string]*known // by backend; fixed
}

// openWait bounds how long another process may hold the file: the one that ends while this one starts.
const openWait = 10 * time.Second

// errDamaged is a file that opens and does not hold what it should.
var errDamaged = errors.New("damaged")

// openStore opens the file, fills in what it has of the backends, and decides what it means if it has nothing: see doc.go. A file that
// cannot be read is moved aside, and its loss is remembered. Errors are those that a new file cannot mend: the file is in use, or the folder
// cannot be written.
func openStore(path string, backends []*connection, log logr.Logger) (*store, error) {
	if path == "" {
		return nil, nil
	}
	s := &store{log: log, wake: make(chan struct{}, 1), all: map[string]*known{}}
	_, err := os.Lstat(path)
	err = s.open(path, backends, errors.Is(err, os.ErrNotExist))
	if err == nil {
		return s, nil
	}
	if !slices.ContainsFunc([]error{errDamaged, bolterrors.ErrInvalid, bolterrors.ErrVersionMismatch, bolterrors.ErrChecksum, bolterrors.ErrInvalidMapping},
		func(e error) bool { return errors.Is(err, e) }) {
		return nil, fmt.Errorf("state file %s: %w", path, err)
	}
	aside := path + ".damaged"
	log.Error(err, "The state file cannot be read. Lists fail until every backend has answered once", "file", path, "movedTo", aside)
	if err := os.Rename(path, aside); err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	if err := s.open(path, backends, false); err != nil {
		return nil, fmt.Errorf("state file %s: %w", path, err)
	}
	return s, nil
}

// open opens the file and reads it. fresh: there was none. A damaged file can make the database panic, which is an error here.
func (s *store) open(path string, backends []*connection, fresh bool) (err error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: openWait})
	if err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
		}
		if err != nil {
			_ = db.Close() // err says more
			for _, b := range backends {
				b.known = newKnown()
			}
		}
	}()
	err = db.Update(func(tx *bolt.Tx) error {
		for e := range tx.Check() {
			return fmt.Errorf("%w: %w", errDamaged, e)
		}
		old := tx.Bucket([]byte("proxy")) != nil
		if _, err := tx.CreateBucketIfNotExists([]byte("proxy")); err != nil {
			return err
		}
		for _, b := range backends {
			// A file with a past and without this backend: the backend is new. A file without a past that was not made now has lost it.
			if err := load(tx, b, fresh || old); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.db = db
	for _, b := range backends {
		s.all[b.name] = b.known
	}
	return nil
}

// load reads what the file has of one backend. A backend that it has not is new if the file's past is whole; the primary never is.
func load(tx *bolt.Tx, b *connection, past bool) error {
	top := tx.Bucket([]byte(b.name))
	if top == nil {
		var err error
		if top, err = tx.CreateBucket([]byte(b.name)); err != nil {
			return err
		}
		for k := range kinds {
			t := unknown
			if past && !b.primary {
				t = assumed
			}
			if err := top.Put(trustKey(k), []byte{byte(t)}); err != nil {
				return err
			}
		}
	}
	for k := range kinds {
		of := &b.known.kinds[k]
		if v := top.Get(trustKey(k)); len(v) == 1 && v[0] <= byte(heard) {
			of.trust = trust(v[0])
		}
		items := top.Bucket([]byte(k.String()))
		if items == nil {
			continue
		}
		err := items.ForEach(func(id, body []byte) error {
			of.items[string(id)] = item{body: append([]byte{}, body...)}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func trustKey(k kind) []byte { return []byte("trust/" + k.String()) }

// soon has what has changed written by run.
func (s *store) soon() {
	if s == nil || s.clean() {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// clean tells whether there is nothing to write, as after most lists: writing nothing would wait for the disk, too.
func (s *store) clean() bool {
	for _, k := range s.all {
		if k.isDirty() {
			return false
		}
	}
	return true
}

// run writes what changes until ctx ends.
func (s *store) run(ctx context.Context) {
	if s == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			s.flush()
		}
	}
}

// flush writes what has changed. What cannot be written stays to be written; the answer that it belongs to is given all the same, because
// holding back a pod's id would lose the pod for certain.
func (s *store) flush() {
	if s == nil || s.clean() {
		return
	}
	type part struct {
		name   string
		keys   []itemKey
		bodies [][]byte // of the keys; nil: gone
		trusts map[kind]trust
	}
	var parts []part
	err := s.db.Update(func(tx *bolt.Tx) error {
		for name, k := range s.all {
			keys, bodies, trusts := k.takeDirty()
			parts = append(parts, part{name, keys, bodies, trusts})
		}
		for _, p := range parts {
			top := tx.Bucket([]byte(p.name))
			for kind, t := range p.trusts {
				if err := top.Put(trustKey(kind), []byte{byte(t)}); err != nil {
					return err
				}
			}
			for i, key := range p.keys {
				items, err := top.CreateBucketIfNotExists([]byte(key.kind.String()))
				if err != nil {
					return err
				}
				if body := p.bodies[i]; body == nil {
					err = items.Delete([]byte(key.id))
				} else {
					err = items.Put([]byte(key.id), body)
				}
				if err != nil {
					return fmt.Errorf("%s of %s: %w", key.kind, p.name, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		for _, p := range parts {
			s.all[p.name].untake(p.keys, p.trusts)
		}
		s.log.Error(err, "The state file cannot be written. After a restart, what has changed since may be missing while a backend is away")
	}
}

// takeDirty gives what has to be written and takes it off the list.
func (k *known) takeDirty() (keys []itemKey, bodies [][]byte, trusts map[kind]trust) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.dirty {
		keys = append(keys, key)
		bodies = append(bodies, k.kinds[key.kind].items[key.id].body)
	}
	clear(k.dirty)
	trusts = map[kind]trust{}
	for i, d := range k.dirtyTrust {
		if d {
			trusts[kind(i)] = k.kinds[i].trust
			k.dirtyTrust[i] = false
		}
	}
	return keys, bodies, trusts
}

func (k *known) isDirty() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return len(k.dirty) > 0 || slices.Contains(k.dirtyTrust[:], true)
}

func (k *known) untake(keys []itemKey, trusts map[kind]trust) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		k.dirty[key] = struct{}{}
	}
	for kind := range trusts {
		k.dirtyTrust[kind] = true
	}
}

// runtimeConfig is the last UpdateRuntimeConfig request, nil if there was none.
func (s *store) runtimeConfig() []byte {
	if s == nil {
		return nil
	}
	var out []byte
	err := s.db.View(func(tx *bolt.Tx) error {
		if v := tx.Bucket([]byte("proxy")).Get([]byte("runtime-config")); v != nil {
			out = append([]byte{}, v...)
		}
		return nil
	})
	if err != nil {
		s.log.Error(err, "The state file cannot be read")
	}
	return out
}

func (s *store) setRuntimeConfig(req []byte) {
	if s == nil {
		return
	}
	err := s.db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte("proxy")).Put([]byte("runtime-config"), req) })
	if err != nil {
		s.log.Error(err, "The state file cannot be written")
	}
}

func (s *store) close() error {
	if s == nil {
		return nil
	}
	s.flush()
	return s.db.Close()
}

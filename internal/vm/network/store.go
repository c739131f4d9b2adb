package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/muster-scheduler/muster/internal/vm"
)

// The phases of a record.
const (
	// adding: side effects of Add may have happened. Found at a start, the pod is removed.
	phaseAdding = "adding"
	// ready: everything is there.
	phaseReady = "ready"
	// removing: side effects of a removal may have happened. It is gone on with until it succeeds.
	phaseRemoving = "removing"
)

// record is what is known of a pod, written before what it speaks of is done.
type record struct {
	Phase string `json:"phase"`
	Pod   Pod    `json:"pod"`
	// Netns is the path of the pod's namespace.
	Netns string `json:"netns"`
	// Conf is the CNI configuration list that the pod was, or is to be, added with: DEL needs the same, whatever lies in the folder by then.
	Conf json.RawMessage `json:"conf"`
	// Cards are known once CNI has answered.
	Cards []Card `json:"cards,omitempty"`
	DNS   vm.DNS `json:"dns"`
	// TokenHash is the SHA-256 of the token that Get may use, in hex; empty, when it was used. The token itself is nowhere.
	TokenHash string `json:"tokenHash,omitempty"`
}

// records keeps records over restarts. A write is on disk when it returns.
type records interface {
	put(record) error
	get(id string) (record, bool, error)
	// all is in the order of ids.
	all() ([]record, error)
	remove(id string) error
}

// The buckets and keys of the database.
const (
	bucketPods = "pods"
	bucketMeta = "meta"
	keyFormat  = "format"
	formatNow  = "1"
)

// boltRecords is a bbolt file, which only one process can have open.
type boltRecords struct {
	db *bbolt.DB
}

func openRecords(path string) (*boltRecords, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("%s is in use: is another network process running?", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucketIfNotExists([]byte(bucketPods)); err != nil {
			return err
		}
		meta, err := tx.CreateBucketIfNotExists([]byte(bucketMeta))
		if err != nil {
			return err
		}
		switch f := meta.Get([]byte(keyFormat)); {
		case f == nil:
			return meta.Put([]byte(keyFormat), []byte(formatNow))
		case string(f) != formatNow:
			return fmt.Errorf("it has format %q; this program knows %q", f, formatNow)
		}
		return nil
	})
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &boltRecords{db: db}, nil
}

func (b *boltRecords) put(r record) error {
	v, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record of pod %s: %w", r.Pod.ID, err)
	}
	return b.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucketPods)).Put([]byte(r.Pod.ID), v) })
}

func (b *boltRecords) get(id string) (r record, ok bool, err error) {
	if id == "" {
		return r, false, nil
	}
	err = b.db.View(func(tx *bbolt.Tx) error {
		v := tx.Bucket([]byte(bucketPods)).Get([]byte(id))
		if v == nil {
			return nil
		}
		ok = true
		return json.Unmarshal(v, &r)
	})
	if err != nil {
		err = fmt.Errorf("record of pod %s: %w", id, err)
	}
	return r, ok, err
}

func (b *boltRecords) all() (out []record, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketPods)).ForEach(func(k, v []byte) error {
			var r record
			if err := json.Unmarshal(v, &r); err != nil {
				return fmt.Errorf("record of pod %s: %w", k, err)
			}
			out = append(out, r)
			return nil
		})
	})
	return out, err
}

func (b *boltRecords) remove(id string) error {
	return b.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucketPods)).Delete([]byte(id)) })
}

func (b *boltRecords) close() error { return b.db.Close() }

package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Store is an open store. Its methods may be called at once from many goroutines: readers wait for nobody but the moment in which a transaction
// becomes visible, and transactions come one after another. What they give is the caller's own.
type Store struct {
	db *bbolt.DB
	// writing is held by the transaction under way.
	writing sync.Mutex
	mu      sync.RWMutex
	now     state
	// hook, where a test sets it, is told before and after a transaction reaches the disk.
	hook func(after bool)
}

// state is all records, as they are on the disk.
type state struct {
	sandboxes  map[string]Sandbox
	containers map[string]Container
	intents    map[string]Intent
}

// load fills in the state from the file.
func (s *Store) load() error {
	fresh := state{map[string]Sandbox{}, map[string]Container{}, map[string]Intent{}}
	err := s.db.View(func(tx *bbolt.Tx) error {
		return errors.Join(
			each(tx, bucketSandboxes, fresh.sandboxes, func(r Sandbox) string { return r.ID }),
			each(tx, bucketContainers, fresh.containers, func(r Container) string { return r.ID }),
			each(tx, bucketIntents, fresh.intents, Intent.key),
		)
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.now = fresh
	s.mu.Unlock()
	return nil
}

func each[T any](tx *bbolt.Tx, bucket string, into map[string]T, key func(T) string) error {
	b := tx.Bucket([]byte(bucket))
	if b == nil {
		return fmt.Errorf("bucket %q is not there", bucket)
	}
	return b.ForEach(func(k, v []byte) error {
		var r T
		if err := decode(k, v, &r); err != nil {
			return err
		}
		if key(r) != string(k) {
			return fmt.Errorf("record %q is of %q", k, key(r))
		}
		into[string(k)] = r
		return nil
	})
}

// Close ends the store, once the transaction under way has ended. Nothing may be called after it.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.db.Close()
}

// Update makes one transaction of what f does: all of it is on the disk when Update returns nil, and none of it when it returns an error, which is
// f's or the disk's. f must not call the store but by its Tx.
func (s *Store) Update(f func(*Tx) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	tx := &Tx{base: s.now, sandboxes: map[string]*Sandbox{}, containers: map[string]*Container{}, intents: map[string]*Intent{}}
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.check(); err != nil {
		return err
	}
	if s.hook != nil {
		s.hook(false)
	}
	if err := s.db.Update(tx.write); err != nil {
		// Whether it reached the disk is not known where the last step failed: the file says.
		return errors.Join(fmt.Errorf("store: %w", err), s.load())
	}
	next := state{merged(s.now.sandboxes, tx.sandboxes), merged(s.now.containers, tx.containers), merged(s.now.intents, tx.intents)}
	s.mu.Lock()
	s.now = next
	s.mu.Unlock()
	if s.hook != nil {
		s.hook(true)
	}
	return nil
}

// merged is a new map where there is something new: readers may hold the old one.
func merged[T any](old map[string]T, changes map[string]*T) map[string]T {
	if len(changes) == 0 {
		return old
	}
	out := maps.Clone(old)
	for k, v := range changes { // order: keys are distinct
		if v == nil {
			delete(out, k)
		} else {
			out[k] = *v
		}
	}
	return out
}

// Tx is a transaction. What it has changed it shows.
type Tx struct {
	base       state
	sandboxes  map[string]*Sandbox // nil: deleted
	containers map[string]*Container
	intents    map[string]*Intent
}

func look[T any](base map[string]T, changes map[string]*T, key string) (T, bool) {
	if v, ok := changes[key]; ok {
		if v == nil {
			var none T
			return none, false
		}
		return *v, true
	}
	v, ok := base[key]
	return v, ok
}

// Sandbox gives the record of exactly this id.
func (t *Tx) Sandbox(id string) (Sandbox, bool) {
	r, ok := look(t.base.sandboxes, t.sandboxes, id)
	return r.clone(), ok
}

// Container gives the record of exactly this id.
func (t *Tx) Container(id string) (Container, bool) {
	r, ok := look(t.base.containers, t.containers, id)
	return r.clone(), ok
}

// ContainersOf gives a sandbox's containers, in order of id.
func (t *Tx) ContainersOf(sandbox string) []Container {
	var out []Container
	for _, id := range slices.Sorted(maps.Keys(merged(t.base.containers, t.containers))) {
		if c, ok := t.Container(id); ok && c.SandboxID == sandbox {
			out = append(out, c)
		}
	}
	return out
}

// Intent gives the intent about an object.
func (t *Tx) Intent(kind Kind, id string) (Intent, bool) {
	r, ok := look(t.base.intents, t.intents, Intent{Kind: kind, ID: id}.key())
	return r.clone(), ok
}

// PutSandbox writes a record, new or changed. Errors: Invalid; Conflict where another sandbox has the UID and Attempt.
func (t *Tx) PutSandbox(r Sandbox) error {
	if err := r.check(); err != nil {
		return err
	}
	for id, o := range merged(t.base.sandboxes, t.sandboxes) { // order: at most one can be the same
		if id != r.ID && o.UID == r.UID && o.Attempt == r.Attempt {
			return vm.Errorf(vm.Conflict, "store: sandbox %s: attempt %d of pod %s/%s, UID %s, is sandbox %s", r.ID, r.Attempt, r.Namespace, r.Name, r.UID, id)
		}
	}
	r = r.clone()
	r.CreatedAt = plain(r.CreatedAt)
	t.sandboxes[r.ID] = &r
	return nil
}

// PutContainer writes a record, new or changed. Errors: Invalid; NotFound where there is no such sandbox; Conflict where another container of the sandbox
// has the name and attempt, or another container that has not exited has the domain, or the state would go back.
func (t *Tx) PutContainer(r Container) error {
	if err := r.check(); err != nil {
		return err
	}
	if _, ok := t.Sandbox(r.SandboxID); !ok {
		return vm.Errorf(vm.NotFound, "store: container %s: its sandbox %s is not there", r.ID, short(r.SandboxID))
	}
	if old, ok := t.Container(r.ID); ok && (rank(r.State) < rank(old.State) || old.SandboxID != r.SandboxID) {
		return vm.Errorf(vm.Conflict, "store: container %s: it is %s in sandbox %s, and cannot become %s in %s", r.ID, old.State, old.SandboxID, r.State, r.SandboxID)
	}
	for id, o := range merged(t.base.containers, t.containers) { // order: any of them will do for the error
		switch {
		case id == r.ID:
		case o.SandboxID == r.SandboxID && o.Name == r.Name && o.Attempt == r.Attempt:
			return vm.Errorf(vm.Conflict, "store: container %s: attempt %d of %s in sandbox %s is container %s", r.ID, r.Attempt, r.Name, r.SandboxID, id)
		case o.Domain == r.Domain && o.State != Exited && r.State != Exited:
			return vm.Errorf(vm.Conflict, "store: container %s: domain %s is container %s's", r.ID, r.Domain, id)
		}
	}
	r = r.clone()
	r.CreatedAt, r.StartedAt, r.FinishedAt = plain(r.CreatedAt), plain(r.StartedAt), plain(r.FinishedAt)
	t.containers[r.ID] = &r
	return nil
}

func rank(s ContainerState) int { return slices.Index([]ContainerState{Created, Running, Exited}, s) }

// plain is a time as the file gives it back.
func plain(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.Round(0).UTC()
}

// DeleteSandbox takes a record away, if it is there. That no container of it is left, the end of the transaction checks.
func (t *Tx) DeleteSandbox(id string) { t.sandboxes[id] = nil }

// DeleteContainer takes a record away, if it is there.
func (t *Tx) DeleteContainer(id string) { t.containers[id] = nil }

// Begin writes an intent. Errors: Invalid; Conflict where the object has one already, or is there and was to be created; NotFound where it is
// not there.
func (t *Tx) Begin(i Intent) error {
	if err := i.check(); err != nil {
		return err
	}
	if old, ok := t.Intent(i.Kind, i.ID); ok {
		return vm.Errorf(vm.Conflict, "store: %s: %s has been under way since %s", i, old, old.At.Format(time.RFC3339))
	}
	_, there := t.Sandbox(i.ID)
	if i.Kind == KindContainer {
		_, there = t.Container(i.ID)
	}
	switch {
	case i.Act == Create && there:
		return vm.Errorf(vm.Conflict, "store: %s: it is there", i)
	case i.Act != Create && !there:
		return vm.Errorf(vm.NotFound, "store: %s: it is not there", i)
	}
	if i.Act == Create && i.Kind == KindContainer {
		if _, ok := t.Sandbox(i.SandboxID); !ok {
			return vm.Errorf(vm.NotFound, "store: %s: its sandbox %s is not there", i, short(i.SandboxID))
		}
	}
	i = i.clone()
	i.At, i.Deadline = plain(i.At), plain(i.Deadline)
	t.intents[i.key()] = &i
	return nil
}

// End takes an object's intent away, if it has one.
func (t *Tx) End(kind Kind, id string) { t.intents[Intent{Kind: kind, ID: id}.key()] = nil }

// check is what must hold of all records together.
func (t *Tx) check() error {
	for id, r := range t.sandboxes { // order: any of them will do for the error
		if r != nil {
			continue
		}
		if of := t.ContainersOf(id); len(of) > 0 {
			return vm.Errorf(vm.Conflict, "store: sandbox %s cannot go: container %s is left", id, of[0].ID)
		}
		for _, i := range merged(t.base.intents, t.intents) { // order: any of them will do for the error
			if i.Kind == KindContainer && i.Act == Create && i.SandboxID == id {
				return vm.Errorf(vm.Conflict, "store: sandbox %s cannot go: %s is under way", id, i)
			}
		}
	}
	return nil
}

func (t *Tx) write(tx *bbolt.Tx) error {
	return errors.Join(
		writeAll(tx, bucketSandboxes, t.sandboxes),
		writeAll(tx, bucketContainers, t.containers),
		writeAll(tx, bucketIntents, t.intents),
	)
}

func writeAll[T any](tx *bbolt.Tx, bucket string, changes map[string]*T) error {
	b := tx.Bucket([]byte(bucket))
	for _, k := range slices.Sorted(maps.Keys(changes)) {
		if changes[k] == nil {
			if err := b.Delete([]byte(k)); err != nil {
				return err
			}
			continue
		}
		v, err := encode(k, changes[k])
		if err != nil {
			return err
		}
		if err := b.Put([]byte(k), v); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) read() state {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.now
}

// Sandbox finds a sandbox by its id, or by the beginning of one id alone. Errors: NotFound, Invalid where several begin so.
func (s *Store) Sandbox(id string) (Sandbox, error) {
	all := s.read().sandboxes
	id, err := resolve(KindSandbox, all, id)
	return all[id].clone(), err
}

// Container finds a container by its id, or by the beginning of one id alone. Errors: NotFound, Invalid where several begin so.
func (s *Store) Container(id string) (Container, error) {
	all := s.read().containers
	id, err := resolve(KindContainer, all, id)
	return all[id].clone(), err
}

// resolve is the id that is meant.
func resolve[T any](kind Kind, all map[string]T, id string) (string, error) {
	if _, ok := all[id]; ok {
		return id, nil
	}
	var found []string
	if id != "" {
		for k := range all { // order: sorted where it counts
			if strings.HasPrefix(k, id) {
				found = append(found, k)
			}
		}
	}
	switch len(found) {
	case 0:
		return "", vm.Errorf(vm.NotFound, "%s %q: there is none", kind, short(id))
	case 1:
		return found[0], nil
	}
	slices.Sort(found)
	return "", vm.Errorf(vm.Invalid, "%s %q: %d begin so, such as %s and %s", kind, short(id), len(found), short(found[0]), short(found[1]))
}

// Intents gives all intents, sorted by kind and id.
func (s *Store) Intents() []Intent {
	return sorted(s.read().intents, Intent.clone, func(Intent) bool { return true })
}

// sorted is what passes, in order of key.
func sorted[T any](all map[string]T, clone func(T) T, pass func(T) bool) []T {
	var out []T
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if pass(all[k]) {
			out = append(out, clone(all[k]))
		}
	}
	return out
}

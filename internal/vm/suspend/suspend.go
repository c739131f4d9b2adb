package suspend

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Place is where a machine's state is.
type Place struct {
	// Claim is the directory of the host where the claim is mounted.
	Claim string `json:"claim"`
	// Owner is the UID of the pods' owner, Index which of its pods it is; "" where they have none.
	Owner string `json:"owner"`
	Index string `json:"index,omitempty"`
	// Container is its name: init containers are machines too.
	Container string `json:"container"`
}

// String is without the host's path. No part holds an @.
func (p Place) String() string { return p.Owner + "@" + p.Index + "@" + p.Container }

// About says what a state is of.
type About struct {
	// PodUID is of the pod that was suspended, UUID its machine's.
	PodUID string `json:"podUID"`
	UUID   string `json:"uuid"`
	// Machine says what machine can begin from it: the same text as of the one that was saved.
	Machine string `json:"machine"`
}

// Store keeps states. Its methods may be called at once for different places.
type Store struct {
	// Key seals: at least 16 bytes, the same on all nodes that a machine can go to.
	Key []byte
}

// The layout below a claim: folder/PLACE/saved, new-ID while it is written, used-ID from Take on.
const (
	folder    = ".muster-vm"
	saved     = "saved"
	writing   = "new-"
	used      = "used-"
	listName  = "state.json"
	maxList   = 64 << 10
	maxFiles  = 16
	maxStates = 4096 // what is looked at in one directory
)

var (
	name  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	parts = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}@[A-Za-z0-9_.-]{0,63}@[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)
	// whole begins a file that libvirt has written to its end; until then it begins otherwise.
	whole = []byte("LibvirtQemudSave")
)

// list is what lies beside the files.
type list struct {
	Version int             `json:"version"`
	Place   string          `json:"place"`
	About   About           `json:"about"`
	Files   map[string]file `json:"files"`
	Seal    string          `json:"seal"`
}

type file struct {
	Size int64  `json:"size"`
	Sum  string `json:"sha256"`
}

// seal is the HMAC-SHA256 (RFC 2104) of the list without it.
func (s Store) seal(l list) string {
	l.Seal = ""
	text, err := json.Marshal(l)
	if err != nil { // texts and numbers
		panic(err)
	}
	m := hmac.New(sha256.New, s.Key)
	m.Write(text)
	return hex.EncodeToString(m.Sum(nil))
}

// LoadKey reads a key of 32 bytes in hexadecimal, and makes one if there is no file.
func LoadKey(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // it never fails
		f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return nil, err
		}
		_, err = f.WriteString(hex.EncodeToString(key) + "\n")
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			return nil, err
		}
		return key, os.Rename(path+".new", path)
	}
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// ParseKey reads a key: 32 bytes in hexadecimal.
func ParseKey(text string) ([]byte, error) {
	key, err := hex.DecodeString(string(bytes.TrimSpace([]byte(text))))
	if err != nil || len(key) != 32 {
		return nil, vm.Errorf(vm.Invalid, "a key of states must be 32 bytes in hexadecimal")
	}
	return key, nil
}

// Whole says whether a file holds all of a machine's memory, as libvirt writes it.
func (Store) Whole(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, len(whole))
	if _, err := io.ReadFull(f, head); err != nil {
		return false, nil //nolint:nilerr // too short
	}
	return bytes.Equal(head, whole), nil
}

// Forget removes a file of the node's, which may not be there.
func (Store) Forget(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// at opens a place's directory. NotFound: there is none, and it was not to be made.
func at(p Place, create bool) (*os.Root, error) {
	if !parts.MatchString(p.String()) {
		return nil, vm.Errorf(vm.Invalid, "state %q: owner, index and container must be of letters, digits, '_', '.' and '-', at most 63 of each", p)
	}
	claim, err := os.OpenRoot(p.Claim)
	if err != nil {
		return nil, fmt.Errorf("the claim: %w", err)
	}
	defer shut(claim)
	dir := filepath.Join(folder, p.String())
	if create {
		if err := claim.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("the claim: %w", err)
		}
	}
	root, err := claim.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, vm.Errorf(vm.NotFound, "state %s: there is none", p)
	}
	if err != nil {
		return nil, fmt.Errorf("the claim: %w", err)
	}
	return root, nil
}

// shut is for a directory that was only looked up.
func shut(dir *os.Root) { _ = dir.Close() }

// Room is an error if a claim has no room for so many bytes more.
func (Store) Room(p Place, bytes int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(p.Claim, &st); err != nil {
		return fmt.Errorf("the claim: %w", err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < bytes { //nolint:gosec // blocks of a file system
		return vm.Errorf(vm.Exhausted, "the claim has %d MiB left, and the machine's state needs up to %d", free>>20, (bytes+1<<20-1)>>20)
	}
	return nil
}

// Put keeps files, by names of their own, as a place's state; the one that was there goes. After an error nothing has changed.
func (s Store) Put(ctx context.Context, p Place, id string, a About, files map[string]string) (err error) {
	dir, err := at(p, true)
	if err != nil {
		return err
	}
	defer shut(dir)
	fresh := writing + id
	if !name.MatchString(fresh) || len(files) > maxFiles {
		return vm.Errorf(vm.Invalid, "state %s: id %q, %d files", p, id, len(files))
	}
	if err := errors.Join(dir.RemoveAll(fresh), dir.Mkdir(fresh, 0o700)); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("state %s: %w", p, err), dir.RemoveAll(fresh))
		}
	}()
	l := list{Version: 1, Place: p.String(), About: a, Files: map[string]file{}}
	for _, n := range slices.Sorted(maps.Keys(files)) {
		from, err := os.Open(files[n])
		if err != nil {
			return err
		}
		to, err := dir.OpenFile(filepath.Join(fresh, n), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return errors.Join(err, from.Close())
		}
		l.Files[n], err = sparse(ctx, to, from, -1)
		if err := errors.Join(err, to.Sync(), to.Close(), from.Close()); err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
	}
	l.Seal = s.seal(l)
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	f, err := dir.OpenFile(filepath.Join(fresh, listName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close(), flush(dir, fresh), dir.RemoveAll(saved), dir.Rename(fresh, saved), flush(dir, ".")); err != nil {
		return err
	}
	// What a machine on a node that is gone began from, or wrote, is nobody's now.
	return empty(dir, func(n string) bool { return n != saved })
}

// flush has the entries of a directory written.
func flush(dir *os.Root, path string) error {
	f, err := dir.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// empty removes entries.
func empty(dir *os.Root, which func(string) bool) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(maxStates)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	errs := []error{err, f.Close()}
	for _, e := range entries {
		if which(e.Name()) {
			errs = append(errs, dir.RemoveAll(e.Name()))
		}
	}
	return errors.Join(errs...)
}

// sparse copies a file from where both are, and leaves out what is zeros. most is how long it may be, -1 for any length.
func sparse(ctx context.Context, to, from *os.File, most int64) (file, error) {
	sum, buffer, out := sha256.New(), make([]byte, 256<<10), file{}
	zeros := make([]byte, len(buffer))
	for {
		n, err := io.ReadFull(from, buffer)
		if n > 0 {
			sum.Write(buffer[:n])
			if most >= 0 && out.Size+int64(n) > most {
				return out, vm.Errorf(vm.Invalid, "is longer than it was saved")
			}
			if !bytes.Equal(buffer[:n], zeros[:n]) {
				if _, err := to.WriteAt(buffer[:n], out.Size); err != nil {
					return out, err
				}
			}
			out.Size += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			out.Sum = hex.EncodeToString(sum.Sum(nil))
			return out, to.Truncate(out.Size)
		case err != nil:
			return out, err
		case ctx.Err() != nil:
			return out, ctx.Err()
		}
	}
}

// regular opens a file of a claim, where anything may lie.
func regular(dir *os.Root, path string) (*os.File, error) {
	st, err := dir.Lstat(path)
	if err == nil && !st.Mode().IsRegular() {
		err = vm.Errorf(vm.Invalid, "%s is no regular file", filepath.Base(path))
	}
	if err != nil {
		return nil, err
	}
	f, err := dir.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if st, err = f.Stat(); err == nil && !st.Mode().IsRegular() {
		err = vm.Errorf(vm.Invalid, "%s is no regular file", filepath.Base(path))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// read gives a state's list, if it is sealed.
func (s Store) read(p Place, dir *os.Root) (list, error) {
	f, err := regular(dir, filepath.Join(saved, listName))
	if errors.Is(err, fs.ErrNotExist) {
		return list{}, vm.Errorf(vm.NotFound, "state %s: there is none", p)
	}
	if err != nil {
		return list{}, fmt.Errorf("state %s: %w", p, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxList+1))
	if err != nil {
		return list{}, fmt.Errorf("state %s: %w", p, err)
	}
	var l list
	if len(text) > maxList || json.Unmarshal(text, &l) != nil || l.Version != 1 || len(l.Files) > maxFiles {
		return list{}, vm.Errorf(vm.Invalid, "state %s: %s/%s/%s/%s of the claim is not what muster-vm writes", p, folder, p, saved, listName)
	}
	if !hmac.Equal([]byte(l.Seal), []byte(s.seal(l))) || l.Place != p.String() {
		return list{}, vm.Errorf(vm.Invalid, "state %s: its seal is not this node's: it was changed, or saved by a node with another key (see --suspend-key); without %s/%s on the claim the machine boots", p, folder, p)
	}
	return l, nil
}

// Find says what a place's state is of; NotFound if it has none. Invalid: it is none that a node with this key has saved.
func (s Store) Find(p Place) (About, error) {
	dir, err := at(p, false)
	if err != nil {
		return About{}, err
	}
	defer shut(dir)
	l, err := s.read(p, dir)
	return l.About, err
}

// Fetch copies a state's files to where the caller says, over what is there: owner and mode of a file that is there stay. A file that the state has not is an error, one that the
// caller does not name is left out. After an error the files are of no use.
func (s Store) Fetch(ctx context.Context, p Place, files map[string]string) error {
	dir, err := at(p, false)
	if err != nil {
		return err
	}
	defer shut(dir)
	l, err := s.read(p, dir)
	if err != nil {
		return err
	}
	for _, n := range slices.Sorted(maps.Keys(files)) {
		want, ok := l.Files[n]
		if !ok || n == listName {
			return vm.Errorf(vm.Invalid, "state %s: it has no %s", p, n)
		}
		if err := s.fetch(ctx, dir, n, files[n], want); err != nil {
			return fmt.Errorf("state %s: %s: %w", p, n, err)
		}
	}
	return nil
}

func (s Store) fetch(ctx context.Context, dir *os.Root, n, path string, want file) error {
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &st); err != nil {
		return err
	}
	if free := int64(st.Bavail) * st.Bsize; free < want.Size { //nolint:gosec // blocks of a file system
		return vm.Errorf(vm.Exhausted, "the node has %d MiB left, and it has %d", free>>20, want.Size>>20)
	}
	from, err := regular(dir, filepath.Join(saved, n))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	got, err := sparse(ctx, to, from, want.Size)
	if err := errors.Join(err, to.Sync(), to.Close()); err != nil {
		return err
	}
	if got != want {
		return vm.Errorf(vm.Invalid, "it is not what was saved: its sum is another")
	}
	return nil
}

// Take says that the machine of this id begins from a place's state; again, the same. Conflict: another one has it, or it is gone.
func (Store) Take(p Place, id string) error {
	dir, err := at(p, false)
	if err == nil {
		defer shut(dir)
		if _, err := dir.Lstat(used + id); err == nil {
			return nil
		}
		if err = dir.Rename(saved, used+id); err == nil {
			return flush(dir, ".")
		}
	}
	if vm.KindOf(err) == vm.NotFound || errors.Is(err, fs.ErrNotExist) {
		return vm.Errorf(vm.Conflict, "state %s: another machine has begun from it, or it was removed", p)
	}
	return fmt.Errorf("state %s: %w", p, err)
}

// Return is for a machine that took a place's state and never ran: another can have it. Nothing happens if it has not taken it.
func (Store) Return(p Place, id string) error {
	dir, err := at(p, false)
	if vm.KindOf(err) == vm.NotFound || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer shut(dir)
	if _, err := dir.Lstat(saved); err == nil { // a later one
		return dir.RemoveAll(used + id)
	}
	if err := dir.Rename(used+id, saved); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("state %s: %w", p, err)
	}
	return nil
}

// Drop removes what the machine of this id has taken.
func (Store) Drop(p Place, id string) error {
	dir, err := at(p, false)
	if vm.KindOf(err) == vm.NotFound || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer shut(dir)
	return dir.RemoveAll(used + id)
}

// Clear removes a place's state, if it has one.
func (Store) Clear(p Place) error {
	dir, err := at(p, false)
	if vm.KindOf(err) == vm.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	defer shut(dir)
	return dir.RemoveAll(saved)
}

// Others removes the states on a place's claim that are of other owners.
func (Store) Others(p Place) error {
	claim, err := os.OpenRoot(p.Claim)
	if err != nil {
		return fmt.Errorf("the claim: %w", err)
	}
	defer shut(claim)
	dir, err := claim.OpenRoot(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the claim: %w", err)
	}
	defer shut(dir)
	return empty(dir, func(n string) bool { return len(n) <= len(p.Owner) || n[:len(p.Owner)+1] != p.Owner+"@" })
}

package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/muster-scheduler/muster/internal/vm"
)

const (
	chunkBytes = 64 << 10 // what is written, or left a hole, at once
	roomBytes  = 16 << 20 // how much is written between two looks at the free space
)

// part is a file that is being pulled or unpacked. It knows the digest of what it holds.
type part struct {
	s       *Store
	path    string
	durable bool // it can be gone on with after a crash
	f       file
	size    int64
	sum     hash.Hash
	state   partState
	asked   int64 // the size at which the free space was looked at last
}

// partState is what a later try has to know of a part.
type partState struct {
	// Validator is what the server calls the content; empty where the content's digest is known anyway, or the server says nothing.
	Validator string `json:"validator,omitempty"`
	// Synced bytes would outlive the machine's power; more may be there, and is not relied upon.
	Synced int64 `json:"synced"`
}

func partKey(kind string, identity ...string) string {
	h := sha256.New()
	for _, s := range append([]string{kind}, identity...) {
		fmt.Fprintf(h, "%d:%s\n", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// openPart opens the part of a key, with what an earlier try left in it. Who calls it holds the key.
func (s *Store) openPart(ctx context.Context, key string) (*part, error) {
	p := &part{s: s, path: filepath.Join(partsDir, key+".part"), durable: true, sum: sha256.New()}
	f, err := s.fs.Open(p.path, true)
	if errors.Is(err, os.ErrNotExist) {
		if f, err = s.fs.Create(p.path, 0o600); err != nil {
			return nil, full(err)
		}
		p.f = f
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	p.f = f
	if err := p.resume(ctx); err != nil {
		f.Close()
		return nil, err
	}
	return p, nil
}

// newPart makes an empty file beside the part of a key, for what is unpacked from it.
func (s *Store) newPart(key string) (*part, error) {
	p := &part{s: s, path: filepath.Join(partsDir, key+".disk"), sum: sha256.New()}
	if err := s.fs.Remove(p.path); err != nil {
		return nil, err
	}
	f, err := s.fs.Create(p.path, 0o600)
	if err != nil {
		return nil, full(err)
	}
	p.f = f
	return p, nil
}

func (p *part) statePath() string { return p.path + ".json" }

func (p *part) resume(ctx context.Context) error {
	if err := p.readState(); err != nil || p.state.Synced <= 0 {
		return p.reset("") // whatever it was, it is no start
	}
	info, err := p.f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < p.state.Synced {
		return p.reset("")
	}
	if err := p.f.Truncate(p.state.Synced); err != nil {
		return err
	}
	for b := make([]byte, 1<<20); p.size < p.state.Synced; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := p.f.ReadAt(b[:min(int64(len(b)), p.state.Synced-p.size)], p.size)
		p.sum.Write(b[:n])
		p.size += int64(n)
		if n == 0 {
			return fmt.Errorf("reading %s at %d: %w", p.path, p.size, err)
		}
	}
	p.asked = p.size
	return nil
}

func (p *part) readState() error {
	f, err := p.s.fs.Open(p.statePath(), false)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 64<<10))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, &p.state)
}

// reset starts again, with content that the server calls validator.
func (p *part) reset(validator string) error {
	p.size, p.asked, p.state = 0, 0, partState{Validator: validator}
	p.sum.Reset()
	if err := p.f.Truncate(0); err != nil {
		return err
	}
	if !p.durable {
		return nil
	}
	return p.checkpoint()
}

// checkpoint makes what is there safe to go on from.
func (p *part) checkpoint() error {
	if err := p.stretch(); err != nil {
		return err
	}
	if err := p.f.Sync(); err != nil {
		return full(err)
	}
	p.state.Synced = p.size
	data, err := json.Marshal(p.state)
	if err != nil {
		return err
	}
	return writeFile(p.s.fs, partsDir, p.statePath(), data)
}

// stretch gives the file its size, which it lacks where it ends with a hole.
func (p *part) stretch() error { return full(p.f.Truncate(p.size)) }

// room refuses what would take the space that is to stay free. more is how many bytes are still to come, as far as that is known.
func (p *part) room(more int64) error {
	free, err := p.s.fs.Free()
	if err != nil {
		return err
	}
	if need := max(more, roomBytes); free < p.s.options.ReserveBytes || free-p.s.options.ReserveBytes < need {
		return vm.Errorf(vm.Exhausted, "%d bytes more need room, the image store's filesystem has %d free, and %d of these stay free", need, free, p.s.options.ReserveBytes)
	}
	p.asked = p.size
	return nil
}

// isHole reports whether all bytes are zero: the first is, and each is what the one before it is.
func isHole(b []byte) bool {
	return len(b) > 0 && b[0] == 0 && bytes.Equal(b[:len(b)-1], b[1:])
}

// write appends a chunk. Zeros become a hole.
func (p *part) write(b []byte) error {
	if int64(len(b)) > p.s.options.MaxBytes-p.size {
		return vm.Errorf(vm.Exhausted, "it has more than the %d bytes that this node takes", p.s.options.MaxBytes)
	}
	if p.size-p.asked >= roomBytes {
		if err := p.room(0); err != nil {
			return err
		}
	}
	if !isHole(b) {
		if _, err := p.f.WriteAt(b, p.size); err != nil {
			return full(err)
		}
	}
	p.sum.Write(b)
	p.size += int64(len(b))
	if p.durable && p.size-p.state.Synced >= p.s.options.checkpoint {
		return p.checkpoint()
	}
	return nil
}

// copy appends all of r in whole chunks, and calls after for each.
func (p *part) copy(r io.Reader, after func()) error {
	for b := make([]byte, chunkBytes); ; {
		n, err := 0, error(nil)
		for n < len(b) && err == nil {
			var more int
			more, err = r.Read(b[n:])
			n += more
		}
		if n > 0 {
			if err := p.write(b[:n]); err != nil {
				return err
			}
			after()
		}
		switch {
		case err == io.EOF: // and nothing that wraps it: that is no good end
			return nil
		case err != nil:
			return readError{err}
		}
	}
}

// readError is an error of the reader in copy, and none of the disk's.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

func (p *part) digest() Digest { return Digest(sha256Prefix + hex.EncodeToString(p.sum.Sum(nil))) }

// leave ends the use of the part after an error: what may pass leaves it for a later try, what is wrong with the content does not.
func (p *part) leave(err error) {
	if kind := vm.KindOf(err); !p.durable || p.size == 0 || kind == vm.Invalid || kind == vm.Exhausted || kind == vm.NotFound {
		p.discard()
		return
	}
	_ = p.checkpoint() // without it, the later try begins further back
	p.f.Close()
}

// discard removes the file and its state. What cannot be removed is garbage for GC.
func (p *part) discard() {
	p.f.Close()
	_ = p.s.fs.Remove(p.path)
	if p.durable {
		_ = p.s.fs.Remove(p.statePath())
	}
}

// keep makes the part a disk of the store, and the record true, with the file's digest and size. The part is closed.
func (p *part) keep(r record) (record, error) {
	s := p.s
	r.ID, r.Size, r.Pulled = p.digest(), p.size, s.options.Now().UTC()
	err := p.stretch()
	if err == nil {
		err = p.f.Chmod(0o444)
	}
	if err == nil {
		err = full(p.f.Sync())
	}
	if closed := p.f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.present(r.ID, r.Size) {
		err = s.fs.Remove(p.path) // a disk that VMs may have open is not exchanged, even for its equal
	} else {
		err = s.fs.Rename(p.path, diskPath(r.ID))
	}
	for _, dir := range []string{disksDir, partsDir} {
		if err == nil {
			err = s.fs.SyncDir(dir)
		}
	}
	if err != nil {
		return record{}, full(err)
	}
	r, err = s.add(r)
	if err == nil && p.durable {
		err = s.fs.Remove(p.statePath())
	}
	return r, err
}

// present reports whether the disk of an image is there. The store is locked.
func (s *Store) present(id Digest, size int64) bool {
	info, err := s.fs.Lstat(diskPath(id))
	return err == nil && info.Mode().IsRegular() && info.Size() == size
}

// add writes the index with a record added. The store is locked.
func (s *Store) add(r record) (record, error) {
	next, r := s.index.add(r)
	return r, s.write(next)
}

// known gives the record that a condition holds for and whose disk is there, after adding names to it; or nothing.
func (s *Store) known(names record, holds func(record) bool) (record, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.index.Images {
		if !holds(r) || !s.present(r.ID, r.Size) {
			continue
		}
		r.Tags, r.Digests, r.Origins = names.Tags, names.Digests, names.Origins
		r, err := s.add(r)
		return r, err == nil, err
	}
	return record{}, false, nil
}

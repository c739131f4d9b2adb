package suspend

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
)

type bench struct {
	*testing.T
	s      Store
	p      Place
	dir    string
	memory []byte
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, s: Store{Key: bytes.Repeat([]byte{7}, 32)}, p: Place{Claim: t.TempDir(), Owner: "job", Index: "0", Container: "vm"}, dir: t.TempDir()}
	b.memory = append(append([]byte(whole), make([]byte, 3<<20)...), "the end"...)
	b.write("memory", b.memory)
	b.write("root", []byte("a disk"))
	return b
}

func (b *bench) write(name string, content []byte) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), content, 0o600); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) files() map[string]string {
	return map[string]string{"memory": filepath.Join(b.dir, "memory"), "root": filepath.Join(b.dir, "root")}
}

func (b *bench) put() {
	b.Helper()
	b.ok(b.s.Put(b.Context(), b.p, "c1", About{PodUID: "u1", UUID: "uuid", Machine: "m"}, b.files()))
}

func (b *bench) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) kind(err error, want vm.Kind, says string) {
	b.Helper()
	if err == nil || vm.KindOf(err) != want || !strings.Contains(err.Error(), says) {
		b.Errorf("%v, want kind %v and %q", err, want, says)
	}
}

// claimed is a path below the claim.
func (b *bench) claimed(elem ...string) string {
	return filepath.Join(append([]string{b.p.Claim, folder, b.p.String()}, elem...)...)
}

// TestLife: what was put is found and fetched byte by byte; one machine takes it, a second comes too late; one that never ran gives it back.
func TestLife(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.s.Find(b.p)
	b.kind(err, vm.NotFound, "job@0@vm")
	b.put()
	b.put() // again, as after a crash
	about, err := b.s.Find(b.p)
	if b.ok(err); about != (About{PodUID: "u1", UUID: "uuid", Machine: "m"}) {
		t.Errorf("%+v", about)
	}
	b.write("memory", bytes.Repeat([]byte("x"), 5<<20)) // longer, and no zeros
	b.write("root", nil)
	b.ok(b.s.Fetch(t.Context(), b.p, b.files()))
	for name, want := range map[string][]byte{"memory": b.memory, "root": []byte("a disk")} { // order: two files
		if got, err := os.ReadFile(filepath.Join(b.dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is another: %d bytes, %v", name, len(got), err)
		}
	}
	var st unix.Stat_t
	if b.ok(unix.Stat(b.claimed(saved, "memory"), &st)); st.Blocks*512 > 1<<20 {
		t.Errorf("zeros take %d bytes", st.Blocks*512)
	}
	b.kind(b.s.Fetch(t.Context(), b.p, map[string]string{"iso": filepath.Join(b.dir, "iso")}), vm.Invalid, "has no iso")
	b.ok(b.s.Return(b.p, "c2")) // it has not taken it
	for range 2 {
		b.ok(b.s.Take(b.p, "c2"))
	}
	b.kind(b.s.Take(b.p, "c3"), vm.Conflict, "another machine")
	_, err = b.s.Find(b.p)
	b.kind(err, vm.NotFound, "job@0@vm")
	b.ok(b.s.Return(b.p, "c2"))
	b.ok(b.s.Take(b.p, "c3"))
	for range 2 {
		b.ok(b.s.Drop(b.p, "c3"))
	}
	b.kind(b.s.Take(b.p, "c4"), vm.Conflict, "another machine")
	if left, err := os.ReadDir(b.claimed()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestOthers: the states of other owners go, those of the same owner's other pods stay; a state that is cleared is gone.
func TestOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put()
	other := b.p
	other.Index = "1"
	next := Place{Claim: b.p.Claim, Owner: "job2", Container: "vm"}
	for _, p := range []Place{other, next} {
		b.ok(b.s.Put(t.Context(), p, "c", About{}, b.files()))
	}
	b.ok(b.s.Others(b.p))
	_, err := b.s.Find(next)
	b.kind(err, vm.NotFound, "job2@")
	for _, p := range []Place{b.p, other} {
		_, err := b.s.Find(p)
		b.ok(err)
	}
	b.ok(b.s.Clear(b.p))
	_, err = b.s.Find(b.p)
	b.kind(err, vm.NotFound, "job@0@vm")
	b.ok(b.s.Others(Place{Claim: t.TempDir(), Owner: "job", Container: "vm"}))
	for _, bad := range []Place{{Claim: b.p.Claim, Owner: "../x", Container: "vm"}, {Claim: b.p.Claim, Container: "vm"}, {Claim: b.p.Claim, Owner: "a", Index: "b@c", Container: "vm"}} {
		_, err := b.s.Find(bad)
		b.kind(err, vm.Invalid, "owner")
	}
}

// TestHostile: what others of the namespace can do to a claim is refused, by name.
func TestHostile(t *testing.T) {
	t.Parallel()
	for what, one := range map[string]struct { // order: each has a claim of its own
		do   func(*bench)
		says string
	}{
		"another memory": {func(b *bench) {
			b.ok(os.WriteFile(b.claimed(saved, "memory"), bytes.Repeat([]byte("y"), len(b.memory)), 0o600))
		}, "its sum is another"},
		"a longer one":  {func(b *bench) { b.ok(os.Truncate(b.claimed(saved, "memory"), 1<<40)) }, "is longer than it was saved"},
		"a shorter one": {func(b *bench) { b.ok(os.Truncate(b.claimed(saved, "memory"), 5)) }, "its sum is another"},
		"a link": {func(b *bench) {
			b.ok(errors.Join(os.Remove(b.claimed(saved, "root")), os.Symlink("/etc/passwd", b.claimed(saved, "root"))))
		}, "root is no regular file"},
		"a pipe": {func(b *bench) {
			b.ok(errors.Join(os.Remove(b.claimed(saved, "root")), unix.Mkfifo(b.claimed(saved, "root"), 0o600)))
		}, "root is no regular file"},
		"no file": {func(b *bench) { b.ok(os.Remove(b.claimed(saved, "root"))) }, "no such file"},
		"another list": {func(b *bench) {
			text, err := os.ReadFile(b.claimed(saved, listName))
			b.ok(errors.Join(err, os.WriteFile(b.claimed(saved, listName), bytes.Replace(text, []byte(`"uuid"`), []byte(`"uuix"`), 1), 0o600)))
		}, "is not this node's"},
		"no list": {func(b *bench) {
			b.ok(os.WriteFile(b.claimed(saved, listName), bytes.Repeat([]byte("{"), maxList+2), 0o600))
		}, "is not what muster-vm writes"},
		"another key": {func(b *bench) { b.s.Key = bytes.Repeat([]byte{8}, 32) }, "--suspend-key"},
		"another's": {func(b *bench) {
			b.ok(os.Rename(b.claimed(), filepath.Join(b.p.Claim, folder, "job@1@vm")))
			b.p.Index = "1"
		}, "is not this node's"},
		"a place elsewhere": {func(b *bench) {
			out := b.TempDir()
			b.ok(errors.Join(os.Rename(b.claimed(), filepath.Join(out, "x")), os.Symlink(filepath.Join(out, "x"), b.claimed())))
		}, "escapes"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.put()
			one.do(b)
			err := b.s.Fetch(t.Context(), b.p, b.files())
			if err == nil || !strings.Contains(err.Error(), one.says) {
				t.Errorf("%v, want %q", err, one.says)
			}
		})
	}
}

// TestPutFails: a state that cannot be written leaves the one before, and nothing beside it.
func TestPutFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put()
	files := b.files()
	files["gone"] = filepath.Join(b.dir, "gone")
	if err := b.s.Put(t.Context(), b.p, "c2", About{PodUID: "u2"}, files); err == nil || !strings.Contains(err.Error(), "state job@0@vm: ") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.s.Put(ctx, b.p, "c2", About{PodUID: "u2"}, b.files()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if about, err := b.s.Find(b.p); err != nil || about.PodUID != "u1" {
		t.Errorf("%+v, %v", about, err)
	}
	if left, err := os.ReadDir(b.claimed()); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	b.kind(b.s.Room(b.p, 1<<60), vm.Exhausted, "MiB left")
	b.ok(b.s.Room(b.p, 1))
}

// TestFiles: memory is whole when libvirt says so; a key is made once, and a wrong one is refused.
func TestFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, want := range map[string]bool{"memory": true, "root": false, "none": false} { // order: three files
		if got, err := b.s.Whole(filepath.Join(b.dir, name)); err != nil || got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	b.write("part", []byte("LibvirtQemudPart and more of it"))
	if got, err := b.s.Whole(filepath.Join(b.dir, "part")); err != nil || got {
		t.Errorf("half a memory is whole, %v", err)
	}
	for range 2 {
		b.ok(b.s.Forget(filepath.Join(b.dir, "part")))
	}
	path := filepath.Join(b.dir, "key")
	key, err := LoadKey(path)
	if again, bad := LoadKey(path); err != nil || bad != nil || len(key) != 32 || !bytes.Equal(key, again) {
		t.Errorf("%x, %x, %v, %v", key, again, err, bad)
	}
	b.write("key", []byte("abc"))
	_, err = LoadKey(path)
	b.kind(err, vm.Invalid, "key: a key of states must be 32 bytes in hexadecimal")
}

package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/muster-scheduler/muster/internal/vm"
)

func openTest(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError checks kind and text.
func wantError(t *testing.T, err error, kind vm.Kind, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if vm.KindOf(err) != kind {
		t.Errorf("kind %d, want %d: %v", vm.KindOf(err), kind, err)
	}
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
}

// record is what these tests keep.
type record struct {
	ID   string            `json:"id"`
	Text string            `json:"text,omitempty"`
	Map  map[string]string `json:"map,omitempty"`
}

func some(id string) record {
	return record{ID: id, Text: strings.Repeat("x", 300), Map: map[string]string{"a": "b"}}
}

// all are the records of both kinds.
func all(t *testing.T, s *Store) [2][]*record {
	t.Helper()
	var out [2][]*record
	for i, k := range kinds() {
		got, err := Load[record](s, k)
		must(t, err)
		out[i] = got
	}
	return out
}

// TestSurvives: what was put is there after the store was closed and opened, as it was put last; what was deleted is not.
func TestSurvives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vm.db")
	s := openTest(t, path)
	for _, id := range []string{"b", "a", "gone"} {
		must(t, s.Put(Sandboxes, id, some(id)))
		must(t, s.Put(Containers, id, some(id)))
	}
	last := some("a")
	last.Text = "changed"
	must(t, s.Put(Containers, "a", &last))
	must(t, s.Delete(Sandboxes, "gone"))
	must(t, s.Delete(Sandboxes, "never"))
	must(t, s.Close())
	a, b, gone := some("a"), some("b"), some("gone")
	want := [2][]*record{{&a, &b}, {&last, &b, &gone}}
	if got := all(t, openTest(t, path)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestRefused: what cannot be is refused, with object, field and rule, and leaves nothing.
func TestRefused(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "vm.db"))
	wantError(t, s.Put(Sandboxes, "../x", some("x")), vm.Invalid, "sandboxes", "../x", "id")
	wantError(t, s.Put(Containers, "c1", record{Text: strings.Repeat("x", maxRecord)}), vm.Invalid, "containers", "c1", "at most 4194304")
	if got := all(t, s); got[0] != nil || got[1] != nil {
		t.Errorf("left: %v", got)
	}
	must(t, s.Put(Containers, "c1", map[string]string{"new": "1"}))
	if _, err := Load[record](s, Containers); err == nil || !strings.Contains(err.Error(), "new") {
		t.Errorf("a field that is not known: %v", err)
	}
}

// TestVersions: a later version reads an earlier file and brings it up to date at once; an earlier version refuses a later file by name, and leaves it as it is.
func TestVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vm.db")
	s := openTest(t, path)
	must(t, s.Put(Sandboxes, "s1", some("s1")))
	must(t, s.Close())
	broken := append(formats(), format{2, func(tx *bbolt.Tx) error {
		must(t, tx.DeleteBucket([]byte(Sandboxes)))
		return os.ErrInvalid
	}})
	if _, err := openWith(path, broken); err == nil || !strings.Contains(err.Error(), "from format 1 to 2") {
		t.Fatalf("an upgrade that fails: %v", err)
	}
	later := append(formats(), format{2, func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(Sandboxes))
		var r record
		if err := decode([]byte("s1"), b.Get([]byte("s1")), &r); err != nil {
			return err
		}
		r.Text = "upgraded"
		v, err := encode("s1", r)
		if err != nil {
			return err
		}
		return b.Put([]byte("s1"), v)
	}})
	s, err := openWith(path, later)
	must(t, err)
	if got := all(t, s)[0]; len(got) != 1 || got[0].Text != "upgraded" {
		t.Errorf("after the upgrade: %v", got)
	}
	must(t, s.Close())
	before, err := os.ReadFile(path)
	must(t, err)
	_, err = Open(path)
	wantError(t, err, vm.Invalid, path, "format 2", "up to 1", "a later version wrote it")
	after, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(before, after) {
		t.Error("a file that was refused has changed")
	}
	s, err = openWith(path, later)
	must(t, err)
	must(t, s.Close())
}

// TestInUse: a second process is told so.
func TestInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vm.db")
	openTest(t, path)
	_, err := Open(path)
	wantError(t, err, vm.Unavailable, path, "is another runtime running?")
}

// TestDamaged: whatever bits of the file turn, opening it ends in the same records (those before the last write, if it is that write's head that is damaged) or in an
// error that says what to do, with a copy kept; never in a panic, never in other records, and the file is as it was.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "vm.db")
	s := openTest(t, path)
	for i := range 60 {
		id := fmt.Sprintf("s%d", i)
		must(t, s.Put(Sandboxes, id, some(id)))
		must(t, s.Put(Containers, id, some(id)))
		if i%7 == 3 {
			must(t, s.Delete(Containers, fmt.Sprintf("s%d", i-2)))
		}
	}
	before := all(t, s)
	must(t, s.Put(Containers, "last", some("last")))
	want := all(t, s)
	must(t, s.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	r := rand.New(rand.NewPCG(3, 4))
	refused, opened := 0, 0
	for round := range 400 {
		damaged := bytes.Clone(whole)
		switch {
		case round < 20:
			damaged = damaged[:r.IntN(len(damaged))]
		case round < 200: // the heads of pages, where numbers of pages are
			at := r.IntN(len(damaged)/4096)*4096 + r.IntN(96)
			damaged[at] ^= 1 << r.IntN(8)
		default:
			for range 1 + r.IntN(3) {
				damaged[r.IntN(len(damaged))] ^= 1 << r.IntN(8)
			}
		}
		path := filepath.Join(dir, fmt.Sprintf("d%d.db", round))
		must(t, os.WriteFile(path, damaged, 0o600))
		s, err := Open(path)
		if err == nil {
			opened++
			// Where the newer head is damaged, the older one counts: so is a write found that was cut short.
			if got := all(t, s); !reflect.DeepEqual(got, want) && !reflect.DeepEqual(got, before) {
				t.Fatalf("round %d: other records", round)
			}
			must(t, s.Put(Sandboxes, "new", some("new")))
			must(t, s.Close())
			continue
		}
		refused++
		if !strings.Contains(err.Error(), "later version") {
			wantError(t, err, vm.Internal, path, "is damaged", "a copy is "+path+".damaged-", "move it away")
			copies, _ := filepath.Glob(path + ".damaged-*")
			if len(copies) != 1 {
				t.Fatalf("round %d: copies %v", round, copies)
			}
			if kept, err := os.ReadFile(copies[0]); err != nil || !bytes.Equal(kept, damaged) {
				t.Fatalf("round %d: the copy differs: %v", round, err)
			}
			_, _ = Open(path)
			if again, _ := filepath.Glob(path + ".damaged-*"); len(again) != 1 {
				t.Fatalf("round %d: a second start made another copy", round)
			}
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, damaged) {
			t.Fatalf("round %d: the file has changed: %v", round, err)
		}
	}
	t.Logf("%d refused, %d opened with the same records", refused, opened)
	if refused < 100 {
		t.Errorf("only %d of 400 were refused", refused)
	}
}

// FuzzPages: no file ends the walk in a panic or keeps it going.
func FuzzPages(f *testing.F) {
	path := filepath.Join(f.TempDir(), "vm.db")
	s, err := Open(path)
	if err != nil {
		f.Fatal(err)
	}
	if err := s.Put(Sandboxes, "s1", some("s1")); err != nil {
		f.Fatal(err)
	}
	_ = s.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole[:16384])
	f.Add([]byte{})
	f.Fuzz(func(_ *testing.T, b []byte) { _ = check(bytes.NewReader(b), int64(len(b)), 1) })
}

// TestCreateCutShort: what an opening that died left beside the file does not matter.
func TestCreateCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vm.db")
	must(t, os.WriteFile(path+".new", []byte("half"), 0o600))
	s := openTest(t, path)
	must(t, s.Put(Sandboxes, "s1", some("s1")))
	if _, err := os.Stat(path + ".new"); err == nil {
		t.Error("it is still there")
	}
}

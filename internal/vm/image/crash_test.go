package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var errCrash = errors.New("the process is dead")

// mortal is a directory whose user dies at one of the calls that change something: before it, or after it. A write that it dies before is done by half.
// Afterwards nothing changes any more.
type mortal struct {
	fileSystem
	at    int // 0: never
	after bool
	calls int
	log   []string
	dead  bool
}

func (m *mortal) do(what string, op func() error) error {
	if m.dead {
		return errCrash
	}
	m.calls++
	if m.calls == m.at && !m.after {
		m.dead = true
		return errCrash
	}
	m.log = append(m.log, what)
	err := op()
	if m.calls == m.at {
		m.dead = true
		return errCrash
	}
	return err
}

func (m *mortal) Mkdir(name string, mode os.FileMode) error {
	return m.do("mkdir "+name, func() error { return m.fileSystem.Mkdir(name, mode) })
}

func (m *mortal) Create(name string, mode os.FileMode) (f file, err error) {
	err = m.do("create "+name, func() error { f, err = m.fileSystem.Create(name, mode); return err })
	if err != nil {
		if f != nil {
			f.Close()
		}
		return nil, err
	}
	return &mortalFile{f, m, name}, nil
}

func (m *mortal) Open(name string, write bool) (file, error) {
	f, err := m.fileSystem.Open(name, write)
	if err != nil {
		return nil, err
	}
	return &mortalFile{f, m, name}, nil
}

func (m *mortal) Rename(from, to string) error {
	return m.do("rename "+from+" "+to, func() error { return m.fileSystem.Rename(from, to) })
}

func (m *mortal) Remove(name string) error {
	return m.do("remove "+name, func() error { return m.fileSystem.Remove(name) })
}

func (m *mortal) SyncDir(name string) error {
	return m.do("syncdir "+name, func() error { return m.fileSystem.SyncDir(name) })
}

type mortalFile struct {
	file
	m    *mortal
	name string
}

func (f *mortalFile) WriteAt(b []byte, at int64) (n int, err error) {
	if f.m.calls+1 == f.m.at && !f.m.after && !f.m.dead {
		_, _ = f.file.WriteAt(b[:len(b)/2], at)
	}
	err = f.m.do("write "+f.name, func() error { n, err = f.file.WriteAt(b, at); return err })
	return n, err
}

func (f *mortalFile) Truncate(size int64) error {
	return f.m.do("truncate "+f.name, func() error { return f.file.Truncate(size) })
}

func (f *mortalFile) Chmod(mode os.FileMode) error {
	return f.m.do("chmod "+f.name, func() error { return f.file.Chmod(mode) })
}

func (f *mortalFile) Sync() error {
	return f.m.do("sync "+f.name, func() error { return f.file.Sync() })
}

// crashes does something in a store that dies at each call in turn, and looks at what the next store makes of it. prepare makes the store's directory ready; look
// is told when nothing died.
func crashes(t *testing.T, o Options, prepare, act func(*testing.T, *Store) error, look func(t *testing.T, s *Store, whole bool)) {
	t.Helper()
	o.checkpoint = 192 << 10
	for _, after := range []bool{false, true} {
		for at := 1; ; at++ {
			dir := t.TempDir()
			s := reopen(t, dir, o)
			if err := prepare(t, s); err != nil {
				t.Fatal(err)
			}
			_ = s.Close()
			m := &mortal{}
			dying := o
			dying.files = func(fs fileSystem) fileSystem { m.fileSystem = fs; return m }
			s = reopen(t, dir, dying)
			m.at, m.after, m.calls = at, after, 0
			err := act(t, s)
			_ = s.Close()
			if !m.dead && err != nil {
				t.Fatal(err)
			}
			where := fmt.Sprintf("died at call %d (%s)", at, append(m.log, "")[max(0, len(m.log)-1)])
			s = reopen(t, dir, o)
			look(t, s, !m.dead)
			// Whatever is on the disk is an image's, or garbage.
			o2 := o
			o2.Now = func() time.Time { return time.Now().Add(48 * time.Hour) }
			_ = s.Close()
			s = reopen(t, dir, o2)
			if _, err := s.GC(false); err != nil {
				t.Fatal(err)
			}
			if left := files(t, dir); len(left) != len(s.List("")) {
				t.Errorf("%s: files %v, images %d", where, left, len(s.List("")))
			}
			if _, err := os.Lstat(filepath.Join(dir, indexFile+temporary)); err == nil {
				t.Errorf("%s: a rest of the index", where)
			}
			_ = s.Close()
			if t.Failed() {
				t.Fatal(where)
			}
			if !m.dead {
				if at < 5 {
					t.Fatalf("only %d calls", at)
				}
				break
			}
		}
	}
}

// TestCrashPulling: a name means its old image or its new one, whole, wherever a pull dies; and the next pull gets the new one.
func TestCrashPulling(t *testing.T) {
	t.Parallel()
	old, next := large("old", 200<<10), large("next", 420<<10)
	w := newServer(t, old)
	o := Options{Mappings: func() ([]Mapping, error) {
		return []Mapping{{Name: "m", Translations: []Rule{{Name: "tiny", URL: w.URL}}}}, nil
	}}
	crashes(t, o, func(t *testing.T, s *Store) error {
		w.content.Store(&old)
		_, err := s.Pull(t.Context(), Request{Name: "tiny"})
		return err
	}, func(t *testing.T, s *Store) error {
		w.content.Store(&next)
		_, err := s.Pull(t.Context(), Request{Name: "tiny"})
		return err
	}, func(t *testing.T, s *Store, whole bool) {
		got, err := s.Status("tiny")
		if err != nil {
			t.Fatal(err)
		}
		if want := map[Digest][]byte{digestOf(old): old, digestOf(next): next}[got.ID]; want == nil || whole && got.ID != digestOf(next) {
			t.Fatalf("the name means %s", got.ID)
		} else {
			holds(t, got, want)
		}
		holds(t, pull(t, s, "tiny"), next)
		if first, err := s.Status(string(digestOf(old))); err != nil {
			t.Error(err)
		} else {
			holds(t, first, old)
		}
	})
}

// TestCrashUnpacking is the same for a disk in a container image.
func TestCrashUnpacking(t *testing.T) {
	t.Parallel()
	want := large("unpacked", 300<<10)
	r := newReg(t)
	r.push("vm/c", "1", layer{layerType, "", archive(t, "", entry{"disk/disk.img", '0', want})})
	name := r.host + "/vm/c:1"
	crashes(t, Options{}, func(*testing.T, *Store) error { return nil }, func(t *testing.T, s *Store) error {
		_, err := s.Pull(t.Context(), Request{Name: name})
		return err
	}, func(t *testing.T, s *Store, whole bool) {
		if got, err := s.Status(name); err == nil {
			holds(t, got, want)
		} else if whole {
			t.Error(err)
		}
		holds(t, pull(t, s, name), want)
	})
}

// TestCrashRemoving: an image is there with its file, or is not there.
func TestCrashRemoving(t *testing.T) {
	t.Parallel()
	w := newServer(t, disk("a"))
	o := Options{Mappings: func() ([]Mapping, error) {
		return []Mapping{{Name: "m", Translations: []Rule{{Name: "tiny", URL: w.URL}, {Name: "other", URL: w.URL + "/x"}}}}, nil
	}}
	remove := func(_ *testing.T, s *Store) error {
		return s.Remove("tiny")
	}
	crashes(t, o, func(t *testing.T, s *Store) error {
		_, err := s.Pull(t.Context(), Request{Name: "tiny"})
		return err
	}, remove, func(t *testing.T, s *Store, whole bool) {
		got, err := s.Status("tiny")
		if err == nil {
			holds(t, got, disk("a"))
		}
		if whole && err == nil {
			t.Error("it was removed, and is there")
		}
		holds(t, pull(t, s, "tiny"), disk("a"))
	})
}

// TestSyncedBeforeNamed: the machine's power may go at any time, so that content is synced before it gets its name, and names before what relies on them.
func TestSyncedBeforeNamed(t *testing.T) {
	t.Parallel()
	want := large("synced", 600<<10)
	w := newServer(t, want)
	m := &mortal{}
	s := mapped(t, t.TempDir(), w.URL, Options{checkpoint: 256 << 10, files: func(fs fileSystem) fileSystem { m.fileSystem = fs; return m }})
	pull(t, s, "tiny")
	dirty, unsynced := map[string]bool{}, map[string]bool{} // files with bytes, folders with names, that a loss of power would take
	disk := diskPath(digestOf(want))
	for i, call := range m.log {
		verb, rest, _ := strings.Cut(call, " ")
		from, to, _ := strings.Cut(rest, " ")
		switch verb {
		case "write", "truncate", "chmod":
			dirty[from] = true
		case "sync":
			dirty[from] = false
		case "syncdir":
			unsynced[from] = false
		case "rename":
			if dirty[from] {
				t.Errorf("call %d: %s: its content is not synced", i, call)
			}
			if to == indexFile && unsynced[disksDir] {
				t.Errorf("call %d: %s: the disk's name is not synced", i, call)
			}
			unsynced[filepath.Dir(to)] = true
		}
	}
	for dir, lost := range unsynced {
		if lost {
			t.Errorf("names in %s are not synced at the end", dir)
		}
	}
	if !strings.Contains(strings.Join(m.log, "\n"), disk) {
		t.Errorf("%s never got its name: %q", disk, m.log)
	}
}

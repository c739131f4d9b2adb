package image

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"MaxBytes": {MaxBytes: -1}, "MaxPulls": {MaxPulls: -1}, "DownloadProtocol": {DownloadProtocol: "file"}, "DefaultSource": {DefaultSource: "any"}, "image name": {Pinned: []string{"../x"}},
	} {
		if _, err := Open(t.TempDir(), o); vm.KindOf(err) != vm.Invalid || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := t.TempDir()
	s := reopen(t, dir, Options{})
	if _, err := Open(dir, Options{}); vm.KindOf(err) != vm.Unavailable {
		t.Errorf("a second store: %v", err)
	}
	_ = s.Close()
	if _, err := s.Pull(t.Context(), Request{Name: "a"}); vm.KindOf(err) != vm.Unavailable {
		t.Errorf("a pull after the end: %v", err)
	}
	for _, text := range []string{"", "{", `{"version":2}`, `{"version":1,"images":[{"id":"../../etc/shadow","format":"raw"}]}`} {
		if err := os.WriteFile(filepath.Join(dir, indexFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), indexFile) {
			t.Errorf("index %q: %v", text, err)
		}
	}
}

func TestReopen(t *testing.T) {
	t.Parallel()
	r := newReg(t)
	want := disk("a")
	r.push("vm/tiny", "1", layer{qcow2Type, "", want})
	r.push("vm/lost", "1", layer{qcow2Type, "", disk("lost")})
	dir := t.TempDir()
	s := reopen(t, dir, Options{})
	first := pull(t, s, r.host+"/vm/tiny:1")
	lost := pull(t, s, r.host+"/vm/lost:1")
	_ = s.Close()
	if err := os.Remove(lost.Path); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{})
	again, err := s.Status(r.host + "/vm/tiny:1")
	if err != nil || again.ID != first.ID || !again.Pulled.Equal(first.Pulled) {
		t.Errorf("%+v, %v; was %+v", again, err, first)
	}
	if _, err := s.Status(r.host + "/vm/lost:1"); vm.KindOf(err) != vm.NotFound {
		t.Errorf("an image without its file: %v", err)
	}
	holds(t, pull(t, s, r.host+"/vm/lost:1"), disk("lost"))
}

func TestRemoveAndGC(t *testing.T) {
	t.Parallel()
	r := newReg(t)
	names := map[string]string{}
	for _, tag := range []string{"kept", "used", "gone"} {
		r.push("vm/tiny", tag, layer{qcow2Type, "", disk(tag)})
		names[tag] = r.host + "/vm/tiny:" + tag
	}
	dir := t.TempDir()
	var used []Digest
	var usedErr error
	now := time.Now()
	s := open(t, dir, Options{InUse: func() ([]Digest, error) { return used, usedErr }, Now: func() time.Time { return now }})
	kept, inUse, gone := pull(t, s, names["kept"]), pull(t, s, names["used"]), pull(t, s, names["gone"])
	used = []Digest{inUse.ID}
	for _, name := range []string{"absent", "", "../x", "sha256:" + zeros, names["gone"], names["gone"], string(inUse.ID)} {
		if err := s.Remove(name); err != nil {
			t.Errorf("removing %q: %v", name, err)
		}
	}
	if l := s.List(""); len(l) != 1 || l[0].ID != kept.ID {
		t.Errorf("images %+v", l)
	}
	exists := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	if !exists(kept.Path) || !exists(inUse.Path) || exists(gone.Path) {
		t.Error("remove took the wrong files")
	}
	// What else lies about: an old part, a young one, a disk that nobody knows, and what is not the store's.
	put := func(name string, age time.Duration) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	orphan := disksDir + "/" + strings.Repeat("0", 64)
	put(orphan, 0)
	put(partsDir+"/a.part", 25*time.Hour)
	put(partsDir+"/b.part", 23*time.Hour)
	put(disksDir+"/README", 25*time.Hour)
	put(indexFile+temporary, 0)
	paths := func(garbage []Garbage) (p []string) {
		for _, g := range garbage {
			if g.Why == "" {
				t.Errorf("%+v says not why", g)
			}
			p = append(p, g.Path)
		}
		return p
	}
	want := strings.Join([]string{orphan, indexFile + temporary, partsDir + "/a.part"}, " ")
	dry, err := s.GC(true)
	if err != nil || strings.Join(paths(dry), " ") != want {
		t.Errorf("dry: %v, %v; want %s", paths(dry), err, want)
	}
	usedErr = errors.New("the database is locked")
	if wet, err := s.GC(false); vm.KindOf(err) != vm.Unavailable || len(wet) != 0 || !exists(filepath.Join(dir, orphan)) {
		t.Errorf("collected %v without knowing what is in use: %v", wet, err)
	}
	usedErr = nil
	wet, err := s.GC(false)
	if err != nil || strings.Join(paths(wet), " ") != want {
		t.Errorf("wet: %v, %v; want %s", paths(wet), err, want)
	}
	for _, g := range wet {
		if exists(filepath.Join(dir, g.Path)) {
			t.Errorf("%s is still there", g.Path)
		}
	}
	used = nil
	if wet, err := s.GC(false); err != nil || len(wet) != 1 || filepath.Join(dir, wet[0].Path) != inUse.Path || wet[0].Bytes == 0 {
		t.Errorf("when no longer in use: %v, %v", wet, err)
	}
	if !exists(kept.Path) || !exists(filepath.Join(dir, disksDir, "README")) || !exists(filepath.Join(dir, partsDir, "b.part")) {
		t.Error("GC took too much")
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	raw := make([]byte, 8<<20) // a hole but for its ends
	copy(raw, "boot")
	copy(raw[len(raw)-512:], "end")
	w := newServer(t, raw)
	s := mapped(t, t.TempDir(), w.URL, Options{})
	before, err := s.Usage()
	if err != nil {
		t.Fatal(err)
	}
	got := pull(t, s, "tiny")
	holds(t, got, raw)
	after, err := s.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if after.Inodes != before.Inodes+2 { // the disk, and the index
		t.Errorf("%d inodes, %d before", after.Inodes, before.Inodes)
	}
	if grown := after.Bytes - before.Bytes; grown <= 0 || grown > int64(len(raw))/2 {
		t.Errorf("%d bytes more for a disk of %d with a hole", grown, len(raw))
	}
	if abs, _ := filepath.EvalSymlinks(s.dir); !strings.HasPrefix(abs, after.Mountpoint) || after.Mountpoint == "" {
		t.Errorf("mountpoint %q", after.Mountpoint)
	}
}

// eventually waits for what other goroutines bring about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%s did not come about", what)
		}
	}
}

func TestPullsOfOneThingAreOne(t *testing.T) {
	t.Parallel()
	want := large("one", 1<<20)
	gate := make(chan struct{})
	ended := make(chan struct{}, 10)
	var requests atomic.Int64
	w := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = w.Write(want[:1000])
		w.(http.Flusher).Flush()
		select {
		case <-gate:
			_, _ = w.Write(want[1000:])
		case <-r.Context().Done():
			ended <- struct{}{}
		}
	}))
	defer w.Close()
	s := mapped(t, t.TempDir(), w.URL, Options{})
	waiting := func(n int) func() bool {
		return func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			all := 0
			for _, f := range s.flights {
				all += len(f.waiting)
			}
			return all == n
		}
	}
	type result struct {
		image Image
		err   error
	}
	results := make(chan result, 10)
	start := func(ctx context.Context) {
		go func() {
			i, err := s.Pull(ctx, Request{Name: "tiny", Progress: func(int64, int64) {}})
			results <- result{i, err}
		}()
	}
	// All go: the pull ends.
	ctx, cancel := context.WithCancel(t.Context())
	start(ctx)
	eventually(t, "the request", func() bool { return requests.Load() == 1 })
	cancel()
	if r := <-results; vm.KindOf(r.err) != vm.Unavailable || !errors.Is(r.err, context.Canceled) {
		t.Errorf("who went: %v", r.err)
	}
	<-ended
	eventually(t, "the end", waiting(0))
	// One of five goes: the others get it, by one request.
	ctx, cancel = context.WithCancel(t.Context())
	start(ctx)
	for range 4 {
		start(t.Context())
	}
	eventually(t, "five who wait", waiting(5))
	cancel()
	if r := <-results; vm.KindOf(r.err) != vm.Unavailable {
		t.Errorf("who went: %v", r.err)
	}
	eventually(t, "the second request", func() bool { return requests.Load() == 2 })
	close(gate)
	for range 4 {
		if r := <-results; r.err != nil || r.image.ID != digestOf(want) {
			t.Errorf("who stayed: %v", r.err)
		}
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests", n)
	}
}

func TestDefectInAPull(t *testing.T) {
	t.Parallel()
	w := newServer(t, disk("a"))
	s := mapped(t, t.TempDir(), w.URL, Options{})
	_, err := s.Pull(t.Context(), Request{Name: "tiny", Progress: func(int64, int64) { panic("of a test") }})
	if err == nil || vm.KindOf(err) != vm.Internal || !strings.Contains(err.Error(), "a defect: of a test") {
		t.Errorf("%v", err)
	}
	holds(t, pull(t, s, "tiny"), disk("a"))
}

func TestStall(t *testing.T) {
	t.Parallel()
	want := large("stall", 1<<20)
	var requests atomic.Int64
	w := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"x"`)
		if requests.Add(1) == 1 {
			_, _ = w.Write(want[:len(want)/2])
			w.(http.Flusher).Flush()
			<-r.Context().Done() // until the other side gives up
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(want))
	}))
	defer w.Close()
	s := mapped(t, t.TempDir(), w.URL, Options{StallTimeout: 100 * time.Millisecond})
	holds(t, pull(t, s, "tiny"), want)
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// lacking is a directory that has a fixed space, and whose files take no more than some bytes.
type lacking struct {
	fileSystem
	free, takes int64
}

type lackingFile struct {
	file
	takes int64
}

func (l lacking) Free() (int64, error) { return l.free, nil }

func (l lacking) Create(name string, mode os.FileMode) (file, error) {
	f, err := l.fileSystem.Create(name, mode)
	return lackingFile{f, l.takes}, err
}

func (f lackingFile) WriteAt(b []byte, at int64) (int, error) {
	if at+int64(len(b)) > f.takes {
		return 0, &os.PathError{Op: "write", Err: syscall.ENOSPC}
	}
	return f.file.WriteAt(b, at)
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	want := large("full", 20<<20)
	const plenty = 1 << 40
	for name, l := range map[string]lacking{
		"no room by statfs":    {free: 30 << 20, takes: plenty},
		"no room by the write": {free: plenty, takes: 1 << 20},
	} {
		for _, unknown := range []bool{false, true} {
			w := newServer(t, want)
			w.plain.Store(unknown)
			dir := t.TempDir()
			s := mapped(t, dir, w.URL, Options{ReserveBytes: 20 << 20, files: func(fs fileSystem) fileSystem { l.fileSystem = fs; return l }})
			refused(t, s, Request{Name: "tiny"}, vm.Exhausted, "filesystem")
			if left := files(t, dir); len(left) != 0 {
				t.Errorf("%s: files left %v", name, left)
			}
			if w.bytes.Load() == int64(len(want)) && name != "no room by statfs" {
				t.Errorf("%s: all of it was fetched", name)
			}
		}
	}
	w := newServer(t, want)
	l := lacking{free: 60 << 20, takes: plenty}
	s := mapped(t, t.TempDir(), w.URL, Options{ReserveBytes: 20 << 20, files: func(fs fileSystem) fileSystem { l.fileSystem = fs; return l }})
	holds(t, pull(t, s, "tiny"), want)
}

// TestPlantedLinks: a link in the store's directory leads no write and no read anywhere else.
func TestPlantedLinks(t *testing.T) {
	t.Parallel()
	want := large("links", 1<<20)
	w := newServer(t, want)
	key := partKey("url", w.URL, "")
	for _, at := range []string{partsDir + "/" + key + ".part", partsDir + "/" + key + ".part.json", partsDir + "/" + key + ".part.json.tmp", disksDir + "/" + digestOf(want).Hex(), indexFile + temporary} {
		for _, hard := range []bool{false, true} {
			base := t.TempDir()
			dir, victim := filepath.Join(base, "store"), filepath.Join(base, "victim")
			if err := os.WriteFile(victim, []byte(`{"validator":"x","synced":5}`), 0o600); err != nil {
				t.Fatal(err)
			}
			s := mapped(t, dir, w.URL, Options{})
			link := os.Symlink
			if hard {
				link = os.Link
			}
			if err := link(victim, filepath.Join(dir, at)); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Pull(t.Context(), Request{Name: "tiny"}); err == nil {
				holds(t, got, want)
			}
			if b, err := os.ReadFile(victim); err != nil || string(b) != `{"validator":"x","synced":5}` {
				t.Errorf("%s, hard %v: the victim is now %q, %v", at, hard, b, err)
			}
			if info, err := os.Lstat(victim); err != nil || info.Mode() != 0o600 {
				t.Errorf("%s, hard %v: the victim's mode is now %v, %v", at, hard, info.Mode(), err)
			}
		}
	}
	base := t.TempDir()
	dir := filepath.Join(base, "store")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(base, filepath.Join(dir, disksDir)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), "must be a folder") {
		t.Errorf("a link for a folder: %v", err)
	}
}

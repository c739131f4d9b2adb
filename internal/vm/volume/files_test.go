package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/cloudinit"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// copied is what a volume's directory becomes.
func copied(t *testing.T, dir string) ([]cloudinit.File, error) {
	t.Helper()
	v := &Volumes{}
	err := (&directory{mount: spec.Mount{Path: "/etc/conf", HostPath: dir}, budget: &budget{}}).setup(t.Context(), nil, v)
	return v.Files, err
}

// TestDirectory: the files of an atomic writer's volume, each once, with their modes; and those of a plain directory.
func TestDirectory(t *testing.T) {
	t.Parallel()
	w := newFakeHost(t)
	dir := w.configMap("0f1e", "kubernetes.io~projected", "all", map[string]string{"token": "t", "ca.crt": "c", "namespaces/own": "n", ".hidden": "h"})
	must(t, os.Chmod(filepath.Join(dir, "..data", "token"), 0o400))
	want := []cloudinit.File{
		{Path: "/etc/conf/.hidden", Content: []byte("h"), Mode: 0o640},
		{Path: "/etc/conf/ca.crt", Content: []byte("c"), Mode: 0o640},
		{Path: "/etc/conf/namespaces/own", Content: []byte("n"), Mode: 0o640},
		{Path: "/etc/conf/token", Content: []byte("t"), Mode: 0o400},
	}
	got, err := copied(t, dir)
	must(t, err)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	plain := w.path("srv", "plain")
	w.write("x", 0o755, "srv", "plain", "sub", "file")
	must(t, os.Symlink("sub/file", filepath.Join(plain, "link")))
	got, err = copied(t, plain)
	must(t, err)
	want = []cloudinit.File{{Path: "/etc/conf/link", Content: []byte("x"), Mode: 0o755}, {Path: "/etc/conf/sub/file", Content: []byte("x"), Mode: 0o755}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestNoWayOut: nothing that lies outside of a volume is read, whatever leads there; and what is no file ends nothing.
func TestNoWayOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(w *fakeHost, dir string) error
		want string
	}{
		"absolute link": {func(w *fakeHost, dir string) error {
			return os.Symlink(w.path("srv", "secret"), filepath.Join(dir, "a"))
		}, "a: must lead to a file of the volume"},
		"dots":                {func(_ *fakeHost, dir string) error { return os.Symlink("../../secret", filepath.Join(dir, "a")) }, "a: must lead to a file of the volume"},
		"link to a directory": {func(w *fakeHost, dir string) error { return os.Symlink(w.path("srv"), filepath.Join(dir, "a")) }, "a: must lead to a file of the volume"},
		"link to a link": {func(_ *fakeHost, dir string) error {
			if err := os.Symlink("b", filepath.Join(dir, "a")); err != nil {
				return err
			}
			return os.Symlink("/etc/passwd", filepath.Join(dir, "b"))
		}, "a: must lead to a file of the volume"},
		"data elsewhere": {func(w *fakeHost, dir string) error { return os.Symlink(w.path("srv"), filepath.Join(dir, "..data")) }, "..data: "},
		"pipe":           {func(_ *fakeHost, dir string) error { return syscall.Mkfifo(filepath.Join(dir, "a"), 0o600) }, "a: must be a regular file or a directory, is a pipe"},
		"itself":         {func(_ *fakeHost, dir string) error { return os.Symlink("a", filepath.Join(dir, "a")) }, "a: must lead to a file of the volume"},
		"loop":           {func(_ *fakeHost, dir string) error { return os.Symlink(".", filepath.Join(dir, "a")) }, "a/a: must lead to a file of the volume"},
		"deep":           {func(_ *fakeHost, dir string) error { return os.MkdirAll(dir+strings.Repeat("/d", 40), 0o755) }, "directories must be at most 32 deep"},
	} {
		w := newFakeHost(t)
		w.write("geheim", 0o644, "srv", "secret")
		dir := w.path("srv", "pods", "volumes")
		must(t, os.MkdirAll(dir, 0o755))
		must(t, c.make(w, dir))
		got, err := copied(t, dir)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v: must contain %q", name, err, c.want)
		}
		if len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestBounds: how much is read is bounded over all of a pod's volumes.
func TestBounds(t *testing.T) {
	t.Parallel()
	w := newFakeHost(t)
	large := w.write("", 0o644, "srv", "large", "f")
	must(t, os.Truncate(large, 1<<40)) // a terabyte of nothing
	if _, err := copied(t, filepath.Dir(large)); vm.KindOf(err) != vm.Invalid || !strings.Contains(err.Error(), "hold more than 8388608 bytes") {
		t.Error(err)
	}
	for i := range cloudinit.MaxFiles + 1 {
		w.write("", 0o644, "srv", "many", fmt.Sprint(i))
	}
	if _, err := copied(t, w.path("srv", "many")); vm.KindOf(err) != vm.Invalid || !strings.Contains(err.Error(), "more than 4096 files") {
		t.Error(err)
	}
	half := w.write(strings.Repeat("x", cloudinit.MaxFileBytes/2), 0o644, "srv", "half", "f")
	b, v := &budget{}, &Volumes{}
	for i := range 3 {
		err := (&singleFile{mount: spec.Mount{Path: "/f", HostPath: half}, budget: b}).setup(t.Context(), nil, v)
		if (err != nil) != (i == 2) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestExchanged: a volume whose generation is deleted while it is read is read again, and not for ever.
func TestExchanged(t *testing.T) {
	t.Parallel()
	w := newFakeHost(t)
	dir := w.configMap("0f1e", "kubernetes.io~configmap", "conf", map[string]string{"a": "old"})
	must(t, os.Symlink("gone", filepath.Join(dir, "..2026_01_01", "b"))) // what a reader sees of a file that was deleted
	_, err := copied(t, dir)
	if vm.KindOf(err) != vm.Unavailable {
		t.Error(err)
	}
}

// TestSingleFile: a regular file, with its mode; no link and nothing else.
func TestSingleFile(t *testing.T) {
	t.Parallel()
	w := newFakeHost(t)
	good := w.write("127.0.0.1 x\n", 0o600, "srv", "hosts")
	link, pipe := w.path("srv", "link"), w.path("srv", "pipe")
	must(t, os.Symlink(good, link))
	must(t, syscall.Mkfifo(pipe, 0o600))
	if d := cmp.Diff(map[string]bool{good: true}, SingleFiles([]string{good, link, pipe, w.path("srv"), w.path("none"), "/dev/null"})); d != "" {
		t.Error(d)
	}
	read := func(p string) ([]cloudinit.File, error) {
		v := &Volumes{}
		err := (&singleFile{mount: spec.Mount{Path: "/etc/hosts", HostPath: p}, budget: &budget{}}).setup(t.Context(), nil, v)
		return v.Files, err
	}
	got, err := read(good)
	must(t, err)
	if d := cmp.Diff([]cloudinit.File{{Path: "/etc/hosts", Content: []byte("127.0.0.1 x\n"), Mode: 0o600}}, got); d != "" {
		t.Error(d)
	}
	for _, p := range []string{link, pipe, w.path("srv"), w.path("none")} {
		if got, err := read(p); err == nil {
			t.Errorf("%s: %v", p, got)
		}
	}
}

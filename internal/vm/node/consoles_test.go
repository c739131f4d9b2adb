package node

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/runtime"
)

// TestConsoles: a console is opened once, its log has what was said while nobody was there, and it goes with its machine.
func TestConsoles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	paths := domain.Paths{Serial: filepath.Join(dir, "serial")}
	log := filepath.Join(dir, "0.log")
	say := func(file, text string) *os.File {
		t.Helper()
		f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			_, err = f.WriteAt([]byte(text), size(t, f))
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	c := NewConsoles(nil, logr.Discard())
	for range 2 {
		if err := c.Open(t.Context(), "c1", paths, log); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Reopen(t.Context(), "c1"); err != nil {
		t.Error(err)
	}
	say(paths.Serial+".out", "one\n").Close()
	c.End()
	say(paths.Serial+".out", "two\n").Close() // nobody is there
	c = NewConsoles(nil, logr.Discard())
	defer c.End()
	if err := c.Attach(t.Context(), "c1", nil, new(bytes.Buffer)); vm.KindOf(err) != vm.Unavailable {
		t.Errorf("attached to what is not open: %v", err)
	}
	if err := c.Open(t.Context(), "c1", paths, log); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Close(t.Context(), "c1"); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(log)
	if err != nil || strings.Count(string(text), "stdout F one\n") != 1 || strings.Count(string(text), "stdout F two\n") != 1 {
		t.Errorf("%v: %s", err, text)
	}
}

func size(t *testing.T, f *os.File) int64 {
	t.Helper()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// TestUsage: the blocks of a container's own files, and of no other.
func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "c1", "000-root"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "c1", "000-root", "root.qcow2")
	if err := os.WriteFile(file, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "c1", "link")); err != nil {
		t.Fatal(err)
	}
	got := Volumes{Dir: dir}.Usage(t.Context(), []string{"c1", "none", "../c1", ".."})
	if len(got) != 1 || got["c1"] < 8192 || got["c1"] > 1<<20 {
		t.Error(got)
	}
}

// TestCgroups: file servers go to their machine's group, with what each of their threads has started and what that has, and the machine's process after them.
func TestCgroups(t *testing.T) {
	t.Parallel()
	root := t.TempDir() // as a hierarchy of version 2, with files that only remember
	group := filepath.Join(root, "kubepods", "muster-vm-c1")
	if err := os.MkdirAll(group, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(group, "cgroup.procs"), 0o600); err != nil {
		t.Fatal(err)
	}
	moved, err := os.OpenFile(filepath.Join(group, "cgroup.procs"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer moved.Close()
	proc := t.TempDir()
	for thread, children := range map[string]string{"12/task/12": "14 15 ", "12/task/16": "17 ", "15/task/15": "18 ", "11/task/11": ""} { // order: files
		if err := errors.Join(os.MkdirAll(filepath.Join(proc, thread), 0o700), os.WriteFile(filepath.Join(proc, thread, "children"), []byte(children), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	c := Cgroups{runtime.KernelCgroups{Root: root, Proc: proc}, func(id string) ([]int, error) { return []int{11, 12}, nil }}
	if err := c.Enter(t.Context(), "/kubepods", "c1", 13); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	if n, err := moved.Read(b); err != nil || string(b[:n]) != "11121415181713" {
		t.Errorf("%q, %v", b[:n], err)
	}
}

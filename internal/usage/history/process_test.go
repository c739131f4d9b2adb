package history

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/muster-scheduler/muster/internal/usage"
	"github.com/muster-scheduler/muster/internal/usage/usagetest"
)

// childFolder is the variable that makes the test program the other process of a test.
const childFolder = "MUSTER_TEST_HISTORY_FOLDER"

// made is what tests with another process record: of 600 minutes.
func made(t *testing.T) (usage.Config, usagetest.Past) {
	t.Helper()
	c := usagetest.Parse(t, `{"usageParams":{"windowSize":"1d"}}`)
	return c, usagetest.GPUs(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), time.Minute, 600, 8, func(step int) map[string]int64 {
		return map[string]int64{"a": int64(step % 8), "b": int64(step / 8 % 8)}
	})
}

// recordedOf is how many of the first moments of a past have been recorded.
func recordedOf(t *testing.T, s *Store, p usagetest.Past) (n int) {
	t.Helper()
	err := s.view(func(tx *bbolt.Tx) error {
		if last, known := newest(tx); known {
			n = int(time.UnixMilli(last).Sub(p[0].At)/time.Minute) + 1
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSIGKILL: a process that is killed while it records loses nothing that it had been told is recorded, 20 times one after another.
func TestSIGKILL(t *testing.T) {
	t.Parallel()
	c, p := made(t)
	if folder := os.Getenv(childFolder); folder != "" {
		s := opened(t, c, folder)
		there := recordedOf(t, s, p)
		for i, m := range p {
			if i < there {
				continue
			}
			if err := s.Record(t.Context(), m.At, m.Sample); err != nil {
				t.Fatal(err)
			}
			fmt.Println("recorded", i)
		}
		return
	}
	folder, sure := t.TempDir(), -1
	for round := range 20 {
		child := exec.Command(os.Args[0], "-test.run=^TestSIGKILL$")
		child.Env = append(os.Environ(), childFolder+"="+folder)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			i := -1
			if n, _ := fmt.Sscanf(lines.Text(), "recorded %d", &i); n == 1 && i > sure {
				sure = i
			}
			if sure >= 25*(round+1) {
				_ = child.Process.Kill()
			}
		}
		err = child.Wait()
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("round %d: the process ended with %v", round, err)
		}
		s := opened(t, c, folder)
		got, err := s.Fetch(t.Context(), p[len(p)-1].At)
		if err != nil {
			t.Fatal(err)
		}
		// What was written when the kill came may be there or not.
		there := recordedOf(t, s, p)
		if there <= sure {
			t.Fatalf("round %d: %d samples are there, %d were recorded", round, there, sure+1)
		}
		usagetest.Near(t, fmt.Sprintf("round %d", round), got, p[:there].Shares(&c, p[len(p)-1].At))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDiskFull: a disk without room is an error that says so and names the file, what is recorded can be read, and recording goes on when
// there is room again; so it is where there is no room from the beginning.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	c, p := made(t)
	folder := os.Getenv(childFolder)
	if folder == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestDiskFull$", "-test.v")
		child.Env = append(os.Environ(), childFolder+"="+t.TempDir())
		child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		if os.Getuid() != 0 {
			child.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			child.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			child.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		out, err := child.CombinedOutput()
		switch {
		case err != nil && len(out) == 0:
			t.Skipf("NOT CHECKED: this machine gives no mount namespace: %v", err)
		case strings.Contains(string(out), "NOT CHECKED"):
			t.Skip(string(out))
		case err != nil:
			t.Errorf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
		return
	}
	if err := errors.Join(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""), syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=512k")); err != nil {
		t.Skipf("NOT CHECKED: a small disk cannot be mounted: %v", err)
	}
	fill := func() (filler string) {
		filler = filepath.Join(folder, "filler")
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		for size := 64 << 10; size > 0; {
			if _, err := f.Write(make([]byte, size)); err != nil {
				size /= 2
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return filler
	}
	told := func(err error) {
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), folder) {
			t.Errorf("%v is no word of a full disk at %s", err, folder)
		}
		t.Log(err)
	}
	filler := fill()
	_, err := Open(t.Context(), c, filepath.Join(folder, "usage"))
	told(err)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), c, filepath.Join(folder, "usage"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var kept usagetest.Past
	failed := 0
	for i, m := range p {
		if i == 100 {
			filler = fill()
		}
		if failed == 5 {
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			failed++
		}
		if err := s.Record(t.Context(), m.At, m.Sample); err != nil {
			if failed++; failed > 5 {
				t.Fatalf("with room again: %v", err)
			}
			told(err)
			continue
		}
		kept = append(kept, m)
	}
	if failed < 5 {
		t.Errorf("the disk was full %d times: this proves nothing", failed)
	}
	end := p[len(p)-1].At
	got, err := s.Fetch(t.Context(), end)
	if err != nil {
		t.Fatal(err)
	}
	usagetest.Near(t, "at the end", got, kept.Shares(&c, end))
}

// TestLazy: what is wrong with a folder is told by each use, whoever has it and whatever its file is, and ends when that does.
func TestLazy(t *testing.T) {
	t.Parallel()
	c, p := made(t)
	folder := t.TempDir()
	path := filepath.Join(folder, fileName)
	l := NewLazy(c, folder)
	fails := func(says string) {
		t.Helper()
		for range 2 {
			_, err := l.Fetch(t.Context(), p[0].At)
			for _, err := range []error{err, l.Record(t.Context(), p[0].At, p[0].Sample)} {
				if err == nil || !strings.Contains(err.Error(), folder) || !strings.Contains(err.Error(), says) {
					t.Errorf("%v does not say %q of %s", err, says, folder)
				}
			}
		}
	}
	other := opened(t, c, folder)
	for _, m := range p[:100] {
		if err := other.Record(t.Context(), m.At, m.Sample); err != nil {
			t.Fatal(err)
		}
	}
	fails("another process")
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 2000)), 0o600); err != nil {
		t.Fatal(err)
	}
	fails("invalid database")
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := l.Fetch(t.Context(), p[99].At)
	if err != nil {
		t.Fatal(err)
	}
	usagetest.Near(t, "once it is whole", got, p[:100].Shares(&c, p[99].At))
	// The file is cut off while it is open: reading there is a fault of memory.
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	fails(path + " is damaged")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := l.Record(t.Context(), p[100].At, p[100].Sample); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Record(t.Context(), p[101].At, p[101].Sample); !errors.Is(err, errClosed) {
		t.Errorf("after the end: %v", err)
	}
}

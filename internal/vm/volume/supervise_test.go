package volume

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test's own program is the server's first half, the fake virtiofsd that it becomes, and a process that dies while it starts one.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "share-server":
		_ = Serve(os.Args[2:])
		os.Exit(1)
	case len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "--fd="):
		fakeVirtiofsd()
	}
	os.Exit(m.Run())
}

// fakeVirtiofsd answers each line of a connection: "write" tries to make a file, "ls" lists, "stubborn" has it ignore SIGTERM.
func fakeVirtiofsd() {
	source := strings.TrimPrefix(os.Args[3], "source=")
	l, err := net.FileListener(os.NewFile(fdSocket, "socket"))
	if err != nil {
		os.Exit(3)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			os.Exit(4)
		}
		in := bufio.NewScanner(c)
		for in.Scan() {
			switch in.Text() {
			case "write":
				fmt.Fprintln(c, os.WriteFile(filepath.Join(source, "written"), nil, 0o600))
			case "ls":
				entries, err := os.ReadDir(source)
				fmt.Fprintln(c, entries, err)
			case "stubborn":
				signal.Ignore(syscall.SIGTERM)
				fmt.Fprintln(c, "no")
			}
		}
		c.Close()
	}
}

func ask(t *testing.T, socket, question string) string {
	t.Helper()
	c, err := net.Dial("unix", socket)
	must(t, err)
	defer c.Close()
	_, err = io.WriteString(c, question+"\n")
	must(t, err)
	line, err := bufio.NewReader(c).ReadString('\n')
	must(t, err)
	return strings.TrimSpace(line)
}

func fake(t *testing.T) (Virtiofsd, Daemon) {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	w := newFakeHost(t)
	d := Daemon{Dir: w.path("state"), Socket: w.path("s.sock"), Source: w.path("srv")}
	must(t, os.Mkdir(d.Dir, 0o755))
	v := Virtiofsd{Program: program, Self: []string{program, "share-server"}}
	t.Cleanup(func() { must(t, v.Stop(context.Background(), d.Dir, d.Socket)) })
	return v, d
}

// TestServer: started once, found again by another process, ended, and ended again.
func TestServer(t *testing.T) {
	t.Parallel()
	v, d := fake(t)
	must(t, v.Stop(t.Context(), d.Dir, d.Socket))
	if _, ok := v.Pid(d.Dir); ok {
		t.Error("there is one already")
	}
	must(t, v.Start(t.Context(), d))
	pid, ok := v.Pid(d.Dir)
	if !ok {
		t.Fatal("there is none")
	}
	if got := ask(t, d.Socket, "write"); got != "<nil>" {
		t.Error(got)
	}
	info, err := os.Stat(d.Socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if id, err := unix.Getsid(pid); err != nil || id != pid {
		t.Errorf("its session is %d (%v): it would die with ours", id, err)
	}
	must(t, v.Start(t.Context(), d))
	if again, _ := v.Pid(d.Dir); again != pid {
		t.Errorf("there is a second, %d beside %d", again, pid)
	}
	for range 2 {
		must(t, v.Stop(t.Context(), d.Dir, d.Socket))
		if _, err := identity(pid); err == nil {
			t.Error("it still runs")
		}
		if _, err := os.Lstat(d.Socket); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
	must(t, v.Start(t.Context(), d))
	if next, ok := v.Pid(d.Dir); !ok || next == pid {
		t.Error(next, ok)
	}
}

// TestServerDies: one that died is started anew; its number is another's by now.
func TestServerDies(t *testing.T) {
	t.Parallel()
	v, d := fake(t)
	must(t, v.Start(t.Context(), d))
	pid, _ := v.Pid(d.Dir)
	must(t, unix.Kill(pid, unix.SIGKILL))
	must(t, wait(t.Context(), 10*time.Second, func() (bool, error) { _, ok := v.Pid(d.Dir); return !ok, nil }))
	must(t, wait(t.Context(), 10*time.Second, func() (bool, error) { told := true; return v.ended(d.Dir, 0, &told) }))
	must(t, v.Start(t.Context(), d))
	if got := ask(t, d.Socket, "ls"); got != "[] <nil>" {
		t.Error(got)
	}
	must(t, v.Stop(t.Context(), d.Dir, d.Socket))
	// This process has the number that is written there, and is none of ours.
	must(t, os.WriteFile(filepath.Join(d.Dir, pidFile), []byte(fmt.Sprintf("%d 1 another-boot", os.Getpid())), 0o600))
	must(t, v.Stop(t.Context(), d.Dir, d.Socket))
}

// TestStubborn: a server that does not end when asked is killed.
func TestStubborn(t *testing.T) {
	t.Parallel()
	v, d := fake(t)
	v.Grace = 200 * time.Millisecond
	must(t, v.Start(t.Context(), d))
	if got := ask(t, d.Socket, "stubborn"); got != "no" {
		t.Error(got)
	}
	pid, _ := v.Pid(d.Dir)
	v.Grace = 2 * time.Second
	must(t, v.Stop(t.Context(), d.Dir, d.Socket))
	if _, err := identity(pid); err == nil {
		t.Error("it still runs")
	}
}

// TestCannotStart: a program that is not there is said so, and nothing runs.
func TestCannotStart(t *testing.T) {
	t.Parallel()
	v, d := fake(t)
	v.Program = "/nowhere/virtiofsd"
	if err := v.Start(t.Context(), d); err == nil || !strings.Contains(err.Error(), "exec /nowhere/virtiofsd: no such file") {
		t.Error(err)
	}
	must(t, v.Stop(t.Context(), d.Dir, d.Socket))
	ctx, cancel := contextThatEnded(t)
	defer cancel()
	v.Self = []string{"/bin/sh", "-c", "exec sleep 1000"} // says nothing
	if err := v.Start(ctx, d); err == nil {
		t.Error("it was started")
	}
}

// TestHeld: while somebody is starting a server, it has not ended, whatever its number.
func TestHeld(t *testing.T) {
	t.Parallel()
	v, d := fake(t)
	v.Grace = 100 * time.Millisecond
	lock, err := os.Create(filepath.Join(d.Dir, lockFile))
	must(t, err)
	must(t, flock(lock))
	if err := v.Stop(t.Context(), d.Dir, d.Socket); err == nil || !strings.Contains(err.Error(), "does not end") {
		t.Error(err)
	}
	if err := v.Start(t.Context(), d); err == nil {
		t.Error("a second was started")
	}
	lock.Close()
	must(t, v.Stop(t.Context(), d.Dir, d.Socket))
}

// TestReadOnlyShare: what is shared read-only cannot be written, what is mounted later is seen if it is to be, and no mount is left; as root.
func TestReadOnlyShare(t *testing.T) {
	t.Parallel()
	v, d := fake(t)
	d.ReadOnly, d.Follow = true, true
	inner := filepath.Join(d.Source, "inner")
	must(t, os.Mkdir(inner, 0o755))
	before, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	err = v.Start(t.Context(), d)
	if errors.Is(err, os.ErrPermission) {
		t.Skip("NOT CHECKED: a mount namespace needs root")
	}
	must(t, err)
	if got := ask(t, d.Socket, "write"); !strings.Contains(got, "read-only file system") {
		t.Errorf("a read-only share was written: %s", got)
	}
	must(t, os.WriteFile(filepath.Join(d.Source, "from-the-host"), nil, 0o600))
	if got := ask(t, d.Socket, "ls"); !strings.Contains(got, "from-the-host") {
		t.Error(got)
	}
	after, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if strings.Count(string(after), d.Source) != strings.Count(string(before), d.Source) {
		t.Error("the mount is outside")
	}
	must(t, v.Stop(t.Context(), d.Dir, d.Socket))
}

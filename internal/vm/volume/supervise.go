package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Daemon is the file server of one share.
type Daemon struct {
	// Dir is where its state lies, and Socket where it listens. Both are its own.
	Dir, Socket string
	// Source is the directory that it serves: absolute, without links, commas and backslashes.
	Source string
	// ReadOnly and Follow are the mount's: see spec.Mount.
	ReadOnly, Follow bool
	// Owner, if not nil, is who may connect.
	Owner *Owner
}

// Daemons runs file servers, which outlive this process. Each has at most one process per Dir.
type Daemons interface {
	// Start starts one, or finds it running.
	Start(ctx context.Context, d Daemon) error
	// Pid is the process of the one whose state lies in a directory; false if none runs.
	Pid(dir string) (int, bool)
	// Stop ends it, and removes its socket. What does not run is ended.
	Stop(ctx context.Context, dir, socket string) error
}

// Virtiofsd is the Daemons of machines. A server has a session of its own, so that it survives whoever started it. One that is to write nothing, or to
// see what is mounted later, has a mount namespace of its own too: there its directory is mounted over itself, and no such mount
// is anywhere else, nor left when it ends.
type Virtiofsd struct {
	// Program is the server's, such as /usr/lib/qemu/virtiofsd or /usr/libexec/virtiofsd.
	Program string
	// Self is how this program is called so that it runs Serve with the arguments that follow, such as {"/proc/self/exe", "share-server"}.
	Self []string
	// Grace is how long a server has to end when it is asked to. Default 5 s; it is then killed.
	Grace time.Duration
}

// Files of a server's state.
const (
	lockFile = "lock" // held by whoever lives: Serve, then the server it becomes
	pidFile  = "pid"  // its process, and which one that is
)

// The descriptors that Serve is given.
const (
	fdLock = 3 + iota
	fdSocket
	fdReport
)

const pollEvery = 10 * time.Millisecond

// Start starts a server. When it returns without an error, the program has been started, and the socket takes connections.
func (v Virtiofsd) Start(ctx context.Context, d Daemon) (err error) {
	lock, err := os.OpenFile(filepath.Join(d.Dir, lockFile), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := flock(lock); errors.Is(err, unix.EWOULDBLOCK) {
		return v.started(ctx, d.Dir)
	} else if err != nil {
		return err
	}
	for _, name := range []string{filepath.Join(d.Dir, pidFile), d.Socket} { // of one that died
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	socket, err := listen(d)
	if err != nil {
		return err
	}
	defer socket.Close()
	report, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer report.Close()
	defer out.Close()
	args := append(append([]string{}, v.Self[1:]...), d.Dir, d.Source, strconv.FormatBool(d.ReadOnly), strconv.FormatBool(d.Follow), v.Program)
	cmd := exec.Command(v.Self[0], args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.ExtraFiles = []*os.File{lock, socket, out}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if d.private() {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // it ends with the server, or with this process
	_ = out.Close()
	stop := context.AfterFunc(ctx, func() { _ = report.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	said, err := io.ReadAll(io.LimitReader(report, 4096))
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err == nil && len(said) > 0 {
		err = errors.New(string(said))
	}
	if err != nil {
		_ = cmd.Process.Kill() // it is not yet what Stop would look for
		return fmt.Errorf("start the file server: %w", err)
	}
	return nil
}

func (d Daemon) private() bool { return d.ReadOnly || d.Follow }

// started waits until one that somebody else started is what it is to be.
func (v Virtiofsd) started(ctx context.Context, dir string) error {
	return wait(ctx, v.grace(), func() (bool, error) {
		_, ok := v.Pid(dir)
		return ok, nil
	})
}

// listen makes the socket, which only its owner can connect to.
func listen(d Daemon) (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.Socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	defer l.Close() //nolint:errcheck // the file that is returned is another descriptor
	if err := os.Chmod(d.Socket, 0o600); err != nil {
		return nil, err
	}
	if d.Owner != nil {
		if err := os.Lchown(d.Socket, d.Owner.UID, d.Owner.GID); err != nil {
			return nil, err
		}
	}
	return l.File()
}

// Serve is the process that becomes the server: its mounts, then the program in its place. It returns only where that fails, and has then said why
// to whoever waits; args are Start's.
func Serve(args []string) error {
	report := os.NewFile(fdReport, "report")
	syscall.CloseOnExec(fdReport)
	err := serveShare(args)
	_, _ = report.WriteString(err.Error())
	return err
}

func serveShare(args []string) error {
	if len(args) != 5 {
		return fmt.Errorf("must have 5 arguments, has %d", len(args))
	}
	dir, source, program := args[0], args[1], args[4]
	d := Daemon{Source: source, ReadOnly: args[2] == "true", Follow: args[3] == "true"}
	self, err := identity(os.Getpid())
	if err != nil {
		return err
	}
	part := filepath.Join(dir, pidFile+partSuffix)
	if err := os.WriteFile(part, []byte(self), 0o600); err != nil {
		return err
	}
	if err := os.Rename(part, filepath.Join(dir, pidFile)); err != nil {
		return err
	}
	if d.private() {
		if err := d.mounts(); err != nil {
			return err
		}
	}
	for _, fd := range []int{fdLock, fdSocket} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	return &os.PathError{Op: "exec", Path: program, Err: syscall.Exec(program, []string{filepath.Base(program), fmt.Sprintf("--fd=%d", fdSocket), "-o", "source=" + source}, os.Environ())}
}

// mounts changes what this process alone sees.
func (d Daemon) mounts() error {
	steps := []struct {
		what string
		do   func() error
	}{
		{"receive mounts, send none", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "") }},
		{"bind", func() error { return unix.Mount(d.Source, d.Source, "", unix.MS_BIND|unix.MS_REC, "") }},
	}
	if !d.Follow {
		steps = append(steps, struct {
			what string
			do   func() error
		}{"receive none", func() error { return unix.Mount("", d.Source, "", unix.MS_REC|unix.MS_PRIVATE, "") }})
	}
	if d.ReadOnly {
		steps = append(steps, struct {
			what string
			do   func() error
		}{"read-only", func() error {
			return unix.MountSetattr(unix.AT_FDCWD, d.Source, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		}})
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("mount %s: %s: %w", d.Source, s.what, err)
		}
	}
	return nil
}

// Pid says which process is the server. A number that another process has by now is none.
func (Virtiofsd) Pid(dir string) (int, bool) {
	text, err := os.ReadFile(filepath.Join(dir, pidFile))
	if err != nil {
		return 0, false
	}
	pid, err := strconv.Atoi(strings.SplitN(string(text), " ", 2)[0])
	if err != nil || pid <= 1 {
		return 0, false
	}
	now, err := identity(pid)
	return pid, err == nil && now == string(text)
}

// identity is a process's number, when it began and in which run of the machine. A process that has ended has none.
func identity(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	// What follows the name, which can hold anything: the state is the third field, the start the 22nd (proc(5)).
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return fmt.Sprintf("%d %s %s", pid, fields[19], strings.TrimSpace(string(boot))), nil
}

// Stop ends the server: it is asked to, and killed when its grace is over.
func (v Virtiofsd) Stop(ctx context.Context, dir, socket string) error {
	if _, err := os.Lstat(filepath.Join(dir, lockFile)); err == nil {
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			told := false
			err := wait(ctx, v.grace(), func() (bool, error) { return v.ended(dir, signal, &told) })
			if err == nil {
				break
			}
			if signal == syscall.SIGKILL || ctx.Err() != nil {
				return fmt.Errorf("the file server does not end: %w", err)
			}
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// ended says whether neither a process nor the lock is left, and sends a signal, once, where one is. One that is only just being started
// has the lock and no number yet: it gets its signal the next time.
func (v Virtiofsd) ended(dir string, signal syscall.Signal, told *bool) (bool, error) {
	if pid, ok := v.Pid(dir); ok {
		// The handle is of one process, whatever becomes of the number.
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			if again, ok := v.Pid(dir); ok && again == pid && !*told {
				*told = unix.PidfdSendSignal(fd, signal, nil, 0) == nil
			}
			_ = unix.Close(fd)
		}
		return false, nil
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	defer lock.Close()
	if err := flock(lock); errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return true, nil
}

func (v Virtiofsd) grace() time.Duration {
	if v.Grace <= 0 {
		return 5 * time.Second
	}
	return v.Grace
}

// wait looks again and again until something is so.
func wait(ctx context.Context, most time.Duration, so func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if ok, err := so(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func flock(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

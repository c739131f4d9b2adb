package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// nodePath is where programs of a node are looked for: a container's PATH is its image's.
const nodePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func hostCommand() *cobra.Command {
	var install string
	of := 1
	c := &cobra.Command{
		Use: "host -- PROGRAM [ARGUMENTS]", Short: "From a privileged pod, become a program of the node itself", Args: cobra.MinimumNArgs(1),
		Long: "Enters the namespaces of the node's process 1 (mounts, network, control groups, IPC and the host's name), which takes a privileged pod that sees the node's processes, and\n" +
			"becomes the program. \"muster-vm\" for a program is this one. Environment and control group stay the pod's, but for PATH. Whoever runs something in the container from then on runs\n" +
			"it on the node.",
		RunE: func(_ *cobra.Command, args []string) error {
			if install != "" && (!filepath.IsAbs(install) || filepath.Clean(install) != install) {
				return fmt.Errorf("--install %q: must be an absolute path, without '..'", install)
			}
			return becomeHost(of, install, args, os.Environ())
		},
	}
	c.Flags().StringVar(&install, "install", "", "path on the node where this program is put first, so that libvirt can run it; \"muster-vm\" is then that one")
	c.Flags().IntVar(&of, "of", of, "process whose namespaces are entered")
	return c
}

// becomeHost returns only with an error. The thread that it is called on is spoilt then.
func becomeHost(pid int, install string, argv, env []string) error {
	runtime.LockOSThread() // namespaces are a thread's: the one that enters them has to be the one that becomes the program
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	if err := enter(pid); err != nil {
		return fmt.Errorf("enter the namespaces of process %d, which takes a privileged pod with hostPID: %w", pid, err)
	}
	program := fmt.Sprintf("/proc/self/fd/%d", self.Fd())
	if install != "" {
		if err := installProgram(self, install); err != nil {
			return fmt.Errorf("put this program on the node: %w", err)
		}
		program = install
	}
	if err := os.Setenv("PATH", nodePath); err != nil {
		return err
	}
	if argv[0] != "muster-vm" {
		if program, err = exec.LookPath(argv[0]); err != nil {
			return fmt.Errorf("on the node: %w", err)
		}
	}
	return fmt.Errorf("become %s: %w", program, syscall.Exec(program, argv, hostEnv(env))) //nolint:gosec // what it is for
}

// enter moves this thread into a process's namespaces, but for those that it is in already.
func enter(pid int) error {
	type namespace struct {
		file *os.File
		kind int
	}
	var all []namespace
	defer func() {
		for _, n := range all {
			_ = n.file.Close()
		}
	}()
	// All are opened before the first is entered: with the mounts, /proc changes. Mounts are the last for that reason, too.
	for _, n := range []struct {
		name string
		kind int
	}{{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"net", unix.CLONE_NEWNET}, {"cgroup", unix.CLONE_NEWCGROUP}, {"mnt", unix.CLONE_NEWNS}} {
		own, err := os.Stat("/proc/thread-self/ns/" + n.name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without them
		}
		if err != nil {
			return err
		}
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, n.name))
		if err != nil {
			return err
		}
		theirs, err := f.Stat()
		if err != nil || os.SameFile(own, theirs) {
			if err = errors.Join(err, f.Close()); err != nil {
				return err
			}
			continue
		}
		all = append(all, namespace{f, n.kind})
	}
	if len(all) == 0 {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread that shares its root folder with others cannot change its mounts
		return err
	}
	for _, n := range all {
		if err := unix.Setns(int(n.file.Fd()), n.kind); err != nil {
			return err
		}
	}
	return nil
}

// installProgram writes a copy beside its place, and then puts it there: who runs the older one goes on.
func installProgram(self io.Reader, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o711); err != nil { //nolint:gosec // QEMU's user gets through
		return err
	}
	fresh := to + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755) //nolint:gosec // QEMU's user runs it
	if err != nil {
		return err
	}
	_, err = io.Copy(f, self)
	if err := errors.Join(err, f.Chmod(0o755), f.Sync(), f.Close()); err != nil { //nolint:gosec // whatever the umask
		return err
	}
	return os.Rename(fresh, to)
}

// hostEnv is an environment without what is true of the image alone.
func hostEnv(env []string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		if name == "SSL_CERT_FILE" {
			_, err := os.Stat(value)
			return err != nil
		}
		return name == "PATH"
	})
	return append(out, "PATH="+nodePath)
}

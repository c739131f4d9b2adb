package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/muster-scheduler/muster/internal/lab"
)

// APIServerCommand is the command of the lab's binary that is nothing but an API server.
const APIServerCommand = "apiserver"

// A child that ends sooner than this, so often in a row, will not serve: the lab gives up.
const (
	stillborn   = 3 * time.Second
	mostStarts  = 5
	restartWait = 50 * time.Millisecond
)

// superviseAPIServer keeps an API server running as a child process of its own on one address until ctx ends, then has it
// drain. Whenever the child ends, as it does when a test kills it, another takes its place; etcd and everybody else go on.
func superviseAPIServer(ctx context.Context, dir, address string, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	for early := 0; ctx.Err() == nil; {
		began := time.Now()
		cmd := exec.Command(self, append([]string{APIServerCommand, "--dir=" + dir, "--address=" + address, "--"}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		begun, ended := make(chan error, 1), make(chan struct{})
		var exit error // how the child ended, valid then
		go func() {
			runtime.LockOSThread() // the signal of a parent's death comes when the thread that started the child ends
			if err := cmd.Start(); err != nil {
				begun <- err
				return
			}
			begun <- nil
			exit = cmd.Wait()
			close(ended)
		}()
		if err := <-begun; err != nil {
			return fmt.Errorf("kube-apiserver: %w", err)
		}
		if err := os.WriteFile(lab.APIServerPIDPath(dir), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
			return errors.Join(fmt.Errorf("kube-apiserver: %w", err), cmd.Process.Kill())
		}
		select {
		case <-ended:
			if early++; time.Since(began) > stillborn {
				early = 0
			}
			if early >= mostStarts {
				return fmt.Errorf("kube-apiserver ended %d times as soon as it had started (see logs/apiserver.log): %w", early, exit)
			}
			select {
			case <-time.After(restartWait):
			case <-ctx.Done():
			}
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if it has just ended
			select {
			case <-ended:
			case <-time.After(stopGrace / 2):
				_ = cmd.Process.Kill() // likewise
				<-ended
			}
		}
	}
	return nil
}

// ServeAPI is the child: an API server with these flags on that address, until ctx ends.
func ServeAPI(ctx context.Context, dir, address string, args []string) error {
	if _, err := stampVersion(); err != nil {
		return err
	}
	closeLog, err := logTo(filepath.Join(dir, "logs", "apiserver.log"))
	if err != nil {
		return err
	}
	defer closeLog()
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for the API server: %w", err)
	}
	return runAPIServer(ctx, l, args)
}

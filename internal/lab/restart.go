package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// APIServerPIDPath is the file in a split lab's folder that holds the process of its API server.
func APIServerPIDPath(dir string) string { return filepath.Join(dir, "apiserver.pid") }

// KillAPIServer kills the API server of a split lab by SIGKILL and returns when its successor is ready, with how long there
// was none. Connections are refused in between; etcd, the controller manager and the nodes go on, and so does what talks to
// the API server if it can.
func (l *Lab) KillAPIServer(ctx context.Context) (time.Duration, error) {
	pid, text, err := l.apiServer()
	if err != nil {
		return 0, fmt.Errorf("kill the API server: %w", err)
	}
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return 0, fmt.Errorf("kill the API server: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		if now, err := os.ReadFile(APIServerPIDPath(l.dir)); err != nil || string(now) == text {
			return false, nil
		}
		_, err := l.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, nil
	})
	if err != nil {
		return 0, fmt.Errorf("wait for the API server: %w", err)
	}
	return time.Since(began), nil
}

// PauseAPIServer stops the API server of a split lab by SIGSTOP: its connections stay open, and nobody answers. It goes on, by SIGCONT,
// when resume is called.
func (l *Lab) PauseAPIServer() (resume func() error, err error) {
	pid, _, err := l.apiServer()
	if err != nil {
		return nil, fmt.Errorf("pause the API server: %w", err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("pause the API server: %w", err)
	}
	return func() error { return syscall.Kill(pid, syscall.SIGCONT) }, nil
}

// apiServer is the process of a split lab's API server, and how its file names it.
func (l *Lab) apiServer() (pid int, text string, err error) {
	b, err := os.ReadFile(APIServerPIDPath(l.dir))
	if errors.Is(err, os.ErrNotExist) {
		return 0, "", errors.New("it is no process of its own; start the lab with Split")
	}
	if err != nil {
		return 0, "", err
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil || pid <= 1 {
		return 0, "", fmt.Errorf("%q is no process", b)
	}
	return pid, string(b), nil
}

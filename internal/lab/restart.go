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
	text, err := os.ReadFile(APIServerPIDPath(l.dir))
	if errors.Is(err, os.ErrNotExist) {
		return 0, errors.New("kill the API server: it is no process of its own; start the lab with Split")
	}
	if err != nil {
		return 0, fmt.Errorf("kill the API server: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("kill the API server: %q is no process", text)
	}
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return 0, fmt.Errorf("kill the API server: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		if now, err := os.ReadFile(APIServerPIDPath(l.dir)); err != nil || string(now) == string(text) {
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

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// BinaryEnv names the environment variable that points Start at a built muster-lab.
const BinaryEnv = "MUSTER_LAB_BINARY"

// binary finds the muster-lab to run: the one given, the one in the environment, or one built from the module
// around the working directory into its bin folder. The last costs a minute or more when Kubernetes itself has to
// be compiled, and about a second when nothing changed.
func binary(ctx context.Context, given string, logf func(string, ...any)) (string, error) {
	if given != "" {
		return given, nil
	}
	if path := os.Getenv(BinaryEnv); path != "" {
		return path, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", fmt.Errorf("build muster-lab: %w", err)
	}
	// Tests of several packages run side by side; one of them builds, the others find it done.
	lock, err := os.OpenFile(filepath.Join(bin, ".muster-lab.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("build muster-lab: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("build muster-lab: %w", err)
	}
	path := filepath.Join(bin, "muster-lab")
	logf("building %s", path)
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/muster-lab")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build muster-lab: %w\n%s", err, out)
	}
	return path, nil
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "muster-lab", "main.go")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no muster-lab to run: not inside Muster's source tree, and " + BinaryEnv + " is not set")
		}
		dir = up
	}
}

package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// KernelCgroups are the node's control groups, of version 2, or of version 1 with a hierarchy for each controller. A machine's group is
// "muster-vm-ID" below its pod's.
type KernelCgroups struct {
	// Root is where they are mounted; "" for /sys/fs/cgroup.
	Root string
	// Systemd says that pods' groups are named as slices.
	Systemd bool
	// Proc is where procfs is; "" for /proc.
	Proc string
	// Log is told what this node could not give.
	Log logr.Logger

	remove func(string) error // of a folder; nil for what the kernel's file system wants
}

// controllers of version 1 whose hierarchies a machine moves in: those by which a kubelet accounts and bounds.
func controllers() []string {
	return []string{"cpu,cpuacct", "cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "blkio"}
}

var sliceName = regexp.MustCompile(`^[A-Za-z0-9_:.\\@]+(-[A-Za-z0-9_:.\\@]+)*\.slice$`)

// path is a pod's group below a hierarchy. A slice "a-b.slice" lies in "a.slice".
func (k KernelCgroups) path(parent string) (string, error) {
	bad := vm.Errorf(vm.Invalid, "cgroup_parent %q: must be an absolute path without '..', or a slice's name where the driver is systemd", spec.Short(parent))
	if k.Systemd && strings.HasSuffix(parent, ".slice") {
		name := filepath.Base(parent)
		if !sliceName.MatchString(name) {
			return "", bad
		}
		var out, prefix string
		for part := range strings.SplitSeq(strings.TrimSuffix(name, ".slice"), "-") {
			prefix += part
			out = filepath.Join(out, prefix+".slice")
			prefix += "-"
		}
		return out, nil
	}
	clean := filepath.Clean("/" + parent)
	if parent == "" || strings.Contains(parent, "..") || strings.ContainsRune(parent, 0) || clean == "/" {
		return "", bad
	}
	return clean[1:], nil
}

// groups are the folders of a machine's group: one, or one for each controller that the node has. Only those are given whose pod has one.
func (k KernelCgroups) groups(parent, id string) (dirs []string, unified bool, err error) {
	root := k.Root
	if root == "" {
		root = "/sys/fs/cgroup"
	}
	below, err := k.path(parent)
	if err != nil {
		return nil, false, err
	}
	name := filepath.Join(below, "muster-vm-"+id)
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{filepath.Join(root, name)}, true, nil
	}
	seen := map[string]bool{}
	for _, c := range controllers() {
		real, err := filepath.EvalSymlinks(filepath.Join(root, c)) // "cpu" may be a link to "cpu,cpuacct"
		if err != nil || seen[real] {
			continue
		}
		seen[real] = true
		if _, err := os.Stat(filepath.Join(real, below)); err == nil {
			dirs = append(dirs, filepath.Join(real, name))
		}
	}
	return dirs, false, nil
}

// There looks for the pod's group. One without a name is never missing: see Enter.
func (k KernelCgroups) There(_ context.Context, parent string) error {
	if parent == "" {
		return nil
	}
	dirs, _, err := k.groups(parent, "")
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Dir(dir)); err == nil {
			return nil
		}
	}
	return noGroup(parent)
}

func noGroup(parent string) error {
	return vm.Errorf(vm.NotFound, "cgroup_parent %q: the pod has no group", spec.Short(parent))
}

// Enter makes the group and moves the process there. A pod without a group of its own is left where the hypervisor put it.
func (k KernelCgroups) Enter(_ context.Context, parent, id string, pid int) error {
	if parent == "" {
		return nil
	}
	dirs, unified, err := k.groups(parent, id)
	if err != nil {
		return err
	}
	if len(dirs) == 0 {
		return noGroup(parent)
	}
	if unified {
		delegate(filepath.Dir(dirs[0]))
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("cgroup: %w", err)
		}
		if !unified && strings.Contains(dir, "/cpuset/") { // version 1 lets nobody in before these are set
			for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
				if err := inherit(dir, f); err != nil {
					return err
				}
			}
		}
		if err := write(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// delegate has the groups below one of version 2 accounted and limited by every controller that it has itself: whoever makes a group below does that, which is nobody
// else where a pod has only a machine. A controller that refuses leaves its files out, and Limit says what lacks.
func delegate(dir string) {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for c := range strings.FieldsSeq(string(have)) {
		_ = write(dir, "cgroup.subtree_control", "+"+c)
	}
}

func inherit(dir, file string) error {
	if have, err := os.ReadFile(filepath.Join(dir, file)); err == nil && len(strings.TrimSpace(string(have))) > 0 {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return write(dir, file, strings.TrimSpace(string(text)))
}

func write(dir, file, text string) error {
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil { //nolint:gosec // the mode counts for nothing in the kernel's file system
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// Leave removes the group. Its last process may need a moment to be gone.
func (k KernelCgroups) Leave(ctx context.Context, parent, id string) error {
	if parent == "" {
		return nil
	}
	dirs, _, err := k.groups(parent, id)
	if err != nil {
		return err
	}
	remove := k.remove
	if remove == nil {
		remove = syscall.Rmdir
	}
	for _, dir := range dirs {
		for {
			err := remove(dir)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if !errors.Is(err, syscall.EBUSY) {
				return fmt.Errorf("cgroup: %s: %w", dir, err)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("cgroup: %s: %w", dir, err)
			}
		}
	}
	return nil
}

var _ Cgroups = KernelCgroups{}

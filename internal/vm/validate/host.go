package validate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Cgroups checks the control groups below a root, "/sys/fs/cgroup": version 2, or version 1 with the hierarchies that a kubelet bounds pods by, and
// that a group can be made and removed there.
func Cgroups(root string) Check {
	return Check{Name: "cgroup", Do: "mount control groups at " + root + ", and let muster-vm write there", Run: func(context.Context) (string, error) {
		text, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
		if err == nil {
			have := strings.Fields(string(text))
			if lacking := lacks(have, "cpu", "cpuset", "memory", "pids"); lacking != "" {
				return "", Advise(fmt.Errorf("version 2 lacks %s", lacking), "enable these controllers in %s", filepath.Join(root, "cgroup.subtree_control"))
			}
			return "version 2: " + strings.Join(have, " "), tryGroup(root)
		}
		var have []string
		var errs []error
		for _, c := range []string{"cpu", "cpuset", "memory", "pids"} {
			dir := filepath.Join(root, c)
			if _, err := os.Stat(filepath.Join(dir, "tasks")); err != nil {
				continue
			}
			have = append(have, c)
			errs = append(errs, tryGroup(dir))
		}
		if lacking := lacks(have, "cpu", "cpuset", "memory"); lacking != "" {
			return "", fmt.Errorf("%s has neither version 2 (cgroup.controllers) nor the hierarchies of version 1: it lacks %s", root, lacking)
		}
		return "version 1: " + strings.Join(have, " "), errors.Join(errs...)
	}}
}

func lacks(have []string, want ...string) string {
	var out []string
	for _, w := range want {
		if !slices.Contains(have, w) {
			out = append(out, w)
		}
	}
	return strings.Join(out, ", ")
}

// tryGroup makes a group and removes it.
func tryGroup(dir string) error {
	group := filepath.Join(dir, fmt.Sprintf("muster-vm-validate-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil { //nolint:gosec // as other groups
		return err
	}
	return os.Remove(group)
}

// Programs checks that programs are there and run: each path or name, with what it is for. Those of which one is enough are in one entry, with commas between.
func Programs(needed, optional map[string]string) Check {
	return Check{Name: "programs", Run: func(context.Context) (string, error) {
		var saw []string
		var errs []error
		for _, p := range slices.Sorted(maps.Keys(needed)) {
			at, err := find(p)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, for %s: %w", p, needed[p], err))
			}
			saw = append(saw, at)
		}
		if len(errs) > 0 {
			return "", Advise(errors.Join(errs...), "install them, or name others by muster-vm's flags; on Debian: apt-get install qemu-system-x86 qemu-utils e2fsprogs libvirt-daemon-system")
		}
		for _, p := range slices.Sorted(maps.Keys(optional)) {
			if at, err := find(p); err == nil {
				saw = append(saw, at)
			} else {
				saw = append(saw, fmt.Sprintf("(none of %s: without it, %s)", p, optional[p]))
			}
		}
		return strings.Join(saw, ", "), nil
	}}
}

func find(names string) (string, error) {
	err := error(nil)
	for name := range strings.SplitSeq(names, ",") {
		for _, try := range []string{name, "/usr/sbin/" + name, "/sbin/" + name} {
			at, bad := exec.LookPath(try)
			if bad == nil {
				return at, nil
			}
			if err == nil {
				err = bad
			}
			if filepath.IsAbs(name) {
				break
			}
		}
	}
	return "", err
}

// Kernel checks what the network of pods needs of the kernel. root is "/".
func Kernel(root string) Check {
	modules := []string{"tun", "veth", "bridge", "sch_ingress", "cls_bpf"}
	return Check{Name: "kernel", Do: "load the modules (modprobe), or use a kernel that has them", Run: func(context.Context) (string, error) {
		if st, err := os.Stat(filepath.Join(root, "dev/net/tun")); err != nil || st.Mode()&fs.ModeCharDevice == 0 {
			return "", Advise(fmt.Errorf("/dev/net/tun is no device: %w", err), "load the module tun, and let muster-vm see /dev/net/tun")
		}
		release, _ := os.ReadFile(filepath.Join(root, "proc/sys/kernel/osrelease"))
		dir := filepath.Join(root, "lib/modules", strings.TrimSpace(string(release)))
		var known []byte
		for _, name := range []string{"modules.builtin", "modules.dep"} {
			text, _ := os.ReadFile(filepath.Join(dir, name))
			known = append(append(known, '\n'), text...)
		}
		var lacking, open []string
		for _, m := range modules {
			if _, err := os.Stat(filepath.Join(root, "sys/module", m)); err == nil {
				continue
			}
			if bytes.Contains(known, []byte("/"+m+".ko")) {
				continue
			}
			if len(bytes.TrimSpace(known)) > 0 {
				lacking = append(lacking, m)
			} else {
				open = append(open, m)
			}
		}
		if len(lacking) > 0 {
			return "", fmt.Errorf("it has no %s", strings.Join(lacking, ", "))
		}
		if len(open) > 0 {
			return "/dev/net/tun; " + dir + " does not say which modules there are: " + strings.Join(open, ", ") + " may be built in", nil
		}
		return "/dev/net/tun, " + strings.Join(modules, ", "), nil
	}}
}

// Reach checks that a user gets to files, through every folder above them, and may run those that are programs and read the others: QEMU's, to disks and itself. Links
// are followed; of the user's groups only the given one is looked at.
func Reach(who string, uid, gid int, paths ...string) Check {
	return Check{Name: "reach", Run: func(context.Context) (string, error) {
		var errs []error
		for _, p := range paths {
			errs = append(errs, reaches(who, uid, gid, p))
		}
		return fmt.Sprintf("%s gets to %s", who, strings.Join(paths, ", ")), errors.Join(errs...)
	}}
}

func reaches(who string, uid, gid int, path string) error {
	real, err := filepath.EvalSymlinks(path)
	for err != nil && path != "/" { // what is not there yet will be made with the right mode
		path = filepath.Dir(path)
		real, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return err
	}
	last := real
	for _, p := range []string{path, real} { // a link has folders of its own
		for dir := filepath.Dir(p); ; dir = filepath.Dir(dir) {
			if err := may(who, uid, gid, dir, 1); err != nil {
				return err
			}
			if dir == "/" {
				break
			}
		}
	}
	if st, err := os.Stat(last); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o111 == 0 {
		return may(who, uid, gid, last, 4)
	}
	return may(who, uid, gid, last, 1)
}

// may judges one file by its mode: bit is 4 to read, 1 to run or to pass through.
func may(who string, uid, gid int, path string, bit fs.FileMode) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	own, ok := st.Sys().(*syscall.Stat_t)
	if !ok || uid == 0 {
		return nil
	}
	mode, shift := st.Mode().Perm(), 0
	switch {
	case int(own.Uid) == uid:
		shift = 6
	case int(own.Gid) == gid:
		shift = 3
	}
	if mode>>shift&bit == 0 {
		verb := map[fs.FileMode]string{1: "run or pass through", 4: "read"}[bit]
		return Advise(fmt.Errorf("user %s may not %s %s, whose mode is %v", who, verb, path, st.Mode()), "chmod o+%s %s, or keep muster-vm's folder elsewhere (--dir)", map[fs.FileMode]string{1: "x", 4: "r"}[bit], path)
	}
	return nil
}

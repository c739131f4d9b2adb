package validate

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRun: every check has its finding, in order, whatever one of them does.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		var out bytes.Buffer
		ok := Run(t.Context(), []Check{
			{Name: "good", Run: func(context.Context) (string, error) { return "version 2", nil }},
			{Name: "bad", Do: "mend it", Run: func(context.Context) (string, error) { return "half", errors.New("it is\nbroken") }},
			{Name: "advised", Do: "mend it", Run: func(context.Context) (string, error) {
				return "", Advise(errors.New("no mount"), "mount %s", "/x")
			}},
			{Name: "panics", Do: "tell us", Run: func(context.Context) (string, error) { panic("oh") }},
			{Name: "hangs", Do: "wait", Time: time.Second, Run: func(context.Context) (string, error) { <-release; return "", nil }},
			{Name: "last", Run: func(context.Context) (string, error) { return "all", nil }},
		}, func(f Finding) {
			if i := strings.Index(f.Wrong, "\ngoroutine"); i > 0 {
				f.Wrong = f.Wrong[:i]
			}
			if err := f.Write(&out); err != nil {
				t.Error(err)
			}
		})
		want := `ok    good: version 2
FAIL  bad: it is
      broken
      do: mend it
FAIL  advised: no mount
      do: mount /x
FAIL  panics: a defect: oh
      do: tell us
FAIL  hangs: no end within 1s
      do: wait
ok    last: all
`
		if ok || out.String() != want {
			t.Errorf("%v: %s", ok, out.String())
		}
		if !Run(t.Context(), nil, nil) {
			t.Error("nothing is wrong")
		}
	})
}

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil { //nolint:gosec // a test's
			t.Fatal(err)
		}
	}
	return dir
}

// check runs one and compares what it says.
func check(t *testing.T, c Check, ok bool, want string) {
	t.Helper()
	f := c.run(t.Context())
	if f.OK != ok || !strings.Contains(f.Saw+f.Wrong+f.Do, want) || !ok && f.Do == "" {
		t.Errorf("%+v, want %v, %q", f, ok, want)
	}
}

func TestCgroups(t *testing.T) {
	t.Parallel()
	two := tree(t, map[string]string{"cgroup.controllers": "cpuset cpu io memory pids\n"})
	check(t, Cgroups(two), true, "version 2: cpuset cpu io memory pids")
	if left, err := os.ReadDir(two); err != nil || len(left) != 1 {
		t.Errorf("it left %v, %v", left, err)
	}
	check(t, Cgroups(tree(t, map[string]string{"cgroup.controllers": "cpu io\n"})), false, "version 2 lacks cpuset, memory, pidsenable")
	check(t, Cgroups(tree(t, map[string]string{"cpu/tasks": "", "cpuset/tasks": "", "memory/tasks": ""})), true, "version 1: cpu cpuset memory")
	check(t, Cgroups(tree(t, map[string]string{"cpu/tasks": ""})), false, "it lacks cpuset, memory")
	check(t, Cgroups("/no/such/folder"), false, "mount control groups")
}

func TestPrograms(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"qemu": "", "plain": ""})
	if err := os.Chmod(filepath.Join(dir, "qemu"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	check(t, Programs(map[string]string{dir + "/no," + dir + "/qemu": "machines"}, map[string]string{"no-such-program-9": "mounts are refused"}), true, dir+"/qemu, (none of no-such-program-9: without it, mounts are refused)")
	check(t, Programs(map[string]string{dir + "/plain": "machines", "no-such-program-9": "disks"}, nil), false, "/plain, for machines: ")
	check(t, Programs(map[string]string{"no-such-program-9": "disks"}, nil), false, "install them")
}

func TestKernel(t *testing.T) {
	t.Parallel()
	check(t, Kernel(tree(t, map[string]string{"dev/net/tun": ""})), false, "/dev/net/tun is no device")
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skipf("NOT CHECKED: the rest: %v", err)
	}
	with := func(files map[string]string) string {
		dir := tree(t, files)
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "dev/net"), 0o755), os.Symlink("/dev/net/tun", filepath.Join(dir, "dev/net/tun"))); err != nil { //nolint:gosec // a test's
			t.Fatal(err)
		}
		return dir
	}
	check(t, Kernel(with(map[string]string{
		"proc/sys/kernel/osrelease": "6.1\n", "lib/modules/6.1/modules.builtin": "kernel/net/bridge/bridge.ko\nkernel/drivers/net/tun.ko\n",
		"lib/modules/6.1/modules.dep": "kernel/net/sched/sch_ingress.ko.xz:\nkernel/net/sched/cls_bpf.ko: x\n", "sys/module/veth/refcnt": "",
	})), true, "tun, veth, bridge, sch_ingress, cls_bpf")
	check(t, Kernel(with(map[string]string{"proc/sys/kernel/osrelease": "6.1\n", "lib/modules/6.1/modules.dep": "kernel/drivers/net/tun.ko:\n"})), false, "it has no veth, bridge, sch_ingress, cls_bpf")
	check(t, Kernel(with(map[string]string{"proc/sys/kernel/osrelease": "6.1\n", "sys/module/veth/x": ""})), true, "does not say which modules there are: tun, bridge, sch_ingress, cls_bpf may be built in")
}

func TestReach(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "reach") // whose folders everybody passes through
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	inner := filepath.Join(dir, "a", "b")
	if err := errors.Join(os.MkdirAll(inner, 0o755), os.Chmod(dir, 0o711), os.WriteFile(filepath.Join(inner, "disk"), nil, 0o600)); err != nil { //nolint:gosec // a test's
		t.Fatal(err)
	}
	other := 1 + os.Getuid()
	check(t, Reach("qemu", other, other, inner, filepath.Join(inner, "to", "come")), true, "qemu gets to "+inner)
	check(t, Reach("qemu", other, other, filepath.Join(inner, "disk")), false, "user qemu may not read "+filepath.Join(inner, "disk"))
	check(t, Reach("me", os.Getuid(), os.Getgid(), filepath.Join(inner, "disk")), true, "me gets to")
	if err := os.Chmod(filepath.Join(dir, "a"), 0o700); err != nil { //nolint:gosec // a test's
		t.Fatal(err)
	}
	check(t, Reach("qemu", other, other, inner), false, "may not run or pass through "+filepath.Join(dir, "a"))
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(inner, "disk"), link); err != nil {
		t.Fatal(err)
	}
	check(t, Reach("qemu", other, other, link), false, "chmod o+x "+filepath.Join(dir, "a"))
}

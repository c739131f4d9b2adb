package runtime

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/cloudinit"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// files gives all regular files below a folder with what they hold.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			text, _ := os.ReadFile(p)
			rel, _ := filepath.Rel(dir, p)
			out[rel] = string(text)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// made is a tree of folders and files.
func made(t *testing.T, tree map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range tree {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestCgroups: a machine's group is made in its pod's, of each version and driver, filled, bounded and removed.
func TestCgroups(t *testing.T) {
	t.Parallel()
	none, some := int64(0), int64(1<<20)
	limits := spec.Resources{CPUShares: 1024, CPUQuota: 150_000, CPUPeriod: 100_000, CPUs: []int{0, 1, 3}, OOMScore: 500}
	first, second := limits, limits
	first.Swap, second.Swap, second.Unified = &none, &some, map[string]string{"memory.min": "4096", "memory.oom.group": "1"}
	for name, c := range map[string]struct {
		tree    map[string]string
		systemd bool
		parent  string
		dirs    []string
		limits  spec.Resources
		// delegated is the last controller that the pod's group was told to have its machine's group accounted by.
		delegated string
		want      map[string]string // below the first folder, after Limit on the files that there are
	}{
		"version 2": {
			tree:   map[string]string{"cgroup.controllers": "cpu", "kubepods/pod1/cgroup.procs": "", "kubepods/pod1/cgroup.controllers": "memory\n", "kubepods/pod1/cgroup.subtree_control": ""},
			parent: "/kubepods/pod1", dirs: []string{"kubepods/pod1/muster-vm-c1"}, limits: second, delegated: "+memory",
			want: map[string]string{
				"cgroup.procs": "7", "cpu.weight": "39", "cpu.max": "150000 100000", "cpuset.cpus": "0-1,3", "memory.swap.max": "1048576", "memory.min": "4096", "memory.oom.group": "1",
			},
		},
		"version 2, systemd": {
			tree:    map[string]string{"cgroup.controllers": "cpu", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cgroup.procs": ""},
			systemd: true, parent: "kubepods-burstable-pod1.slice",
			dirs: []string{"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/muster-vm-c1"}, limits: limits, want: map[string]string{"cgroup.procs": "7", "cpu.weight": "39"},
		},
		"version 1": {
			tree: map[string]string{
				"cpuset/kubepods/pod1/cpuset.cpus": "0-3\n", "cpuset/kubepods/pod1/cpuset.mems": "0\n",
				"cpu,cpuacct/kubepods/pod1/cgroup.procs": "", "memory/kubepods/pod1/cgroup.procs": "", "pids/other/cgroup.procs": "",
			}, parent: "/kubepods/pod1",
			dirs:   []string{"cpu,cpuacct/kubepods/pod1/muster-vm-c1", "cpuset/kubepods/pod1/muster-vm-c1", "memory/kubepods/pod1/muster-vm-c1"},
			limits: first,
			want:   map[string]string{"cgroup.procs": "7", "cpu.shares": "1024", "cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000", "memory.swappiness": "0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := KernelCgroups{Root: made(t, c.tree), Systemd: c.systemd, Proc: made(t, map[string]string{"7/oom_score_adj": "0", "8/oom_score_adj": "0"}), remove: os.RemoveAll}
			before := files(t, k.Root)
			if err := k.There(t.Context(), c.parent); err != nil {
				t.Error(err)
			}
			if err := k.There(t.Context(), strings.ReplaceAll(c.parent, "pod1", "pod2")); vm.KindOf(err) != vm.NotFound {
				t.Errorf("a pod without a group: %v", err)
			}
			if err := k.Enter(t.Context(), c.parent, "c1", 7); err != nil {
				t.Fatal(err)
			}
			for i, dir := range c.dirs {
				got := files(t, filepath.Join(k.Root, dir))
				if got["cgroup.procs"] != "7" {
					t.Errorf("%s: %v", dir, got)
				}
				if i > 0 {
					continue
				}
				for f := range c.want { // a kernel has its files from the beginning
					if err := os.WriteFile(filepath.Join(k.Root, dir, f), []byte(got[f]), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := k.Limit(t.Context(), c.parent, "c1", c.limits); err != nil {
				t.Fatal(err)
			}
			if scores := files(t, k.Proc); scores["7/oom_score_adj"] != "500" || scores["8/oom_score_adj"] != "0" {
				t.Errorf("scores: %v", scores)
			}
			if got := files(t, filepath.Join(k.Root, filepath.Dir(c.dirs[0])))["cgroup.subtree_control"]; got != c.delegated {
				t.Errorf("the pod's group has %q accounted below it", got)
			}
			lacking := c.limits
			lacking.Unified = map[string]string{"memory.low": "1"}
			if err := k.Limit(t.Context(), c.parent, "c1", lacking); vm.KindOf(err) != vm.Invalid || !strings.Contains(err.Error(), "unified: memory.low: the node") {
				t.Errorf("a file that there is not: %v", err)
			}
			got := files(t, filepath.Join(k.Root, c.dirs[0]))
			for f, want := range c.want {
				if got[f] != want {
					t.Errorf("%s is %q, want %q", f, got[f], want)
				}
			}
			if err := k.Leave(t.Context(), c.parent, "c1"); err != nil {
				t.Error(err)
			}
			if after := files(t, k.Root); len(after) != len(before) {
				t.Errorf("left: %v", after)
			}
			if err := k.Leave(t.Context(), c.parent, "c1"); err != nil {
				t.Error("again:", err)
			}
		})
	}
	for _, parent := range []string{"/", "/a/../../etc", "..", "/x/\x00"} {
		k := KernelCgroups{Root: t.TempDir()}
		if err := k.Enter(t.Context(), parent, "c", 1); vm.KindOf(err) != vm.Invalid {
			t.Errorf("%q: %v", parent, err)
		}
		if err := k.There(t.Context(), parent); vm.KindOf(err) != vm.Invalid {
			t.Errorf("%q: %v", parent, err)
		}
	}
	for shares, want := range map[int64]int64{2: 1, 1024: 39, 262144: 10000, 1 << 40: 10000, 0: 1} {
		if got := weight(shares); got != want {
			t.Errorf("weight of %d is %d, want %d", shares, got, want)
		}
	}
}

// TestKernelCgroups moves a real process, where the node lets it.
func TestKernelCgroups(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("NOT CHECKED: needs root")
	}
	parent := "/muster-test-" + strconv.Itoa(os.Getpid())
	var pods []string
	roots := []string{"/sys/fs/cgroup"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		roots = nil
		for _, c := range controllers() {
			if st, err := os.Lstat("/sys/fs/cgroup/" + c); err == nil && st.IsDir() {
				roots = append(roots, "/sys/fs/cgroup/"+c)
			}
		}
	}
	for _, root := range roots {
		if err := os.Mkdir(root+parent, 0o755); err == nil {
			pods = append(pods, root+parent)
			defer func() { _ = syscall.Rmdir(root + parent) }()
		}
	}
	if len(pods) == 0 {
		t.Skip("NOT CHECKED: no control group can be made here")
	}
	k := KernelCgroups{}
	for _, pod := range pods {
		if strings.Contains(pod, "/cpuset/") {
			for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
				if err := inherit(pod, f); err != nil {
					t.Skip("NOT CHECKED: cpuset cannot be set up here:", err)
				}
			}
		}
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Skip("NOT CHECKED: no sleep:", err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	if err := k.Enter(t.Context(), parent, "c1", cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := k.Limit(t.Context(), parent, "c1", spec.Resources{CPUShares: 512, CPUQuota: 50_000, CPUs: []int{0}, OOMScore: 300, Swap: new(int64)}); err != nil {
		t.Fatal(err)
	}
	score := func() string {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/oom_score_adj")
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(string(text))
	}
	if got := score(); got != "300" {
		t.Errorf("its score is %s", got)
	}
	// Without CAP_SYS_RESOURCE it keeps what it has, and is no reason not to run.
	if err := k.Limit(t.Context(), parent, "c1", spec.Resources{OOMScore: -900}); err != nil || score() != "-900" && score() != "300" {
		t.Errorf("its score is %s: %v", score(), err)
	}
	where, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/cgroup")
	if err != nil || strings.Count(string(where), parent+"/muster-vm-c1") != len(pods) {
		t.Errorf("it is in\n%s, want %d groups: %v", where, len(pods), err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := k.Leave(ctx, parent, "c1"); err != nil {
		t.Error(err)
	}
	t.Logf("moved in %d hierarchies", len(pods))
}

// TestFolders: what is made is there for QEMU and nobody else, is found again, and goes; what a guest puts in the place of its exit code opens nothing.
func TestFolders(t *testing.T) {
	t.Parallel()
	short, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	d, err := OpenFolders(DiskFolders{Dir: filepath.Join(t.TempDir(), "c"), Sockets: short, UID: -1, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	data := &cloudinit.Data{Label: "cidata", Files: []cloudinit.File{{Path: "meta-data", Content: []byte("{}"), Mode: 0o644}}}
	for range 2 {
		iso, paths, err := d.Make(t.Context(), "c1", data)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(iso); err != nil || st.Mode().Perm() != 0o400 || st.Size() == 0 {
			t.Errorf("%s: %v, %v", iso, st, err)
		}
		if len(paths.VNC) > 107 || paths.Serial == paths.VNC {
			t.Error(paths)
		}
		exit := paths.Exit + ".out"
		if err := os.WriteFile(exit, []byte("3\n"+strings.Repeat("x", 1<<20)), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := d.ExitText(t.Context(), "c1"); err != nil || len(text) != exitLimit || !strings.HasPrefix(string(text), "3\n") {
			t.Errorf("%q, %v", text, err)
		}
		_ = os.Remove(exit)
		for _, evil := range []func() error{
			func() error { return os.Symlink("/etc/passwd", exit) },
			func() error { return syscall.Mkfifo(exit, 0o600) },
			func() error { return os.Mkdir(exit, 0o700) },
		} {
			if err := evil(); err != nil {
				t.Fatal(err)
			}
			if text, err := d.ExitText(t.Context(), "c1"); err == nil {
				t.Errorf("%q was read", text)
			}
			_ = os.Remove(exit)
		}
		if _, err := d.ExitText(t.Context(), "c1"); vm.KindOf(err) != vm.NotFound {
			t.Error(err)
		}
	}
	if ids, err := d.List(t.Context()); err != nil || !slices.Equal(ids, []string{"c1"}) {
		t.Error(ids, err)
	}
	for range 2 {
		if err := d.Remove(t.Context(), "c1"); err != nil {
			t.Error(err)
		}
	}
	if rest, _ := os.ReadDir(short); len(rest) > 0 {
		t.Error(rest)
	}
	for _, id := range []string{"", "..", "a/b", ".x"} {
		if err := d.Remove(t.Context(), id); vm.KindOf(err) != vm.Invalid {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := OpenFolders(DiskFolders{Dir: "/x", Sockets: "/" + strings.Repeat("x", 100)}); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestDevices: only devices of groups that the pod was given are passed through; of a group those that its environment names, or all.
func TestDevices(t *testing.T) {
	t.Parallel()
	cdi := made(t, map[string]string{
		"etc/gpu.yaml": `{cdiVersion: 0.6.0, kind: example.com/gpu, containerEdits: {deviceNodes: [{path: /dev/vfio/vfio}], env: [A=1]}, devices: [
			{name: "0", containerEdits: {deviceNodes: [{path: /dev/vfio/5}]}},
			{name: "1", containerEdits: {deviceNodes: [{path: /dev/x, hostPath: /dev/vfio/6}]}},
			{name: node, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}},
			{name: hook, containerEdits: {deviceNodes: [{path: /dev/vfio/5}], hooks: [{hookName: createContainer, path: /bin/x}]}},
			{name: mount, containerEdits: {mounts: [{hostPath: /usr/lib/x, containerPath: /usr/lib/x}]}},
			{name: none, containerEdits: {env: [A=2]}}]}`,
		"etc/nic.json": `{"cdiVersion": "0.6.0", "kind": "example.com/nic", "devices": [
			{"name": "a", "containerEdits": {"deviceNodes": [{"path": "/dev/vfio/5"}]}}, {"name": "twice", "containerEdits": {"deviceNodes": [{"path": "/dev/vfio/5"}]}}]}`,
		"etc/other.json":  `{"cdiVersion": "0.6.0", "kind": "example.com/nic", "devices": [{"name": "twice", "containerEdits": {"deviceNodes": [{"path": "/dev/vfio/6"}]}}]}`,
		"etc/broken.json": `{`,
		"etc/notes.txt":   `{"kind": "example.com/gpu"`,
		"etc/hooks.json":  `{"cdiVersion": "0.6.0", "kind": "example.com/all", "containerEdits": {"mounts": [{}]}, "devices": [{"name": "a", "containerEdits": {"deviceNodes": [{"path": "/dev/vfio/5"}]}}]}`,
		// What is made while the node runs counts more than what was set up.
		"run/nic.json": `{"cdiVersion": "0.6.0", "kind": "example.com/nic", "devices": [{"name": "a", "containerEdits": {"deviceNodes": [{"path": "/dev/vfio/6"}]}}]}`,
	})
	n := Node{CDI: []string{filepath.Join(cdi, "etc"), filepath.Join(cdi, "run"), filepath.Join(cdi, "nowhere")}, Sys: made(t, map[string]string{
		"kernel/iommu_groups/5/devices/0000:3b:02.1": "", "kernel/iommu_groups/5/devices/0000:3b:02.2": "", "kernel/iommu_groups/6/devices/0000:3b:03.0": "",
	})}
	for _, c := range []struct {
		want spec.HostDevices
		out  []string
		bad  string
	}{
		{want: spec.HostDevices{}},
		{want: spec.HostDevices{VFIO: []string{"/dev/vfio/5"}}, out: []string{"0000:3b:02.1", "0000:3b:02.2"}},
		{want: spec.HostDevices{VFIO: []string{"/dev/vfio/5"}, PCI: []string{"0000:3b:02.2"}}, out: []string{"0000:3b:02.2"}},
		{want: spec.HostDevices{VFIO: []string{"/dev/vfio/5", "/dev/vfio/6"}, PCI: []string{"0000:3b:02.2"}}, out: []string{"0000:3b:02.2", "0000:3b:03.0"}},
		{want: spec.HostDevices{VFIO: []string{"/dev/vfio/5"}, PCI: []string{"0000:3b:03.0"}}, bad: "none of the IOMMU groups"},
		{want: spec.HostDevices{PCI: []string{"0000:3b:03.0"}}, bad: "no IOMMU group"},
		{want: spec.HostDevices{VFIO: []string{"/dev/vfio/../x"}}, bad: "must be an IOMMU group"},
		{want: spec.HostDevices{CDI: []string{"example.com/gpu=0"}}, out: []string{"0000:3b:02.1", "0000:3b:02.2"}},
		{want: spec.HostDevices{CDI: []string{"example.com/gpu=0", "example.com/gpu=1"}, PCI: []string{"0000:3b:02.1"}}, out: []string{"0000:3b:02.1", "0000:3b:03.0"}},
		{want: spec.HostDevices{CDI: []string{"example.com/gpu=0"}, VFIO: []string{"/dev/vfio/5"}}, out: []string{"0000:3b:02.1", "0000:3b:02.2"}},
		{want: spec.HostDevices{CDI: []string{"example.com/nic=a"}}, out: []string{"0000:3b:03.0"}},
		{want: spec.HostDevices{CDI: []string{"example.com/gpu=0"}, PCI: []string{"0000:3b:03.0"}}, bad: "none of the IOMMU groups"},
		{want: spec.HostDevices{CDI: []string{"a/b=c"}}, bad: `CDI device "a/b=c": no specification in `},
		{want: spec.HostDevices{CDI: []string{"a/b=c"}}, bad: "broken.json"},
		{want: spec.HostDevices{CDI: []string{"example.com/nic=twice"}}, bad: "other.json and"},
		{want: spec.HostDevices{CDI: []string{"example.com/gpu=node"}}, bad: `deviceNodes "/dev/nvidia0": a machine is given IOMMU groups`},
		{want: spec.HostDevices{CDI: []string{"example.com/gpu=hook"}}, bad: "hooks: are for a container"},
		{want: spec.HostDevices{CDI: []string{"example.com/gpu=mount"}}, bad: "mounts: are for a container"},
		{want: spec.HostDevices{CDI: []string{"example.com/all=a"}}, bad: "mounts: are for a container"},
		{want: spec.HostDevices{CDI: []string{"example.com/gpu=none"}}, bad: "deviceNodes: has no IOMMU group"},
	} {
		out, err := n.Devices(c.want)
		if !slices.Equal(out, c.out) || (err == nil) != (c.bad == "") || err != nil && (!strings.Contains(err.Error(), c.bad) || vm.KindOf(err) != vm.Invalid) {
			t.Errorf("%+v: %v, %v", c.want, out, err)
		}
	}
}

// TestCDIBounds: a folder with a file, or with files, beyond all measure costs a machine with such a device and nobody else.
func TestCDIBounds(t *testing.T) {
	t.Parallel()
	sys := made(t, map[string]string{"kernel/iommu_groups/5/devices/0000:3b:02.1": ""})
	good := `{"kind": "example.com/gpu", "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/vfio/5"}]}}]}`
	large := made(t, map[string]string{"large.json": good + strings.Repeat(" ", maxCDI), "good.json": strings.ReplaceAll(good, "/gpu", "/nic")})
	if err := syscall.Mkfifo(filepath.Join(large, "pipe.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := Node{Sys: sys, CDI: []string{large}}
	if out, err := n.Devices(spec.HostDevices{CDI: []string{"example.com/nic=0"}}); err != nil || len(out) != 1 {
		t.Error(out, err)
	}
	if _, err := n.Devices(spec.HostDevices{CDI: []string{"example.com/gpu=0"}}); err == nil || !strings.Contains(err.Error(), "large.json") || !strings.Contains(err.Error(), "pipe.json") {
		t.Error(err)
	}
	many := map[string]string{"z.json": good}
	for i := range maxCDIFiles {
		many[strconv.Itoa(i)+".json"] = ""
	}
	n.CDI = []string{made(t, many)}
	if _, err := n.Devices(spec.HostDevices{CDI: []string{"example.com/gpu=0"}}); vm.KindOf(err) != vm.Invalid || !strings.Contains(err.Error(), "files") {
		t.Error(err)
	}
}

// TestExitPort: a guest that floods its exit port has room for a page, of which the first line counts; and nothing is left.
func TestExitPort(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("NOT CHECKED: needs root")
	}
	short, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	d, err := OpenFolders(DiskFolders{Dir: filepath.Join(short, "c"), Sockets: filepath.Join(short, "s"), UID: 65534, GID: 65534})
	if err != nil {
		t.Fatal(err)
	}
	data := &cloudinit.Data{Label: "cidata", Files: []cloudinit.File{{Path: "meta-data", Content: []byte("{}"), Mode: 0o644}}}
	var paths domain.Paths
	for range 2 {
		if _, paths, err = d.Make(t.Context(), "c1", data); errors.Is(err, syscall.EPERM) {
			t.Skipf("NOT CHECKED: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	guest, err := os.OpenFile(paths.Exit+".out", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	if n, err := guest.Write(bytes.Repeat([]byte("7\n"), 1<<19)); n != 4096 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%d bytes, %v", n, err)
	}
	if text, err := d.ExitText(t.Context(), "c1"); err != nil || !strings.HasPrefix(string(text), "7\n") {
		t.Errorf("%q, %v", text, err)
	}
	for range 2 { // the first while it is still written to
		if err := d.Remove(t.Context(), "c1"); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(d.Dir); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), short) {
		t.Errorf("a mount is left, %v", err)
	}
}

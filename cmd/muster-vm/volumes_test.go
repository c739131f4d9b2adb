package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm/flexvolume"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// loop is a block device of the node, which this process and the node's see, with so many bytes. It is free again at the end of f's caller, or of the test.
func (n *realNode) loop(name string, size int64) (path string, free func()) {
	t := n.t
	t.Helper()
	file := n.path(name)
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, size)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).Output()
	if err != nil {
		t.Skipf("NOT CHECKED: no loop device is free here: %v", err)
	}
	path = strings.TrimSpace(string(out))
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	there := fmt.Sprintf("/proc/%d/root%s", n.stage, path)                      // the node's /dev is its own
	if err := unix.Mknod(there, unix.S_IFBLK|0o600, int(st.Rdev)); err != nil { //nolint:gosec // a device's number
		t.Fatal(err)
	}
	over := false
	free = func() {
		if over {
			return
		}
		over = true
		// A device that is held would be let go of only later.
		out, err := exec.Command("losetup", "--detach", path).CombinedOutput()
		if err := errors.Join(err, os.Remove(there), os.Remove(file)); err != nil {
			t.Errorf("%s: %v: %s", path, err, out)
		}
		if held, _ := os.ReadFile(filepath.Join("/sys/block", filepath.Base(path), "loop/backing_file")); bytes.Contains(held, []byte(file)) {
			t.Errorf("%s is still held", path)
		}
	}
	t.Cleanup(free)
	return path, free
}

// holds reads or, with text, writes bytes of a device.
func (n *realNode) holds(device string, offset int64, length int, text []byte) []byte {
	n.t.Helper()
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	if text != nil {
		if _, err := f.WriteAt(text, offset); err != nil {
			n.t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			n.t.Fatal(err)
		}
		return text
	}
	out := make([]byte, length)
	if _, err := io.ReadFull(io.NewSectionReader(f, offset, int64(length)), out); err != nil {
		n.t.Fatal(err)
	}
	return out
}

// volume is a folder of a pod's, as the kubelet makes it for a kind of volume, with files.
func (n *realNode) volume(pod, kind, name string, files map[string]string) string {
	n.t.Helper()
	dir := n.path("pods", "uid-"+pod, "volumes", kind, name)
	at := dir
	if kind != "kubernetes.io~empty-dir" { // what changes at once lies in a folder behind a link
		at = filepath.Join(dir, "..1")
	}
	if err := os.MkdirAll(at, 0o755); err != nil { //nolint:gosec // as the kubelet's
		n.t.Fatal(err)
	}
	if at != dir {
		if err := os.Symlink("..1", filepath.Join(dir, "..data")); err != nil {
			n.t.Fatal(err)
		}
	}
	for file, text := range files { // order: different files
		err := os.WriteFile(filepath.Join(at, file), []byte(text), 0o640) //nolint:gosec // as the kubelet's
		if at != dir {
			err = errors.Join(err, os.Symlink(filepath.Join("..data", file), filepath.Join(dir, file)))
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
	return dir
}

// flex has the node's driver mount a FlexVolume, as the kubelet does.
func (n *realNode) flex(pod, name, options string) string {
	n.t.Helper()
	dir := n.path("pods", "uid-"+pod, "volumes", flexvolume.DirName, name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		n.t.Fatal(err)
	}
	call := func(args ...string) {
		n.t.Helper()
		c := exec.Command("nsenter", append([]string{"-t", fmt.Sprint(n.stage), "-m", n.path("muster-vm"), "flexvolume"}, args...)...)
		c.Env = append(os.Environ(), asItself+"=1")
		if out, err := c.CombinedOutput(); err != nil {
			n.t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	call("mount", dir, options)
	n.t.Cleanup(func() { call("unmount", dir) })
	return dir
}

// diskFunctions are a guest's, which finds disks not by name: those come in the order in which the kernel has seen the disks.
const diskFunctions = `
sized() { for d in /sys/block/*; do [ "$(cat $d/size)" = $1 ] && echo /dev/${d##*/}; done; }
driver() { case "$(readlink -f "$1")" in /dev/sd?) echo scsi;; /dev/vd?) echo virtio;; /dev/nvme*n1) echo nvme;; *) echo "none: $1";; esac; }
`

// volumesScript is what a guest does that has a volume of each kind.
const volumesScript = diskFunctions + `
said() { echo "$1: $(cat "$2" 2>&1)"; }
refused() { "$@" 2>/dev/null && echo "$* was done" || echo "$1 refused"; }
said configMap /etc/conf/key
said secret /run/secret/key; stat -c 'its mode: %a' /run/secret/key
said projected /run/projected/token
said downward /run/downward/labels
said file /etc/single
echo "root: $(driver "$(sized 49152)")"
echo "block: $(driver /dev/data) $(head -c 8 /dev/data)"
printf 'answered' | dd of=/dev/data conv=sync bs=512 2>/dev/null; sync
echo "read-only block: $(driver /dev/old) $(head -c 8 /dev/old)"
refused dd if=/dev/data of=/dev/old bs=512 count=1 conv=fsync
for m in /scratch /raw /shared /kept; do sed -n "s|^[^ ]* \($m [^ ]*\) .*|mounted: \1|p" /proc/mounts; done
echo kept >/scratch/file && said scratch /scratch/file
said raw /raw/hello; echo 'from the guest' >/raw/answer
said share /shared/hello; echo 'from the guest' >/shared/answer
said 'read-only share' /kept/hello
refused touch /kept/answer
sync
umount /scratch /raw /shared /kept && echo 'it is over'
`

// volumesSaid is what it says.
func volumesSaid(driver spec.DiskDriver) []string {
	d := string(driver)
	return []string{
		"configMap: of a ConfigMap", "secret: of a Secret", "its mode: 640", "projected: a token", "downward: a=b", "file: one file",
		"root: " + d, "block: " + d + " for data", "read-only block: " + d + " for old ", "dd refused",
		"mounted: /scratch ext4", "mounted: /raw ext4", "mounted: /shared virtiofs", "mounted: /kept virtiofs",
		"scratch: kept", "raw: of the node", "share: shared", "read-only share: kept", "touch refused", "it is over",
	}
}

// ended waits until a container's guest has ended by itself, with code 0, and gives the lines of its log.
func (n *realNode) ended(name, container string) map[string]bool {
	n.t.Helper()
	n.until("the end of "+name, func() bool { return n.status(container).GetState() == runtimeapi.ContainerState_CONTAINER_EXITED })
	if s := n.status(container); s.GetExitCode() != 0 || s.GetReason() != "Completed" {
		n.t.Errorf("%s: %v", name, s)
	}
	text, err := os.ReadFile(n.path("log", name+".log"))
	if err != nil {
		n.t.Fatal(err)
	}
	lines := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if _, said, ok := strings.Cut(line, " stdout F "); ok {
			lines[strings.TrimSuffix(said, "\n")] = true
		}
	}
	return lines
}

// removed stops and removes a pod.
func (n *realNode) removed(ctx context.Context, box string) {
	n.t.Helper()
	_, err := n.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: box})
	_, bad := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box})
	if err := errors.Join(err, bad); err != nil {
		n.t.Fatal(err)
	}
}

// TestVolumes: with each disk driver a guest has a volume of every kind where its pod mounts it: what the node put there it can read, what it writes the node has, and what is read-only it cannot write. Ceph's
// volumes: NOT CHECKED, here is no cluster. A persistent root is then the disk of three pods, each with another driver: the second has what the first wrote to it; of one that looks as if the node had died while it was copied, the third boots an image
// that is whole. Nothing is left.
func TestVolumes(t *testing.T) {
	for _, program := range []string{"losetup", "mke2fs", "debugfs", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("NOT CHECKED: %v", err)
		}
	}
	n, img := newRealNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*lot)
	defer cancel()
	drivers := []spec.DiskDriver{spec.SCSI, spec.VirtIO, spec.NVMe}
	run := func(name string, driver spec.DiskDriver, c *runtimeapi.ContainerConfig, script string) (string, map[string]bool) {
		t.Helper()
		began := time.Now()
		c.Image, c.Command = &runtimeapi.ImageSpec{Image: img}, []string{"/bin/sh", "-c", script}
		c.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 256 << 20}}
		box, vm := n.podWith(&runtimeapi.PodSandboxConfig{Annotations: map[string]string{spec.KeyDiskDriver: string(driver)}}, name, c)
		lines := n.ended(name, vm)
		t.Logf("%s: over after %v", name, time.Since(began))
		return box, lines
	}
	tell := func(name string, lines map[string]bool, want ...string) {
		t.Helper()
		for _, line := range want {
			if !lines[line] {
				text, _ := os.ReadFile(n.path("log", name+".log"))
				t.Fatalf("%s does not say %q: %s", name, line, text)
			}
		}
	}
	for _, driver := range drivers {
		name := "all-" + string(driver)
		data, freeData := n.loop("data", 1<<20)
		old, freeOld := n.loop("old", 1<<20)
		raw, freeRaw := n.loop("raw", 8<<20)
		n.holds(data, 0, 0, []byte("for data"))
		n.holds(old, 0, 0, []byte("for old "))
		if out, err := exec.Command("mke2fs", "-q", "-F", "-t", "ext4", "-d", n.volume(name, "kubernetes.io~empty-dir", "made", map[string]string{"hello": "of the node\n"}), raw).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := os.WriteFile(n.path("single"), []byte("one file\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		shared, kept := n.volume(name, "kubernetes.io~empty-dir", "shared", map[string]string{"hello": "shared\n"}), n.volume(name, "kubernetes.io~empty-dir", "kept", map[string]string{"hello": "kept\n"})
		box, lines := run(name, driver, &runtimeapi.ContainerConfig{
			Devices: []*runtimeapi.Device{{ContainerPath: "/dev/data", HostPath: data, Permissions: "mrw"}, {ContainerPath: "/dev/old", HostPath: old, Permissions: "mr"}},
			Mounts: []*runtimeapi.Mount{
				{ContainerPath: "/etc/conf", HostPath: n.volume(name, "kubernetes.io~configmap", "conf", map[string]string{"key": "of a ConfigMap\n"}), Readonly: true},
				{ContainerPath: "/run/secret", HostPath: n.volume(name, "kubernetes.io~secret", "secret", map[string]string{"key": "of a Secret\n"}), Readonly: true},
				{ContainerPath: "/run/projected", HostPath: n.volume(name, "kubernetes.io~projected", "projected", map[string]string{"token": "a token\n"}), Readonly: true},
				{ContainerPath: "/run/downward", HostPath: n.volume(name, "kubernetes.io~downward-api", "downward", map[string]string{"labels": "a=b\n"}), Readonly: true},
				{ContainerPath: "/etc/single", HostPath: n.path("single")},
				{ContainerPath: "/scratch", HostPath: n.flex(name, "scratch", `{"type": "qcow2", "capacity": "64MiB"}`)},
				{ContainerPath: "/raw", HostPath: n.flex(name, "raw", fmt.Sprintf(`{"type": "raw", "path": %q, "part": "0"}`, raw))},
				{ContainerPath: "/shared", HostPath: shared},
				{ContainerPath: "/kept", HostPath: kept, Readonly: true},
			},
		}, volumesScript)
		tell(name, lines, volumesSaid(driver)...)
		if got := n.holds(data, 0, 8, nil); string(got) != "answered" {
			t.Errorf("%s: the block device has %q", name, got)
		}
		if got := n.holds(old, 0, 8, nil); string(got) != "for old " {
			t.Errorf("%s: the read-only block device has %q", name, got)
		}
		if out, err := exec.Command("debugfs", "-R", "cat /answer", raw).Output(); err != nil || string(out) != "from the guest\n" {
			t.Errorf("%s: the FlexVolume of type raw has %q: %v", name, out, err)
		}
		if text, err := os.ReadFile(filepath.Join(shared, "answer")); err != nil || string(text) != "from the guest\n" {
			t.Errorf("%s: the directory has %q: %v", name, text, err)
		}
		if _, err := os.Lstat(filepath.Join(kept, "answer")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the read-only directory was written: %v", name, err)
		}
		n.removed(ctx, box)
		freeData()
		freeOld()
		freeRaw()
	}

	// The mark lies where the image has nothing, so that a copy of it wipes the mark out.
	const sector, header, size, mark = 512, 512, 32<<20 - 512, 24<<20/512 - 1
	root, freeRoot := n.loop("root", header+size)
	device := func() *runtimeapi.ContainerConfig {
		return &runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{{ContainerPath: "/", HostPath: root, Permissions: "mrw"}}}
	}
	script := diskFunctions + fmt.Sprintf(`disk=$(sized %d)
echo "$(driver $disk), mark: $(dd if=$disk bs=512 skip=%[2]d count=1 2>/dev/null | tr -d '\0')."
driver $disk | dd of=$disk bs=512 seek=%[2]d conv=sync,notrunc 2>/dev/null
sync`, size/sector, mark)
	box, lines := run("root-one", spec.SCSI, device(), script)
	tell("root-one", lines, "scsi, mark: .")
	n.removed(ctx, box)
	box, lines = run("root-two", spec.VirtIO, device(), script)
	tell("root-two", lines, "virtio, mark: scsi.")
	n.removed(ctx, box)
	if got := n.holds(root, header+mark*sector, 7, nil); string(got) != "virtio\n" {
		t.Errorf("the persistent root has the mark %q", got)
	}
	// So a device looks whose copy was cut short: no header, and not the image.
	n.holds(root, 0, 0, make([]byte, header))
	n.holds(root, header, 0, []byte(strings.Repeat("half", 1<<18)))
	box, lines = run("root-three", spec.NVMe, device(), script)
	tell("root-three", lines, "nvme, mark: .")
	n.removed(ctx, box)
	freeRoot()
	n.nothingLeft(ctx)
}

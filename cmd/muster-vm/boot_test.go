package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm/image"
	"github.com/muster-scheduler/muster/internal/vm/network"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// lot is how long a machine may take, with software for a processor on a machine that has other work.
const lot = 5 * time.Minute

// bootStage is a node: mounts and network of its own, no /dev/kvm, and a libvirtd. It ends with its input.
const bootStage = `set -e
mount --make-rprivate /
mkdir "$1/dev" "$1/libvirt"
mount -t tmpfs tmpfs "$1/dev"
mkdir "$1/dev/net"
for n in null zero full random urandom tty ptmx net/tun; do touch "$1/dev/$n"; mount --bind /dev/$n "$1/dev/$n"; done
for n in pts shm; do mkdir "$1/dev/$n"; mount --rbind /dev/$n "$1/dev/$n"; done
mount --rbind "$1/dev" /dev
for d in /run/libvirt /etc/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt; do mkdir -p $d; mount -t tmpfs -o mode=755 tmpfs $d; done
# Block devices that are NVMe disks are only in QEMU's arguments: libvirt lets QEMU open those that this list has beside its own.
acl='"/dev/null", "/dev/full", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/ptmx", "/dev/userfaultfd"'
for n in $(seq 0 63); do acl="$acl, \"/dev/loop$n\""; done
printf 'stdio_handler = "file"\nnamespaces = []\ncgroup_device_acl = [ %s ]\n' "$acl" > /etc/libvirt/qemu.conf
cat > "$1/libvirtd.conf" <<END
unix_sock_dir = "$1/libvirt"
auth_unix_rw = "none"
auth_unix_ro = "none"
host_uuid = "5d3b1c1e-6c0f-4d6b-9c39-0d1d3c4c5b6b"
END
ip link set lo up
(while [ ! -e "$1/over" ]; do libvirtd -f "$1/libvirtd.conf" -p "$1/libvirtd.pid" >>"$1/libvirtd.log" 2>&1 || true; done) &
libvirtd=$!
"$1/muster-vm" up --dir "$1/d" --cri "$1/cri.sock" --domain-type qemu --libvirt-uri "qemu+unix:///system?socket=$1/libvirt/libvirt-sock" --qemu "$2" \
  --cni-bin-dir "$3" --cni-conf-dir "$1/cni" --kubelet-pods-dir "$1/pods" 2>"$1/up.log" &
up=$!
cat >/dev/null || true
kill -TERM $up || true
wait $up || echo "up ended with $?"
cat /var/log/libvirt/qemu/*.log > "$1/qemu.log" 2>/dev/null || true
touch "$1/over"
kill -KILL "$(cat "$1/libvirtd.pid")"
wait $libvirtd 2>/dev/null || true`

// realNode is a node with libvirt and muster-vm.
type realNode struct {
	t   testing.TB
	dir string
	runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient
	// cgroup is the pods' group, groups the folders that it has; "" where none can be made here.
	cgroup string
	groups []string
	// stage is a process that sees the node's mounts and network.
	stage int
	// qemu is a program, plugins the folder of CNI's.
	qemu, plugins string
}

// newRealNode starts one with an image in its store, and gives that image's id.
func newRealNode(t testing.TB) (*realNode, string) {
	t.Helper()
	disk := os.Getenv("MUSTER_VM_IMAGE")
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: it needs root")
	}
	if _, err := os.Stat(disk); err != nil {
		t.Skipf("NOT CHECKED: it needs a disk, that of make vm-image, and its path in MUSTER_VM_IMAGE: %v", err)
	}
	const plugins = "/usr/lib/cni"
	qemu := ""
	for _, program := range []string{"unshare", "ip", "libvirtd", filepath.Join(plugins, "bridge"), filepath.Join(plugins, "host-local"), "qemu-system-x86_64"} {
		var err error
		if qemu, err = exec.LookPath(program); err != nil {
			t.Skipf("NOT CHECKED: %v", err)
		}
	}
	dir, err := os.MkdirTemp("", "up") // short: there are sockets below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &realNode{t: t, dir: dir}
	if err := errors.Join(os.Chmod(dir, 0o755), os.MkdirAll(n.path("cni"), 0o755), os.MkdirAll(n.path("log"), 0o755)); err != nil { //nolint:gosec // QEMU's user gets through
		t.Fatal(err)
	}
	conf := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge","bridge":"pods0","isGateway":true,"capabilities":{"mac":true},"ipam":{"type":"host-local",
		"dataDir":%q,"ranges":[[{"subnet":"10.213.77.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`, n.path("ipam"))
	if err := os.WriteFile(n.path("cni", "10-pods.conflist"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	id := n.put(disk)
	n.program()
	n.group()
	c := exec.Command("unshare", "-m", "-n", "sh", "-c", bootStage, "stage", dir, qemu, plugins)
	c.Env = append(os.Environ(), asItself+"=1")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	n.stage, n.qemu, n.plugins = c.Process.Pid, qemu, plugins
	lines := make(chan string, 16)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		for line := range lines {
			t.Errorf("at the end: %s", line)
		}
		_ = c.Wait() // it says how libvirtd ended
		if t.Failed() {
			for _, log := range []string{"up.log", "libvirtd.log", "qemu.log"} {
				text, _ := os.ReadFile(n.path(log))
				t.Logf("%s: %s", log, text[max(0, len(text)-20000):])
			}
		}
	})
	select {
	case line, ok := <-lines:
		if !ok {
			t.Skip("NOT CHECKED: no namespaces of mounts and network can be made here")
		}
		if line != "ready "+n.path("cri.sock") {
			t.Fatalf("up says %q", line)
		}
	case <-time.After(lot):
		t.Fatal("up is not ready")
	}
	conn, err := grpc.NewClient("unix://"+n.path("cri.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	n.RuntimeServiceClient, n.images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	n.until("hypervisor and network are ready", func() bool {
		got, err := n.Status(t.Context(), &runtimeapi.StatusRequest{})
		for _, c := range got.GetStatus().GetConditions() {
			if !c.GetStatus() {
				return false
			}
		}
		return err == nil
	})
	return n, id
}

func (n *realNode) path(elem ...string) string {
	return filepath.Join(append([]string{n.dir}, elem...)...)
}

// put pulls a disk into the store, before the runtime has it open.
func (n *realNode) put(disk string) string {
	n.t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, disk) }))
	defer s.Close()
	if err := os.MkdirAll(n.path("d", "state"), 0o711); err != nil { //nolint:gosec // QEMU's user gets through
		n.t.Fatal(err)
	}
	store, err := image.Open(n.path("d", "state", "images"), image.Options{AllowLoopbackURLs: true})
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	got, err := store.Pull(n.t.Context(), image.Request{Name: s.URL + "/tiny.qcow2"})
	if err != nil {
		n.t.Fatal(err)
	}
	return string(got.ID)
}

// program puts this program where QEMU's user can run it.
func (n *realNode) program() {
	n.t.Helper()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		n.t.Fatal(err)
	}
	defer self.Close()
	to, err := os.OpenFile(n.path("muster-vm"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755) //nolint:gosec // QEMU's user runs it
	if err != nil {
		n.t.Fatal(err)
	}
	_, err = io.Copy(to, self)
	if err := errors.Join(err, to.Close()); err != nil {
		n.t.Fatal(err)
	}
}

// group makes the pods' control group, in version 2 or in two of version 1's hierarchies.
func (n *realNode) group() {
	name := "/muster-vm-boot-" + strconv.Itoa(os.Getpid())
	for _, root := range []string{"", "memory", "pids"} {
		if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", root, "cgroup.procs")); err != nil {
			continue
		}
		if dir := filepath.Join("/sys/fs/cgroup", root, name); os.Mkdir(dir, 0o755) == nil { //nolint:gosec // as others there
			n.groups, n.cgroup = append(n.groups, dir), name
			n.t.Cleanup(func() { _ = syscall.Rmdir(dir) })
		}
	}
	if n.cgroup == "" {
		n.t.Log("NOT CHECKED: control groups: none can be made here")
	}
}

// in says whether a process is in the pods' group.
func (n *realNode) in(pid int) bool {
	where, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return strings.Count(string(where), n.cgroup+"/muster-vm-") >= len(n.groups)
}

// until asks again and again until it is so.
func (n *realNode) until(what string, so func() bool) {
	n.t.Helper()
	n.within(lot, what, so)
}

// within is until, with a time of the caller's.
func (n *realNode) within(most time.Duration, what string, so func() bool) {
	n.t.Helper()
	over := time.NewTimer(most)
	defer over.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for !so() {
		select {
		case <-again.C:
		case <-over.C:
			n.t.Fatalf("not within %v: %s", most, what)
		}
	}
}

// pod makes and starts one. Its guest is told the script, if there is one.
func (n *realNode) pod(name, img, script string, mounts ...*runtimeapi.Mount) (sandbox, container string) {
	n.t.Helper()
	return n.podOf(&runtimeapi.PodSandboxConfig{Annotations: map[string]string{spec.KeyUserDataScript: script}}, name, img, 256<<20, mounts...)
}

// podOf is pod, with labels and annotations.
func (n *realNode) podOf(config *runtimeapi.PodSandboxConfig, name, img string, memory int64, mounts ...*runtimeapi.Mount) (sandbox, container string) {
	n.t.Helper()
	return n.podWith(config, name, &runtimeapi.ContainerConfig{
		Image: &runtimeapi.ImageSpec{Image: img}, Mounts: mounts,
		Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: memory}},
	})
}

// podWith is pod, with a container of the caller's.
func (n *realNode) podWith(config *runtimeapi.PodSandboxConfig, name string, c *runtimeapi.ContainerConfig) (sandbox, container string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), lot)
	defer cancel()
	config.Metadata = &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "team", Uid: "uid-" + name}
	config.Hostname, config.LogDirectory, config.Linux = name, n.path("log"), &runtimeapi.LinuxPodSandboxConfig{CgroupParent: n.cgroup}
	c.Metadata, c.LogPath = &runtimeapi.ContainerMetadata{Name: "vm"}, name+".log"
	if config.Annotations[spec.KeyUserDataScript] == "" {
		delete(config.Annotations, spec.KeyUserDataScript)
	}
	began := time.Now()
	box, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		n.t.Fatal(err)
	}
	ran := time.Since(began)
	made, err := n.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: box.GetPodSandboxId(), SandboxConfig: config, Config: c})
	if err != nil {
		n.t.Fatal(err)
	}
	created := time.Since(began)
	if _, err := n.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()}); err != nil {
		n.t.Fatal(err)
	}
	n.t.Logf("%s: sandbox %v, created %v, started %v", name, ran, created-ran, time.Since(began)-created)
	return box.GetPodSandboxId(), made.GetContainerId()
}

func (n *realNode) status(container string) *runtimeapi.ContainerStatus {
	n.t.Helper()
	got, err := n.ContainerStatus(n.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: container})
	if err != nil {
		n.t.Logf("status: %v", err)
		return nil
	}
	return got.GetStatus()
}

func (n *realNode) says(name, text string) func() bool {
	return func() bool {
		log, _ := os.ReadFile(n.path("log", name+".log"))
		return strings.Contains(string(log), text)
	}
}

// process finds a process of this node by its arguments; 0 if there is none.
func (n *realNode) process(args ...string) int {
	if all := n.processes(args...); len(all) > 0 {
		return all[0]
	}
	return 0
}

func (n *realNode) processes(args ...string) (out []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range all {
		line, err := os.ReadFile(p)
		if err != nil || !strings.Contains(string(line), n.dir) {
			continue
		}
		found := true
		for _, a := range args {
			found = found && strings.Contains(string(line), a)
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p))); found && err == nil && pid != os.Getpid() {
			out = append(out, pid)
		}
	}
	return out
}

// fileServer is how virtiofsd is called.
const fileServer = "virtiofsd\x00--fd="

// guestScript is what the second pod runs, in a guest that has mounted its directories as the contract says.
const guestScript = `#!/bin/sh
echo hello World
cat /data/hello && echo from the guest >/data/answer
cat /kept/hello
echo x >/kept/answer || echo it cannot be written
umount /data /kept
echo 42 >$EXIT
timeout 20 cat /dev/zero >$EXIT
echo it is over
exit 3
`

// TestBoot: pods boot on a real libvirtd and QEMU, through the socket of up. The first runs a command by its guest agent, lives through the end of the network's and the runtime's processes, has its say in the log once, and goes by the
// power button, with code 0. The second runs a script that has two directories of the node, of which one is read-only, and writes its exit code and then floods that port: its code counts, and the
// disk does not fill. Removed,
// neither leaves anything.
func TestBoot(t *testing.T) {
	n, img := newRealNode(t)
	if got, err := n.images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: img}}); err != nil || got.GetImage().GetId() != img {
		t.Fatalf("image: %v, %v", got, err)
	}
	began := time.Now()
	box, vm := n.pod("button", img, "")
	n.until("the first pod is up", n.says("button", "tiny: up"))
	t.Logf("up after %v", time.Since(began))
	st, err := n.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: box})
	if ip := st.GetStatus().GetNetwork().GetIp(); err != nil || ip == "" || !n.says("button", "tiny: address "+ip+"/")() {
		t.Errorf("the guest has not the address of its pod, %q, %v", ip, err)
	}
	asked := time.Now()
	out, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: vm, Cmd: []string{"sh", "-c", "echo out; hostname; echo err >&2; exit 3"}, Timeout: int64(lot / time.Second)})
	if err != nil || string(out.GetStdout()) != "out\nbutton\n" || string(out.GetStderr()) != "err\n" || out.GetExitCode() != 3 {
		t.Errorf("exec: %v, %v", out, err)
	}
	t.Logf("exec took %v", time.Since(asked))
	n.look(box, vm)
	n.validates(n.qemu, n.plugins)
	machine := n.process("-uuid")
	if !n.in(machine) {
		t.Errorf("the machine, process %d, is not in its pod's control group", machine)
	}
	for _, name := range []string{"net", "runtime"} {
		was := n.process("\x00" + name + "\x00")
		if was == 0 || syscall.Kill(was, syscall.SIGKILL) != nil {
			t.Fatalf("%s is no process", name)
		}
		n.until("another "+name, func() bool { p := n.process("\x00" + name + "\x00"); return p != 0 && p != was })
	}
	n.until("it knows its machine", func() bool { return n.status(vm).GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING })
	if out, err = n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: vm, Cmd: []string{"ping", "-c", "1", "10.213.77.1"}, Timeout: int64(lot / time.Second)}); err != nil || out.GetExitCode() != 0 {
		t.Errorf("the guest's network: %v, %v", out, err)
	}
	if p := n.process("-uuid"); p != machine {
		t.Errorf("the machine was process %d and is %d", machine, p)
	}
	ctx, cancel := context.WithTimeout(t.Context(), lot)
	defer cancel()
	n.until("the power button", func() bool {
		_, err := n.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: vm, Timeout: int64(lot / time.Second)})
		return err == nil
	})
	if s := n.status(vm); s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetExitCode() != 0 || s.GetReason() != "Completed" {
		t.Errorf("after the power button: %v", s)
	}
	if log, err := os.ReadFile(n.path("log", "button.log")); err != nil || strings.Count(string(log), "tiny: up") != 1 {
		t.Errorf("%v: %s", err, log)
	}

	for dir, mode := range map[string]os.FileMode{"data": 0o755, "kept": 0o755} { // order: two folders
		if err := errors.Join(os.Mkdir(n.path(dir), mode), os.WriteFile(n.path(dir, "hello"), []byte("hello from "+dir+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	flood, guest := n.pod("flood", img, guestScript,
		&runtimeapi.Mount{ContainerPath: "/data", HostPath: n.path("data")}, &runtimeapi.Mount{ContainerPath: "/kept", HostPath: n.path("kept"), Readonly: true})
	servers := n.processes(fileServer) // two, and of each, where it has a sandbox, the process that serves
	if len(servers) < 2 {
		t.Errorf("file servers: processes %v, want two or more", servers)
	}
	for _, server := range servers {
		if !n.in(server) {
			t.Errorf("a file server, process %d of %v, is not in its pod's control group", server, servers)
		}
	}
	// The file lies where this process does not see it, but the machine does.
	file := fmt.Sprintf("/proc/%d/root%s", n.process("-uuid"), n.path("d", "state", "containers", guest, "exit", "port.out"))
	var most int64
	n.until("the second pod's end", func() bool {
		if info, err := os.Stat(file); err == nil {
			most = max(most, info.Sys().(*syscall.Stat_t).Blocks*512)
		}
		return n.status(guest).GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	if s := n.status(guest); s.GetExitCode() != 42 || s.GetReason() != "Error" {
		t.Errorf("after the flood: %v", s)
	}
	if most != 4096 {
		t.Errorf("%d bytes of what the guest wrote to its exit port were kept, want a page", most)
	}
	for _, line := range []string{"hello World", "hello from data", "hello from kept", "it cannot be written", "it is over"} {
		if !n.says("flood", " stdout F "+line+"\n")() {
			log, _ := os.ReadFile(n.path("log", "flood.log"))
			t.Errorf("%q is not in the log: %s", line, log)
		}
	}
	if text, err := os.ReadFile(n.path("data", "answer")); err != nil || string(text) != "from the guest\n" {
		t.Errorf("the guest's file: %q, %v", text, err)
	}

	for _, id := range []string{box, flood} {
		if _, err := n.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Error(err)
		}
		if _, err := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Error(err)
		}
	}
	n.nothingLeft(ctx)
}

// nothingLeft looks for what pods have had that are gone.
func (n *realNode) nothingLeft(ctx context.Context) {
	t := n.t
	t.Helper()
	for _, dir := range []string{n.path("d", "state", "containers"), n.path("d", "state", "volumes"), n.path("d", "run", "s"), n.path("d", "run", "f"), n.path("d", "netns")} {
		left, err := os.ReadDir(dir)
		for _, e := range left {
			if !strings.HasPrefix(e.Name(), ".") {
				t.Errorf("left in %s: %s", dir, e.Name())
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
	for _, dir := range n.groups {
		if err := syscall.Rmdir(dir); err != nil {
			t.Errorf("%s has something left: %v", dir, err)
		}
	}
	if pods, err := (network.Client{Socket: n.path("d", "net.sock")}).List(ctx); err != nil || len(pods) > 0 {
		t.Errorf("networks are left: %v, %v", pods, err)
	}
	if p := n.process(fileServer); p != 0 {
		t.Errorf("a file server is left: process %d", p)
	}
	if p := n.process("-uuid"); p != 0 {
		t.Errorf("a machine is left: process %d", p)
	}
	if left, err := os.ReadDir(n.path("ipam", "pods")); err != nil {
		t.Error(err)
	} else {
		for _, e := range left {
			if strings.HasPrefix(e.Name(), "10.") {
				t.Errorf("an address is left: %s", e.Name())
			}
		}
	}
}

//go:build linux

package conformity

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lot is how long a node may take to be ready, with software for a processor on a machine that has other work.
const lot = 5 * time.Minute

// plugins is where Debian has CNI's.
const plugins = "/usr/lib/cni"

// stage is a node: mounts, network and processes of its own, no /dev/kvm, a libvirtd, muster-vm up, and containerd if $3 says so. It ends with
// its input, and everything that it started ends with it.
const stage = `set -e
mount --make-rprivate /
mkdir "$1/dev" "$1/libvirt"
mount -t tmpfs tmpfs "$1/dev"
mkdir "$1/dev/net"
for n in null zero full random urandom tty ptmx net/tun; do touch "$1/dev/$n"; mount --bind /dev/$n "$1/dev/$n"; done
for n in pts shm; do mkdir "$1/dev/$n"; mount --rbind /dev/$n "$1/dev/$n"; done
ln -s /proc/self/fd "$1/dev/fd"
mount --rbind "$1/dev" /dev
for d in /run/libvirt /etc/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt /run/containerd; do mkdir -p $d; mount -t tmpfs -o mode=755 tmpfs $d; done
printf 'stdio_handler = "file"\nnamespaces = []\n' > /etc/libvirt/qemu.conf
cat > "$1/libvirtd.conf" <<END
unix_sock_dir = "$1/libvirt"
auth_unix_rw = "none"
auth_unix_ro = "none"
host_uuid = "0f5c7a52-2c63-4d0e-8f2b-8e6f0c6f0f11"
END
ip link set lo up
libvirtd -f "$1/libvirtd.conf" -p "$1/libvirtd.pid" >"$1/libvirtd.log" 2>&1 &
primary=
if [ "$3" = containerd ]; then
	primary="--primary $1/containerd.sock"
	containerd -c "$1/containerd.toml" >"$1/containerd.log" 2>&1 &
fi
echo begun
read go
"$2" up --dir "$1/d" --cri "$1/cri.sock" --domain-type qemu --libvirt-uri "qemu+unix:///system?socket=$1/libvirt/libvirt-sock" \
  --cni-bin-dir "$4" --cni-conf-dir "$1/cni" $primary $5 2>"$1/up.log" &
up=$!
cat >/dev/null || true
kill -TERM $up || true
wait $up || echo "up ended with $?"
cat /var/log/libvirt/qemu/*.log > "$1/qemu.log" 2>/dev/null || true`

// node is a machine that has muster-vm.
type node struct {
	t   *testing.T
	dir string
	// pid is the process that the node's others are seen from.
	pid int
	// cgroup is a control group for pods that name one.
	cgroup string
}

// needs gives a program that the Makefile has built, or skips.
func needs(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("NOT CHECKED: %s has to name what make prove-vm makes: %v", variable, err)
	}
	return path
}

// newNode starts one; containerd: beside one.
func newNode(t *testing.T, containerd bool) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: it needs root")
	}
	vm, disk := needs(t, "MUSTER_VM_BINARY"), needs(t, "MUSTER_VM_IMAGE")
	programs := []string{"unshare", "nsenter", "ip", "iptables", "libvirtd", "qemu-system-x86_64", filepath.Join(plugins, "bridge"), filepath.Join(plugins, "portmap")}
	beside := "alone"
	if containerd {
		programs = append(programs, "containerd", "runc", "busybox")
		beside = "containerd"
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("NOT CHECKED: %v", err)
		}
	}
	dir, err := os.MkdirTemp("", "cri") // short: there are sockets below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{t: t, dir: dir, cgroup: "/" + filepath.Base(dir)}
	t.Cleanup(n.ungroup)
	n.group()
	if err := errors.Join(os.Chmod(dir, 0o755), os.MkdirAll(n.path("cni"), 0o755), os.MkdirAll(n.path("tmp"), 0o755), os.MkdirAll(n.path("log"), 0o755)); err != nil {
		t.Fatal(err)
	}
	n.write("cni/10-pods.conflist", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"pods","plugins":[
		{"type":"bridge","bridge":"pods0","isGateway":true,"ipMasq":true,"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.213.78.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
		{"type":"portmap","capabilities":{"portMappings":true}}]}`, n.path("ipam")))
	binary := n.path("muster-vm")
	n.copyProgram(vm, binary)
	var mirrors []string
	for _, host := range hosts {
		mirrors = append(mirrors, fmt.Sprintf("--mirror %s=http://127.0.0.1:%d", host, machinePort))
		n.write(fmt.Sprintf("certs.d/%s/hosts.toml", host), fmt.Sprintf("server = %q\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", "https://"+host, fmt.Sprintf("http://127.0.0.1:%d", containerPort)))
	}
	n.write("containerd.toml", fmt.Sprintf(containerdConfig, n.path("c"), n.path("containerd.sock"), plugins, n.path("cni"), n.path("certs.d")))

	c := exec.Command("unshare", "-m", "-n", "-p", "--fork", "--kill-child", "--mount-proc", "sh", "-c", stage, "stage", dir, binary, beside, plugins, strings.Join(mirrors, " "))
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
		_ = c.Wait() // it says how the last of its processes ended
		if t.Failed() {
			for _, log := range []string{"up.log", "libvirtd.log", "qemu.log", "containerd.log"} {
				text, _ := os.ReadFile(n.path(log))
				t.Logf("%s: %s", log, text[max(0, len(text)-20000):])
			}
		}
	})
	next := func(want string) {
		t.Helper()
		select {
		case line, ok := <-lines:
			if !ok {
				t.Skip("NOT CHECKED: no namespaces of mounts, network and processes can be made here")
			}
			if line != want {
				t.Fatalf("the node says %q, want %q", line, want)
			}
		case <-time.After(lot):
			t.Fatalf("the node does not say %q", want)
		}
	}
	next("begun")
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", c.Process.Pid))
	if err == nil {
		n.pid, err = strconv.Atoi(strings.Fields(string(children) + " 0")[0])
	}
	if err != nil || n.pid == 0 {
		t.Fatalf("the node's first process is not known: %q, %v", children, err)
	}
	n.serve(machinePort, machines(t, disk))
	if containerd {
		n.serve(containerPort, containers(t))
	}
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	next("ready " + n.path("cri.sock"))
	return n
}

// slice is the group that the suite names for its pods where a runtime does not say which cgroup driver it wants, as containerd 1.6. All who run
// it share that one.
const slice = "/test.slice"

// group makes what a kubelet would make for pods, in version 2 or in two of version 1's hierarchies.
func (n *node) group() {
	n.t.Helper()
	for _, root := range []string{"", "memory", "pids"} {
		if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", root, "cgroup.procs")); err != nil {
			continue
		}
		for _, name := range []string{n.cgroup, slice} {
			if err := os.MkdirAll(filepath.Join("/sys/fs/cgroup", root, name), 0o755); err != nil {
				n.t.Skipf("NOT CHECKED: no control group can be made: %v", err)
			}
		}
	}
}

// ungroup removes what pods' groups have left, as a kubelet does it, in every hierarchy that has some. containerd puts pods that name no group
// into one of its own.
func (n *node) ungroup() {
	for _, name := range []string{n.cgroup, slice, "/k8s.io"} {
		for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			tops, _ := filepath.Glob(root + name)
			for _, top := range tops {
				var all []string
				_ = filepath.WalkDir(top, func(p string, d os.DirEntry, err error) error {
					if err == nil && d.IsDir() {
						all = append(all, p)
					}
					return nil
				})
				for _, dir := range slices.Backward(all) {
					if err := unix.Rmdir(dir); err != nil && name == n.cgroup && !errors.Is(err, unix.ENOENT) {
						n.t.Errorf("control group %s: %v", dir, err)
					}
				}
			}
		}
	}
}

// containerdConfig is containerd's: its folder, socket, the plugins, their configuration and where images are.
const containerdConfig = `version = 2
root = %[1]q
state = "/run/containerd/state"
[grpc]
  address = %[2]q
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "registry.k8s.io/node/pause:1"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = %[3]q
  conf_dir = %[4]q
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = %[5]q
`

func (n *node) path(elem ...string) string {
	return filepath.Join(append([]string{n.dir}, elem...)...)
}

func (n *node) write(name, text string) {
	n.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(n.path(name)), 0o755), os.WriteFile(n.path(name), []byte(text), 0o600)); err != nil {
		n.t.Fatal(err)
	}
}

// copyProgram puts a program where QEMU's user can run it.
func (n *node) copyProgram(from, to string) {
	n.t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o755)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// inside calls f on a thread that is in the node's network.
func (n *node) inside(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", n.pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Setns(fd, unix.CLONE_NEWNET), unix.Close(fd))
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// serve answers HTTP in the node's network until the test's end.
func (n *node) serve(port int, h http.Handler) {
	n.t.Helper()
	var l net.Listener
	if err := n.inside(func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		return err
	}); err != nil {
		n.t.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }()
	n.t.Cleanup(func() { _ = s.Close() })
}

// command is a program in the node.
func (n *node) command(ctx context.Context, argv ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(n.pid), "-m", "-n", "-p", "--"}, argv...)...)
	c.Env = append(os.Environ(), "TMPDIR="+n.path("tmp"))
	c.Dir = "/"
	return c
}

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor/fake"
	"github.com/muster-scheduler/muster/internal/vm/image"
	"github.com/muster-scheduler/muster/internal/vm/network"
	"github.com/muster-scheduler/muster/internal/vm/runtime"
	"github.com/muster-scheduler/muster/internal/vm/spec"
	"github.com/muster-scheduler/muster/internal/vm/store"
	"github.com/muster-scheduler/muster/internal/vm/suspend"
)

const (
	// comingsEnv is how many pods come and go, insideEnv says that the test is in namespaces of its own.
	comingsEnv, insideEnv = "MUSTER_TEST_NODE_PODS", "MUSTER_TEST_NODE_INSIDE"
	cniPlugins            = "/usr/lib/cni"
)

// noCgroups are those of machines that have no process.
type noCgroups struct{}

func (noCgroups) There(context.Context, string) error                         { return nil }
func (noCgroups) Enter(context.Context, string, string, int) error            { return nil }
func (noCgroups) Limit(context.Context, string, string, spec.Resources) error { return nil }
func (noCgroups) Leave(context.Context, string, string) error                 { return nil }

// TestComings: pods come and go, four at once (as many as the environment says, or 8), through a whole runtime with the network process's namespaces, taps, DHCP and CNI's plugins, real disks, first-boot
// data, consoles and records; the machines alone are a fake's. Twice the runtime ends and another goes on. At the end there is what there was after the first pod: machines, links, mounts, files,
// leases, records, open files, goroutines.
func TestComings(t *testing.T) {
	if os.Getenv(insideEnv) == "" {
		inside(t)
		return
	}
	pods := 8
	if s := os.Getenv(comingsEnv); s != "" {
		var err error
		if pods, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	n := newWholeNode(t)
	n.begin()
	n.life(0) // makes what is kept: the bridge, folders, connections
	n.settle()
	before := n.inventory()
	box, vm := n.comes("seen")
	there := n.inventory()
	for _, what := range []string{"link veth", "mount " + n.path("netns"), "file " + n.path("ipam", "pods", "10."), "file " + n.path("state", "volumes", vm), "file " + n.path("state", "containers", vm), "1 machines, 1 pods, 1 containers"} {
		if strings.Count(there, what) <= strings.Count(before, what) {
			t.Errorf("a pod that is there has no %q:\n%s", what, there)
		}
	}
	n.goes("seen", box, vm, true)
	for half := range 2 {
		var all sync.WaitGroup
		room := make(chan struct{}, 4)
		for i := half * pods / 2; i < (half+1)*pods/2; i++ {
			room <- struct{}{}
			all.Go(func() {
				defer func() { <-room }()
				n.life(i + 1)
			})
		}
		all.Wait()
		n.end()
		n.begin()
	}
	n.life(pods + 1) // the new runtime's connections
	n.settle()
	if d := cmp.Diff(before, n.inventory()); d != "" {
		t.Errorf("%d pods left (-before +after):\n%s", pods, d)
	}
	t.Logf("%d pods came and went", pods)
}

// inside runs the calling test in namespaces of its own.
func inside(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: real networks need root")
	}
	for _, p := range []string{cniPlugins + "/bridge", cniPlugins + "/host-local", "/dev/net/tun"} {
		if _, err := os.Stat(p); err != nil {
			t.Skipf("NOT CHECKED: %v", err)
		}
	}
	for _, p := range []string{"ip", "qemu-img"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("NOT CHECKED: %v", err)
		}
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=10m")
	c.Env = append(os.Environ(), insideEnv+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	out, err := c.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skipf("NOT CHECKED: this root may not make network namespaces: %v", err)
	}
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// wholeNode is a node whose machines are a fake's.
type wholeNode struct {
	t      *testing.T
	dir    string
	host   *fake.Host
	image  string
	server *runtime.Server
	end    func()
}

func (n *wholeNode) path(elem ...string) string {
	return filepath.Join(append([]string{n.dir}, elem...)...)
}

func (n *wholeNode) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func newWholeNode(t *testing.T) *wholeNode {
	t.Helper()
	dir, err := os.MkdirTemp("", "node") // short: there are sockets below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &wholeNode{t: t, dir: dir, host: fake.NewHost(fake.Options{})}
	n.must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	n.must(exec.Command("ip", "link", "set", "lo", "up").Run())
	for _, d := range []string{"cni", "log", "state"} {
		n.must(os.Mkdir(n.path(d), 0o755))
	}
	conf := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge","bridge":"pods0","isGateway":true,"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.213.78.0/24"}]]}}]}`, n.path("ipam"))
	n.must(os.WriteFile(n.path("cni", "10-pods.conflist"), []byte(conf), 0o600))
	n.must(exec.Command("qemu-img", "create", "-q", "-f", "qcow2", n.path("disk.qcow2"), "16M").Run())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, n.path("disk.qcow2")) }))
	defer s.Close()
	images, err := image.Open(n.path("state", "images"), image.Options{AllowLoopbackURLs: true})
	n.must(err)
	got, err := images.Pull(t.Context(), image.Request{Name: s.URL + "/disk.qcow2"})
	n.must(errors.Join(err, images.Close()))
	n.image = string(got.ID)

	ctx, cancel := context.WithCancel(t.Context())
	ready, over := make(chan struct{}), make(chan error, 1)
	go func() {
		over <- network.Run(ctx, network.Config{
			Socket: n.path("net.sock"), StateDir: n.path("net"), NetnsDir: n.path("netns"), CNIBinDirs: []string{cniPlugins}, CNIConfDir: n.path("cni"), NetworksAreOurs: true,
			Ready: func() { close(ready) },
		}, logr.Discard())
	}()
	select {
	case <-ready:
	case err := <-over:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	return n
}

// begin starts a runtime, as Run makes one, without libvirt; end is to end it.
func (n *wholeNode) begin() {
	n.t.Helper()
	records, err := store.Open(n.path("state", "runtime.db"))
	n.must(err)
	images, err := image.Open(n.path("state", "images"), image.Options{})
	n.must(err)
	c := Config{StateDir: n.path("state"), RunDir: n.path("run"), UID: os.Getuid(), GID: os.Getgid()}
	volumes, err := c.volumes(nil)
	n.must(err)
	folders, err := runtime.OpenFolders(runtime.DiskFolders{Dir: n.path("state", "containers"), Sockets: n.path("run", "s"), UID: c.UID, GID: c.GID})
	n.must(err)
	client := n.host.Connect(nil)
	consoles := NewConsoles(nil, logr.Discard())
	machines := Machines{Of: client}
	n.server, err = runtime.New(n.t.Context(), runtime.Parts{
		Hypervisor: machines, Agent: machines, Networks: Networks{network.Client{Socket: n.path("net.sock")}}, Images: images, Volumes: volumes, Folders: folders, Consoles: consoles,
		States: suspend.Store{Key: make([]byte, 32)}, Cgroups: noCgroups{}, Host: runtime.Node{}, Records: Records{records}, Clock: time.Now, IDs: runtime.RandomID,
	}, runtime.Options{Domain: domain.Node{DomainType: "qemu", Emulator: "/wrap", QEMU: "/qemu"}}, logr.Discard())
	n.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- n.server.Run(ctx) }()
	n.end = func() {
		cancel()
		err := <-ran
		consoles.End()
		client.Close()
		n.must(errors.Join(err, images.Close(), records.Close()))
	}
	n.until("the hypervisor is there", func() bool { return !n.server.HypervisorAway() })
}

// until asks again and again until it is so.
func (n *wholeNode) until(what string, so func() bool) {
	n.t.Helper()
	over := time.NewTimer(patience)
	defer over.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !so() {
		select {
		case <-again.C:
		case <-over.C:
			n.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// life is a pod's, in which a machine runs; every fourth is ended by its pod's removal alone.
func (n *wholeNode) life(i int) {
	name := fmt.Sprint("pod-", i)
	box, vm := n.comes(name)
	n.goes(name, box, vm, i%4 > 0)
}

// fatal ends a goroutine of the test's where there is an error.
func (n *wholeNode) fatal(name string, err error) {
	n.t.Helper()
	if err != nil {
		n.t.Errorf("%s: %v", name, err)
		goruntime.Goexit()
	}
}

// comes makes a pod whose machine runs.
func (n *wholeNode) comes(name string) (box, vm string) {
	ctx := n.t.Context()
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "team", Uid: "uid-" + name}, Hostname: name, LogDirectory: n.path("log"), Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/pods"},
	}
	ran, err := n.server.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	n.fatal(name, err)
	made, err := n.server.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: ran.GetPodSandboxId(), SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}, Image: &runtimeapi.ImageSpec{Image: n.image}, LogPath: name + ".log",
	}})
	n.fatal(name, err)
	_, err = n.server.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()})
	n.fatal(name, err)
	return ran.GetPodSandboxId(), made.GetContainerId()
}

// goes ends a pod, its machine first or with it.
func (n *wholeNode) goes(name, box, vm string, first bool) {
	ctx := n.t.Context()
	if first {
		_, err := n.server.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: vm})
		n.fatal(name, err)
		_, err = n.server.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: vm})
		n.fatal(name, err)
	}
	_, err := n.server.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: box})
	n.fatal(name, err)
	_, err = n.server.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box})
	n.fatal(name, err)
	n.fatal(name, os.Remove(n.path("log", name+".log"))) // the kubelet's
}

// settle waits until what calls had begun is over: as many goroutines and open files as a moment before, twice.
func (n *wholeNode) settle() {
	n.t.Helper()
	was, same := "", 0
	n.until("nothing moves", func() bool {
		now := n.open()
		if now == was {
			same++
		} else {
			was, same = now, 0
		}
		return same > 40
	})
}

// open counts this process's goroutines and open files: all parts are in it.
func (n *wholeNode) open() string {
	files, err := os.ReadDir("/proc/self/fd")
	n.must(err)
	return fmt.Sprintf("%d goroutines, %d open files", goruntime.NumGoroutine(), len(files))
}

// inventory is all that pods could leave.
func (n *wholeNode) inventory() string {
	n.t.Helper()
	out := []string{n.open()}
	links, err := exec.Command("ip", "-o", "link").Output()
	n.must(err)
	for line := range strings.Lines(string(links)) {
		out = append(out, "link "+strings.Fields(line)[1])
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	n.must(err)
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], n.dir) {
			out = append(out, "mount "+f[4])
		}
	}
	n.must(filepath.WalkDir(n.dir, func(path string, _ fs.DirEntry, err error) error {
		if !strings.Contains(path, "last_reserved_ip") && !strings.HasSuffix(path, ".lock") {
			out = append(out, "file "+path)
		}
		return err
	}))
	client := n.host.Connect(nil)
	machines, err := client.List(n.t.Context())
	client.Close()
	n.must(err)
	boxes, containers := n.server.Recorded()
	out = append(out, fmt.Sprintf("%d machines, %d pods, %d containers", len(machines), len(boxes), len(containers)))
	slices.Sort(out)
	return strings.Join(out, "\n")
}

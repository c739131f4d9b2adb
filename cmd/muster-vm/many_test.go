package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// comingsEnv is how many pods come and go in TestMany.
const comingsEnv = "MUSTER_TEST_VM_PODS"

// page asks a guest's web server from the node's network. "" while it does not answer. It is asked by this process: Debian's static busybox, which looks hosts up by a library that it does not
// have, ends by a signal.
func (n *realNode) page(ip string) string {
	ctx, cancel := context.WithTimeout(n.t.Context(), 10*time.Second)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return n.dial(ctx, network, address)
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ip+"/", nil)
	if err != nil {
		n.t.Fatal(err)
	}
	r, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	text, err := io.ReadAll(io.LimitReader(r.Body, 4096))
	if err != nil || r.StatusCode != http.StatusOK {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(string(text)))
}

// dial connects from the node's network.
func (n *realNode) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread is of the other network, and ends with this goroutine
		var f *os.File
		if f, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", n.stage)); err != nil {
			return
		}
		defer f.Close()
		if err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err == nil {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
		}
	}()
	<-done
	return c, err
}

// address is a pod's.
func (n *realNode) address(ctx context.Context, m mortal) string {
	n.t.Helper()
	st, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: m.box})
	ip := st.GetStatus().GetNetwork().GetIp()
	if err != nil || ip == "" {
		n.t.Fatalf("%s has the address %q: %v", m.name, ip, err)
	}
	return ip
}

// open counts the open files of the node's processes.
func (n *realNode) open() map[string]int {
	n.t.Helper()
	out := map[string]int{}
	for _, name := range []string{"net", "runtime", "proxy"} {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.process("\x00"+name+"\x00")))
		if err != nil {
			n.t.Fatal(err)
		}
		out[name] = len(entries)
	}
	return out
}

// mortal is a pod of TestMany.
type mortal struct{ name, box, vm string }

// comes makes a pod whose machine starts. Unlike pod it can be called beside others of its kind.
func (n *realNode) comes(ctx context.Context, name, img string) (mortal, error) {
	m := mortal{name: name}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "team", Uid: "uid-" + name}, Hostname: name, LogDirectory: n.path("log"),
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: n.cgroup},
	}
	box, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return m, err
	}
	m.box = box.GetPodSandboxId()
	made, err := n.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: m.box, SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}, Image: &runtimeapi.ImageSpec{Image: img}, LogPath: name + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 128 << 20}},
	}})
	if err != nil {
		return m, err
	}
	m.vm = made.GetContainerId()
	_, err = n.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: m.vm})
	return m, err
}

// goes ends a pod at once.
func (n *realNode) goes(ctx context.Context, m mortal) error {
	_, err := n.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: m.vm})
	_, stopped := n.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: m.box})
	_, removed := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: m.box})
	return errors.Join(err, stopped, removed)
}

// TestMany: ten pods boot on QEMU at once, and each guest serves a page with the UUID of its own machine at its own pod's address. They go, and as many pods as the environment says (8) come and go after them, four at a time, their
// machines in the midst of their boot. Nothing is left: no machine, network, lease, file, control group, and no more open files than before.
func TestMany(t *testing.T) {
	comings := 8
	if s := os.Getenv(comingsEnv); s != "" {
		var err error
		if comings, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	n, img := newRealNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*lot)
	defer cancel()
	// each does something for each of so many, at most so many at once.
	each := func(many, atOnce int, do func(int) error) {
		t.Helper()
		var all sync.WaitGroup
		room := make(chan struct{}, atOnce)
		for i := range many {
			room <- struct{}{}
			all.Go(func() {
				defer func() { <-room }()
				if err := do(i); err != nil {
					t.Errorf("pod %d: %v", i, err)
				}
			})
		}
		all.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	// The first makes what is kept: plugins' files, connections.
	one, err := n.comes(ctx, "first", img)
	if err := errors.Join(err, n.goes(ctx, one)); err != nil {
		t.Fatal(err)
	}
	before := n.open()

	const ten = 10
	began := time.Now()
	pods := make([]mortal, ten)
	each(ten, ten, func(i int) (err error) {
		pods[i], err = n.comes(ctx, fmt.Sprint("ten-", i), img)
		return err
	})
	t.Cleanup(func() { // a machine outlives its node: of a test that failed none may
		last, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, m := range pods {
			if t.Failed() {
				text, _ := os.ReadFile(n.path("log", m.name+".log"))
				t.Logf("%s, gone: %v, said %s", m.name, n.goes(last, m), text)
			}
		}
	})
	t.Logf("ten have started after %v", time.Since(began))
	seen := map[string]bool{}
	for _, m := range pods {
		ip := n.address(ctx, m)
		if seen[ip] {
			t.Errorf("%s has the address of another, %s", m.name, ip)
		}
		seen[ip] = true
		var page string
		n.within(2*lot, "the page of "+m.name, func() bool { page = n.page(ip); return page != "" }) // ten boot on the same processors
		if want := domain.UUID(m.vm, &spec.Spec{}); page != want {
			t.Errorf("%s, at %s, is the machine %q, want %q", m.name, ip, page, want)
		}
	}
	t.Logf("ten have answered after %v", time.Since(began))
	each(ten, ten, func(i int) error { return n.goes(ctx, pods[i]) })

	began = time.Now()
	each(comings, 4, func(i int) error {
		m, err := n.comes(ctx, fmt.Sprint("coming-", i), img)
		if err != nil {
			return err
		}
		return n.goes(ctx, m)
	})
	t.Logf("%d came and went in %v", comings, time.Since(began))
	// A connection that a call had may be closed a moment later.
	var after map[string]int
	n.until("no more open files than before", func() bool {
		after = n.open()
		for name, many := range after { // order: three processes
			if many > before[name]+2 { // a connection for the asking, and one that is being made
				return false
			}
		}
		return true
	})
	t.Logf("open files: %v before, %v after", before, after)
	n.nothingLeft(ctx)
}

package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// kill ends a process of the node as SIGKILL does, and waits until there is another.
func (n *realNode) kill(name string) {
	n.t.Helper()
	find := func() int { return n.process("\x00" + name + "\x00") }
	if name == "libvirtd" {
		find = func() int {
			text, _ := os.ReadFile(n.path("libvirtd.pid"))
			pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
			if program, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe"); pid <= 1 || err != nil || filepath.Base(program) != "libvirtd" {
				return 0
			}
			return pid
		}
	}
	var was int
	n.until(name+" is there", func() bool { was = find(); return was != 0 })
	if err := syscall.Kill(was, syscall.SIGKILL); err != nil {
		n.t.Fatalf("%s, process %d: %v", name, was, err)
	}
	n.until("another "+name, func() bool { p := find(); return p != 0 && p != was })
}

// again makes a call as a kubelet does: until it succeeds.
func again[Q, R any](n *realNode, what string, call func(context.Context, *Q, ...grpc.CallOption) (*R, error), q *Q) (out *R) {
	n.t.Helper()
	said := false
	n.until(what, func() bool {
		ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
		defer cancel()
		var err error
		if out, err = call(ctx, q); err != nil && !said {
			n.t.Logf("%s: %v, and so on", what, err)
			said = true
		}
		return err == nil
	})
	return out
}

// TestKillsReal: at eight points of a pod's life with a real machine, a process of the node dies by SIGKILL: the network's, the runtime's, the proxy, libvirtd; also while the machine starts and while it is told to end. Every call that
// is repeated succeeds, a machine that runs runs on as the same process, what it says is in its log once, and nothing is left.
func TestKillsReal(t *testing.T) {
	n, img := newRealNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), lot)
	defer cancel()
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "cat", Namespace: "team", Uid: "uid-cat"}, Hostname: "cat", LogDirectory: n.path("log"),
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: n.cgroup},
	}
	n.kill("net") // 1: before anything
	box := again(n, "run", n.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler}).GetPodSandboxId()
	n.kill("net") // 2: with a network
	vm := again(n, "create", n.CreateContainer,
		&runtimeapi.CreateContainerRequest{PodSandboxId: box, SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}, Image: &runtimeapi.ImageSpec{Image: img}, LogPath: "cat.log",
			Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 128 << 20}},
		}}).GetContainerId()
	n.kill("runtime") // 3: with disks and first-boot data
	start := &runtimeapi.StartContainerRequest{ContainerId: vm}
	started := make(chan error, 1)
	go func() {
		again := time.NewTicker(100 * time.Millisecond)
		defer again.Stop()
		for { // the runtime may not be back
			_, err := n.StartContainer(ctx, start)
			if err == nil || n.process("-uuid") != 0 {
				started <- err
				return
			}
			select {
			case <-again.C:
			case <-ctx.Done():
				started <- ctx.Err()
				return
			}
		}
	}()
	n.until("QEMU", func() bool { return n.process("-uuid") != 0 })
	n.kill("libvirtd") // 4: while the machine starts
	t.Logf("the start that libvirtd died under: %v", <-started)
	again(n, "start", n.StartContainer, start)
	n.until("it is up", n.says("cat", "tiny: up"))
	machine := n.process("-uuid")
	for _, name := range []string{"libvirtd", "proxy", "runtime"} { // 5, 6, 7: while it runs
		n.kill(name)
		out := again(n, "exec after the end of "+name, n.ExecSync,
			&runtimeapi.ExecSyncRequest{ContainerId: vm, Cmd: []string{"ping", "-c", "1", "10.213.77.1"}, Timeout: 60})
		if p := n.process("-uuid"); out.GetExitCode() != 0 || p != machine || p == 0 {
			t.Errorf("after the end of %s: the machine was process %d and is %d; %v", name, machine, p, out)
		}
	}
	stop := &runtimeapi.StopContainerRequest{ContainerId: vm, Timeout: int64(lot / time.Second)}
	stopped := make(chan error, 1)
	go func() {
		_, err := n.StopContainer(ctx, stop)
		stopped <- err
	}()
	n.kill("runtime") // 8: while it is told to end
	t.Logf("the stop that the runtime died under: %v", <-stopped)
	again(n, "stop", n.StopContainer, stop)
	n.until("its end", func() bool { return n.status(vm).GetState() == runtimeapi.ContainerState_CONTAINER_EXITED })
	if s := n.status(vm); s.GetExitCode() != 0 && s.GetReason() != "Lost" {
		t.Errorf("after the power button: %v", s)
	}
	if log, err := os.ReadFile(n.path("log", "cat.log")); err != nil || strings.Count(string(log), "tiny: up") != 1 {
		t.Errorf("%v: %s", err, log)
	}
	again(n, "stop the pod", n.StopPodSandbox,
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: box})
	again(n, "remove the pod", n.RemovePodSandbox,
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: box})
	n.nothingLeft(ctx)
}

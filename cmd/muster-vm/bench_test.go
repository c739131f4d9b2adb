package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// reach is how long each step of a machine's life may take, on two idle cores without KVM, with the image of make vm-image and 128 MiB.
var reach = []struct {
	step string
	most time.Duration
}{
	{"RunPodSandbox", time.Second},
	{"StartContainer", 8 * time.Second},
	{"page", 30 * time.Second},
	{"ExecSync", 500 * time.Millisecond},
	{"suspend", 15 * time.Second},
	{"resume", 15 * time.Second},
}

// BenchmarkMachine is a machine's life on a real libvirtd and QEMU, once each time: its sandbox, its start, its page over HTTP, which names its domain's UUID, from the pod's beginning on, a command by the guest agent
// once it is up, its suspension, and its resumption from the next pod's beginning until a command is answered in the same boot. It shows the slowest of each, and fails where one takes longer than its reach.
func BenchmarkMachine(b *testing.B) {
	n, img := newRealNode(b)
	if err := os.Mkdir(n.path("claim"), 0o700); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), 10*lot)
	defer cancel()
	slowest := map[string]time.Duration{}
	took := func(step string, since time.Time) { slowest[step] = max(slowest[step], time.Since(since)) }
	exec := func(vm string) string {
		out, err := n.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: vm, Cmd: []string{"cat", "/proc/sys/kernel/random/boot_id"}, Timeout: 60})
		if err != nil || out.GetExitCode() != 0 {
			b.Fatal(out, err)
		}
		return string(out.GetStdout())
	}
	begin := func(name string) mortal {
		m := mortal{name: name}
		config := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "team", Uid: "uid-" + name}, Hostname: name, LogDirectory: n.path("log"),
			Annotations: map[string]string{spec.OwnOnStop: "suspend", spec.OwnSuspendTo: "/claim", spec.OwnOwner: "job"}, Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: n.cgroup},
		}
		at := time.Now()
		box, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
		if err != nil {
			b.Fatal(err)
		}
		took("RunPodSandbox", at)
		m.box = box.GetPodSandboxId()
		made, err := n.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: m.box, SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}, Image: &runtimeapi.ImageSpec{Image: img}, LogPath: name + ".log",
			Mounts: []*runtimeapi.Mount{{ContainerPath: "/claim", HostPath: n.path("claim")}},
			Linux:  &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 128 << 20}},
		}})
		if err != nil {
			b.Fatal(err)
		}
		m.vm = made.GetContainerId()
		return m
	}
	start := func(m mortal) {
		if _, err := n.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: m.vm}); err != nil {
			b.Fatal(err)
		}
	}
	i := 0
	for b.Loop() {
		i++
		began := time.Now()
		first := begin(fmt.Sprint("first-", i))
		at := time.Now()
		start(first)
		took("StartContainer", at)
		ip := n.address(ctx, first)
		var page string
		n.until("the page", func() bool { page = n.page(ip); return page != "" })
		took("page", began)
		if want := domain.UUID(first.vm, &spec.Spec{}); page != want {
			b.Errorf("the page is %q, want %q", page, want)
		}
		exec(first.vm) // the agent is there
		at = time.Now()
		boot := exec(first.vm)
		took("ExecSync", at)
		at = time.Now()
		if _, err := n.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: first.vm, Timeout: 60}); err != nil {
			b.Fatal(err)
		}
		took("suspend", at)
		if s := n.status(first.vm); s.GetReason() != "Suspended" {
			b.Fatalf("after a stop with grace: %v", s)
		}
		if err := n.goes(ctx, first); err != nil {
			b.Fatal(err)
		}
		at = time.Now()
		second := begin(fmt.Sprint("second-", i))
		start(second)
		again := exec(second.vm)
		took("resume", at)
		if again != boot {
			b.Errorf("the boot is %q, and was %q", again, boot)
		}
		if err := n.goes(ctx, second); err != nil { // at once: it is not suspended
			b.Fatal(err)
		}
	}
	for _, r := range reach {
		b.ReportMetric(slowest[r.step].Seconds(), "s-"+r.step)
		if slowest[r.step] > r.most {
			b.Errorf("%s took %v: may be %v", r.step, slowest[r.step], r.most)
		}
	}
	n.nothingLeft(ctx)
}

package runtime

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm/domain"
)

// fixture is a node with a runtime on it.
type fixture struct {
	t    testing.TB
	w    *fakeNode
	hand *hand
	*Server
	end func()
}

// open starts a runtime, as a node does. die and after say when it dies: see hand.
func open(t testing.TB, w *fakeNode, die int, after bool) *fixture {
	ctx, cancel := context.WithCancel(context.Background())
	h := &hand{w: w, ctx: ctx, die: die, after: after}
	s, err := New(ctx, h.parts(time.Now), testOptions(), logr.Discard())
	if err != nil {
		cancel()
		t.Fatalf("start: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx)
	}()
	synctest.Wait()
	return &fixture{t: t, w: w, hand: h, Server: s, end: func() { cancel(); <-done }}
}

// kill ends a process as SIGKILL does: what it was at work on stops where it is, and its consoles are gone.
func (h *fixture) kill() {
	h.w.mu.Lock()
	h.hand.dead = true
	h.w.mu.Unlock()
	h.end()
	h.w.mu.Lock()
	h.w.logs = map[string]bool{}
	h.w.mu.Unlock()
}

// call makes a call as gRPC does.
func call[Q, R any](h *fixture, method func(context.Context, *Q) (*R, error), q *Q) (*R, error) {
	return callIn(context.Background(), h, method, q)
}

func callIn[Q, R any](ctx context.Context, h *fixture, method func(context.Context, *Q) (*R, error), q *Q) (*R, error) {
	r, err := h.unary(ctx, q, &grpc.UnaryServerInfo{FullMethod: "test"}, func(ctx context.Context, q any) (any, error) { return method(ctx, q.(*Q)) })
	out, _ := r.(*R)
	return out, err
}

func podConfig(name string, annotations map[string]string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "team", Uid: "uid-" + name}, Annotations: annotations, LogDirectory: "/var/log/pods/" + name,
		Hostname: name, Labels: map[string]string{"app": name}, Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kubepods/" + name},
	}
}

func containerConfig(name, image string, attempt uint32) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt}, Image: &runtimeapi.ImageSpec{Image: image}, LogPath: name + "/0.log",
		Command: []string{"login", "hunter2"}, Envs: []*runtimeapi.KeyValue{{Key: "PASSWORD", Value: []byte("hunter2")}},
		Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 256 << 20, CpuShares: 1024}},
	}
}

func testOptions() Options {
	return Options{Domain: domain.Node{DomainType: "qemu", Emulator: "/bin/muster-vm-wrap", QEMU: "/bin/qemu"}}
}

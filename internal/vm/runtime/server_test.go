package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/muster-scheduler/muster/internal/vm"
)

// TestOnePodsSlownessIsItsOwn: while a volume of one pod stands still, another pod lives its whole life, and lists are answered.
func TestOnePodsSlownessIsItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := open(t, newFakeNode(), 0, false)
		slow, err := call(h, h.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: podConfig("slow", nil)})
		if err != nil {
			t.Fatal(err)
		}
		stuck := make(chan struct{})
		h.w.mu.Lock()
		h.w.stuck["volumes setup"] = stuck
		h.w.mu.Unlock()
		done := make(chan error)
		go func() {
			_, err := call(h, h.CreateContainer, &runtimeapi.CreateContainerRequest{PodSandboxId: slow.GetPodSandboxId(), Config: containerConfig("app", "tiny", 0)})
			done <- err
		}()
		synctest.Wait()
		h.w.mu.Lock()
		delete(h.w.stuck, "volumes setup")
		h.w.mu.Unlock()
		for _, st := range newStory().steps {
			if err := st.do(h); err != nil {
				t.Errorf("%s: %v", st.name, err)
			}
			synctest.Wait()
		}
		if r, err := call(h, h.ListPodSandbox, &runtimeapi.ListPodSandboxRequest{}); err != nil || len(r.GetItems()) != 1 {
			t.Errorf("list: %v, %v", r, err)
		}
		// Its own pod waits, for as long as its caller does.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := callIn(ctx, h, h.StopPodSandbox, &runtimeapi.StopPodSandboxRequest{PodSandboxId: slow.GetPodSandboxId()}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("stop of the slow pod: %v", err)
		}
		close(stuck)
		if err := <-done; err != nil {
			t.Error(err)
		}
		h.end()
	})
}

// TestPatience: a part that does not answer is Unavailable after a while, and what was begun is taken back.
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := open(t, newFakeNode(), 0, false)
		h.w.stuck["network add"] = make(chan struct{})
		begin := time.Now()
		_, err := call(h, h.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: podConfig("web", nil)})
		if status.Code(err) != codes.Unavailable || time.Since(begin) != time.Minute {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if left := h.w.left(); left != "true" {
			t.Error(left)
		}
		h.end()
	})
}

// TestEvents: who listens is told what happens, with all that there is to say; who does not read is let go.
func TestEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := open(t, newFakeNode(), 0, false)
		ctx, cancel := context.WithCancel(context.Background())
		got := &eventStream{ctx: ctx}
		done := make(chan error)
		go func() { done <- h.GetContainerEvents(nil, got) }()
		synctest.Wait()
		lazy, err := h.hub.join()
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range newStory().steps {
			if err := st.do(h); err != nil {
				t.Errorf("%s: %v", st.name, err)
			}
			synctest.Wait()
		}
		var said []string
		for _, e := range got.events {
			said = append(said, strings.TrimSuffix(strings.TrimPrefix(e.GetContainerEventType().String(), "CONTAINER_"), "_EVENT")+" "+e.GetContainerId()+
				fmt.Sprintf(" of %d", len(e.GetContainersStatuses())))
		}
		want := []string{
			"CREATED id2 of 1", "STARTED id2 of 1", "STOPPED id2 of 1", "CREATED id3 of 2", "STARTED id3 of 2", "STOPPED id3 of 2", "DELETED id2 of 1",
			"CREATED id4 of 2", "STARTED id4 of 2", "STOPPED id4 of 2", "DELETED id3 of 1", "DELETED id4 of 0",
		}
		if !slices.Equal(said, want) {
			t.Errorf("events %q\nwant %q", said, want)
		}
		for range backlog + 1 {
			h.hub.tell(&runtimeapi.ContainerEventResponse{})
		}
		n := 0
		for range lazy {
			n++
		}
		if n != backlog {
			t.Errorf("who did not read got %d events before it was let go", n)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		h.end()
	})
}

type eventStream struct {
	grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]
	ctx    context.Context
	events []*runtimeapi.ContainerEventResponse
}

func (s *eventStream) Context() context.Context { return s.ctx }
func (s *eventStream) Send(e *runtimeapi.ContainerEventResponse) error {
	s.events = append(s.events, e)
	return nil
}

// TestDefect: what one request brings out ends that request.
func TestDefect(t *testing.T) {
	t.Parallel()
	s := &Server{log: logr.Discard()}
	_, err := s.unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/x"}, func(context.Context, any) (any, error) { panic("no") })
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "a defect in /x") {
		t.Error(err)
	}
	err = s.stream(nil, nil, &grpc.StreamServerInfo{FullMethod: "/x"}, func(any, grpc.ServerStream) error { panic("no") })
	if status.Code(err) != codes.Internal {
		t.Error(err)
	}
}

// TestRandomID: ids are 64 hexadecimal digits, and no two the same.
func TestRandomID(t *testing.T) {
	t.Parallel()
	a, b := RandomID(), RandomID()
	if len(a) != 64 || a == b || strings.Trim(a+b, "0123456789abcdef") != "" {
		t.Error(a, b)
	}
}

// TestAnswer: every kind of error has its code.
func TestAnswer(t *testing.T) {
	t.Parallel()
	for want, err := range map[codes.Code]error{
		codes.OK: nil, codes.InvalidArgument: vm.Errorf(vm.Invalid, "x"), codes.NotFound: fmt.Errorf("around: %w", vm.Errorf(vm.NotFound, "x")),
		codes.FailedPrecondition: vm.Errorf(vm.Conflict, "x"), codes.Unavailable: vm.Errorf(vm.Unavailable, "x: %w", context.DeadlineExceeded),
		codes.ResourceExhausted: vm.Errorf(vm.Exhausted, "x"), codes.Internal: errors.New("x"), codes.DeadlineExceeded: fmt.Errorf("x: %w", context.DeadlineExceeded),
		codes.Canceled: context.Canceled, codes.Unimplemented: status.Error(codes.Unimplemented, "x"),
	} {
		if got := status.Code(answer(err)); got != want {
			t.Errorf("%v has the code %v, want %v", err, got, want)
		}
	}
}

// FuzzExitCode: whatever a guest writes, it gets a code from 0 to 255, and only a number is its own.
func FuzzExitCode(f *testing.F) {
	for _, text := range []string{"", "0\n", "42", " 7 \r\n8\n", "256\n", "-1\n", "+1\n", "0x10\n", "\n3\n", "\xff\n", "99999999999999999999"} {
		f.Add([]byte(text), uint8(0))
	}
	f.Fuzz(func(t *testing.T, text []byte, why uint8) {
		code, reason, message := verdict(text, Why(why%4))
		if code < 0 || code > 255 || reason == "" || len(message) > 5*len(text)+200 {
			t.Errorf("%q: %d %q %q", text, code, reason, message)
		}
		if n, ok := exitCode(text); ok {
			line, _, _ := strings.Cut(string(text), "\n")
			line = strings.TrimLeft(strings.Trim(line, " \t\r"), "0")
			if line != strings.TrimLeft(fmt.Sprint(n), "0") {
				t.Errorf("%q was read as %d", text, n)
			}
		}
	})
}

// TestEveryCall: over a real socket, every call of both services is answered, and only what is said to be is Unimplemented.
func TestEveryCall(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	h := &hand{w: newFakeNode(), ctx: ctx}
	opt := testOptions()
	opt.Streams = Streaming("127.0.0.1:0")
	s, err := New(ctx, h.parts(time.Now), opt, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	calls := 0
	for _, client := range []any{runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)} {
		v := reflect.ValueOf(client)
		for i := range v.NumMethod() {
			m, name := v.Method(i), v.Type().Method(i).Name
			short, done := context.WithTimeout(ctx, 20*time.Second)
			if name == "GetContainerEvents" {
				short, done = context.WithTimeout(ctx, 100*time.Millisecond)
			}
			out := m.Call([]reflect.Value{reflect.ValueOf(short), reflect.New(m.Type().In(1).Elem())})
			err, _ := out[1].Interface().(error)
			if recv := out[0].MethodByName("Recv"); err == nil && recv.IsValid() {
				err, _ = recv.Call(nil)[1].Interface().(error)
			}
			done()
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if unimplemented := status.Code(err) == codes.Unimplemented; unimplemented != slices.Contains([]string{"CheckpointContainer", "CheckpointPod", "RestorePod"}, name) || status.Code(err) == codes.Internal {
				t.Errorf("%s: %v", name, err)
			}
			calls++
		}
	}
	all := 0
	for _, d := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		all += len(d.Methods) + len(d.Streams)
	}
	if calls != all {
		t.Errorf("%d calls of %d", calls, all)
	}
}

// TestStreams: what a client of the streaming server comes to: a command's output and code, the console, a port of the guest.
func TestStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := open(t, newFakeNode(), 0, false)
		s := newStory()
		for _, st := range s.steps[:3] {
			if err := st.do(h); err != nil {
				t.Fatal(err)
			}
		}
		x := streamer{h.Server}
		var out, errs buffer
		if err := x.Exec(t.Context(), s.init, []string{"hostname"}, nil, &out, &errs, false, nil); err != nil || out.String() != "hostname\n" {
			t.Errorf("exec: %q, %v", out.String(), err)
		}
		out.Reset()
		if err := x.Exec(t.Context(), s.init, []string{"cat"}, strings.NewReader("typed\n"), &out, &errs, false, nil); err != nil || out.String() != "cat\ntyped\n" {
			t.Errorf("exec with input: %q, %v", out.String(), err)
		}
		if err := x.Exec(t.Context(), s.init, []string{"cat"}, strings.NewReader(strings.Repeat("x", maxInput+1)), &out, &errs, false, nil); vm.KindOf(err) != vm.Invalid {
			t.Errorf("exec with too much input: %v", err)
		}
		silent, typing := io.Pipe()
		short, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		if err := x.Exec(short, s.init, []string{"cat"}, silent, &out, &errs, false, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("exec of somebody who left: %v", err)
		}
		_ = typing.Close()
		var code interface{ ExitStatus() int }
		if err := x.Exec(t.Context(), s.init, []string{"false"}, nil, &out, &errs, false, nil); !errors.As(err, &code) || code.ExitStatus() != 1 {
			t.Errorf("exec of false: %v", err)
		}
		out.Reset()
		if err := x.Attach(t.Context(), s.init, nil, &out, nil, true, nil); err != nil || out.String() != "login: " {
			t.Errorf("attach to look: %q, %v", out.String(), err)
		}
		// Only a container that asks for input has any: who may attach to look may not type as root.
		out.Reset()
		if err := x.Attach(t.Context(), s.init, strings.NewReader("root\n"), &out, nil, true, nil); vm.KindOf(err) != vm.Invalid || out.Len() > 0 {
			t.Errorf("attach with input to a container without stdin: %q, %v", out.String(), err)
		}
		if _, err := call(h, h.Attach, &runtimeapi.AttachRequest{ContainerId: s.init, Stdin: true, Stdout: true}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "stdin") {
			t.Errorf("a request for that: %v", err)
		}
		out.Reset()
		typed := containerConfig("typed", "tiny", 0)
		typed.Stdin = true
		if r, err := call(h, h.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: podConfig("typed", nil)}); err != nil {
			t.Fatal(err)
		} else if c, err := call(h, h.CreateContainer, &runtimeapi.CreateContainerRequest{PodSandboxId: r.GetPodSandboxId(), Config: typed}); err != nil {
			t.Fatal(err)
		} else if _, err := call(h, h.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()}); err != nil {
			t.Fatal(err)
		} else if err := x.Attach(t.Context(), c.GetContainerId(), strings.NewReader("root\n"), &out, nil, true, nil); err != nil || out.String() != "login: root\n" {
			t.Errorf("attach: %q, %v", out.String(), err)
		}
		a, b := net.Pipe()
		done := make(chan error)
		go func() { done <- x.PortForward(t.Context(), s.pod, 80, b) }()
		_, _ = a.Write([]byte("hello"))
		text := make([]byte, 64)
		n, _ := a.Read(text)
		if got := string(text[:n]); got != "10.0.0.2:80 says hello" {
			t.Errorf("port-forward: %q", got)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = b.Close()
		if err := x.PortForward(t.Context(), s.pod, 70000, b); vm.KindOf(err) != vm.Invalid {
			t.Error(err)
		}
		if _, err := call(h, h.Exec, &runtimeapi.ExecRequest{ContainerId: s.init, Tty: true}); status.Code(err) != codes.InvalidArgument {
			t.Error(err)
		}
		sizes := make(chan remotecommand.TerminalSize, 2)
		sizes <- remotecommand.TerminalSize{Width: 100, Height: 30}
		out.Reset()
		err := x.Exec(t.Context(), s.init, []string{"sh"}, strings.NewReader("exit 3"), &out, nil, true, sizes)
		if code, ok := err.(ExitError); !ok || code.Code != 3 || out.String() != "[sh] on 100x30: exit 3" { //nolint:errorlint // the streaming server looks at it so
			t.Errorf("a terminal: %q, %v", out.String(), err)
		}
		h.end()
	})
}

// TestMerged: an update changes what it names, and leaves the rest.
func TestMerged(t *testing.T) {
	t.Parallel()
	was := &runtimeapi.LinuxContainerResources{
		CpuShares: 512, CpusetCpus: "0", OomScoreAdj: 900, MemoryLimitInBytes: 1 << 30, MemorySwapLimitInBytes: 1 << 30, Unified: map[string]string{"memory.min": "1", "memory.oom.group": "1"},
	}
	got := merged(was, &runtimeapi.LinuxContainerResources{CpuShares: 1024, MemorySwapLimitInBytes: 2 << 30, Unified: map[string]string{"memory.min": "2"}})
	want := &runtimeapi.LinuxContainerResources{
		CpuShares: 1024, CpusetCpus: "0", OomScoreAdj: 900, MemoryLimitInBytes: 1 << 30, MemorySwapLimitInBytes: 2 << 30, Unified: map[string]string{"memory.min": "2", "memory.oom.group": "1"},
	}
	if !proto.Equal(got, want) || was.Unified["memory.min"] != "1" {
		t.Errorf("%v, want %v; it was %v", got, want, was)
	}
}

type buffer struct{ bytes.Buffer }

func (*buffer) Close() error { return nil }

var _ streaming.Runtime = streamer{}

// full is a node with n machines that run.
func full(t testing.TB, n int) (*fixture, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	w := newFakeNode()
	h := &hand{w: w, ctx: ctx}
	s, err := New(ctx, h.parts(time.Now), testOptions(), logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	out := &fixture{t: t, w: w, hand: h, Server: s}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	for i := range n {
		b, err := call(out, s.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: podConfig(fmt.Sprint("pod-", i), nil)})
		if err != nil {
			t.Fatal(err)
		}
		c, err := call(out, s.CreateContainer, &runtimeapi.CreateContainerRequest{PodSandboxId: b.GetPodSandboxId(), Config: containerConfig("app", "tiny", 0)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := call(out, s.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()}); err != nil {
			t.Fatal(err)
		}
	}
	return out, func() { cancel(); <-done }
}

// What 500 machines may cost on two idle cores: all lists of a kubelet's with statistics, the reconciliation of a process that starts, and this process's memory (with all that is fake).
const (
	most500List      = 50 * time.Millisecond
	most500Reconcile = 3 * time.Second
	most500MiB       = 80
)

// BenchmarkList500 lists 500 machines with their statistics, as a kubelet does; heap-MiB is what the process then has.
func BenchmarkList500(b *testing.B) {
	h, end := full(b, 500)
	defer end()
	for b.Loop() {
		pods, err := call(h, h.ListPodSandbox, &runtimeapi.ListPodSandboxRequest{})
		if err != nil || len(pods.GetItems()) != 500 {
			b.Fatal(err)
		}
		cs, err := call(h, h.ListContainers, &runtimeapi.ListContainersRequest{})
		if err != nil || len(cs.GetContainers()) != 500 {
			b.Fatal(err)
		}
		st, err := call(h, h.ListContainerStats, &runtimeapi.ListContainerStatsRequest{})
		if err != nil || len(st.GetStats()) != 500 {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	heap := float64(m.HeapAlloc) / (1 << 20)
	b.ReportMetric(heap, "heap-MiB")
	if one := b.Elapsed() / time.Duration(b.N); one > most500List || heap > most500MiB {
		b.Errorf("lists with statistics in %v, with %.0f MiB: may be %v and %d MiB", one, heap, most500List, most500MiB)
	}
}

// BenchmarkReconcile500 starts a process on a node with 500 machines and reconciles it.
func BenchmarkReconcile500(b *testing.B) {
	h, end := full(b, 500)
	defer end()
	for b.Loop() {
		ctx, cancel := context.WithCancel(context.Background())
		s, err := New(ctx, h.hand.parts(time.Now), testOptions(), logr.Discard())
		if err != nil {
			b.Fatal(err)
		}
		if err := s.mend(ctx); err != nil {
			b.Fatal(err)
		}
		cancel()
	}
	if one := b.Elapsed() / time.Duration(b.N); one > most500Reconcile {
		b.Errorf("a process starts in %v: may be %v", one, most500Reconcile)
	}
}

package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestMain lets the test's binary be a proxy of its own, which can be killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("MUSTER_TEST_PROXY"); dir != "" {
		fmt.Println("ready")
		err := Run(context.Background(), processConfig(dir), logr.Discard())
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func processConfig(dir string) Config {
	return Config{
		Listen: dir + "/cri", Primary: dir + "/primary", State: dir + "/state", ListTimeout: 2 * time.Second, StatusEvery: -1,
		Backends: []Backend{{Name: "vm", Socket: dir + "/vm", Handlers: []string{"muster-vm"}, ImagePrefixes: []string{"muster-vm/"}}},
	}
}

// TestKilled kills a proxy's process while pods are made, and its backend with it, and looks whether a new proxy still lists every pod whose
// id somebody was told.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	primary, vm := newFake(t, "primary", dir+"/primary"), newFake(t, "vm", dir+"/vm")
	primary.up()
	vm.up()
	told := map[string]bool{}
	for round := range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "MUSTER_TEST_PROXY="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		conn := dialKubelet(t, dir+"/cri")
		client := cri.NewRuntimeServiceClient(conn)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		// Four make pods until the process is gone, which is after some number of them.
		var mu sync.Mutex
		var kill sync.Once
		var makers sync.WaitGroup
		made := 0
		for i := range 4 {
			makers.Go(func() {
				for n := 0; ; n++ {
					r, err := client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{RuntimeHandler: "muster-vm", Config: sandboxConfig(fmt.Sprintf("p%d-%d-%d", round, i, n), nil)}, grpc.WaitForReady(n == 0))
					if err != nil {
						return
					}
					mu.Lock()
					told[r.PodSandboxId] = true
					made++
					last := made > 10+7*round
					mu.Unlock()
					if last {
						kill.Do(func() { _ = cmd.Process.Kill() })
					}
				}
			})
		}
		makers.Wait()
		cancel()
		_ = conn.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if len(told) < 50 {
		t.Fatalf("only %d pods were made", len(told))
	}
	vm.down()
	conn := startProxy2(t, processConfig(dir), primaryName)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	got, err := cri.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range got.Items {
		delete(told, s.Id)
	}
	if len(told) > 0 {
		t.Errorf("pods that were told are not listed: %v", told)
	}
	if _, err := cri.NewRuntimeServiceClient(conn).PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: got.Items[0].Id}); status.Code(err) != codes.Unavailable {
		t.Errorf("status of a pod of the dead backend: %v", err)
	}
}

// TestUnderWay restarts runtimes while lists, pods and images are asked for, and looks whether any list ever lacked a pod that was there all
// the time.
func TestUnderWay(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, f := range h.runtimes {
		f.up()
	}
	if err := h.start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	want := map[string]bool{}
	for _, handler := range []string{"", "muster-vm"} {
		r, err := h.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandboxConfig("stays"+handler, nil), RuntimeHandler: handler})
		if err != nil {
			t.Fatal(err)
		}
		want[r.PodSandboxId] = true
	}
	done := make(chan struct{})
	var work sync.WaitGroup
	loop := func(what func(i int)) {
		work.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					what(i)
				}
			}
		})
	}
	loop(func(int) {
		r, err := h.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		if err != nil {
			t.Errorf("list: %v", err)
			return
		}
		have := map[string]int{}
		for _, s := range r.Items {
			have[s.Id]++
		}
		for id, n := range have {
			if n > 1 {
				t.Errorf("%s is listed %d times", id, n)
			}
		}
		for id := range want {
			if have[id] == 0 {
				t.Errorf("%s is not listed", id)
			}
		}
	})
	loop(func(i int) {
		handler := []string{"", "muster-vm"}[i%2]
		r, err := h.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandboxConfig(fmt.Sprint("n", i), nil), RuntimeHandler: handler})
		if err != nil {
			return // its runtime is away
		}
		if owner, _, _ := strings.Cut(r.PodSandboxId, "-"); (owner == "vm") != (handler != "") {
			t.Errorf("handler %q got %s", handler, r.PodSandboxId)
		}
		_, err = h.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: r.PodSandboxId})
		if code := status.Code(err); code != codes.OK && code != codes.Unavailable {
			t.Errorf("remove %s: %v", r.PodSandboxId, err)
		}
	})
	loop(func(int) {
		for id := range want {
			r, err := h.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
			if code := status.Code(err); code != codes.Unavailable && (err != nil || r.Status.Id != id) {
				t.Errorf("status of %s: %v", id, err)
			}
		}
	})
	for range 5 {
		for _, name := range []string{"vm", "primary"} {
			h.runtimes[name].down()
			h.backend(name).greetings.Store(0)
			h.runtimes[name].up()
			h.greeted(h.backend(name))
		}
	}
	close(done)
	work.Wait()
}

// TestNothingLeaks runs a proxy, breaks off calls of every sort in the middle, and counts goroutines and files when it has ended.
func TestNothingLeaks(t *testing.T) { // not parallel: it counts the process's
	files := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("NOT CHECKED: no /proc")
		}
		return len(all)
	}
	before, open := runtime.NumGoroutine(), files()
	func() {
		h := newFixture(t)
		for _, f := range h.runtimes {
			f.streams = true
			f.up()
		}
		if err := h.start(); err != nil {
			t.Fatal(err)
		}
		h.runtimes["vm"].mute()
		for range 20 {
			ctx, cancel := context.WithCancel(context.Background())
			var calls sync.WaitGroup
			calls.Go(func() { _, _ = h.ListContainers(ctx, &cri.ListContainersRequest{}) })
			calls.Go(func() { _, _ = h.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: "x"}) })
			calls.Go(func() {
				if ss, err := h.GetContainerEvents(ctx, &cri.GetEventsRequest{}); err == nil {
					_, _ = ss.Recv()
				}
			})
			calls.Go(func() {
				if ss, err := h.StreamPodSandboxes(ctx, &cri.StreamPodSandboxesRequest{}); err == nil {
					_, _ = ss.Recv()
				}
			})
			calls.Go(func() {
				ss, err := h.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, runtimeService+"Future")
				if err == nil {
					_ = ss.SendMsg(&cri.VersionRequest{})
					_ = ss.RecvMsg(&cri.VersionResponse{})
				}
			})
			runtime.Gosched()
			cancel()
			calls.Wait()
		}
		h.runtimes["vm"].unmute()
		h.stop()
		for _, f := range h.runtimes {
			f.down()
		}
	}()
	until(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
	until(t, "files to be closed", func() bool { return files() <= open })
}

// TestQuietListsWriteNothing looks whether lists that tell nothing new leave the state file alone: a kubelet lists every second.
func TestQuietListsWriteNothing(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, f := range h.runtimes {
		f.up()
	}
	if err := h.start(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: sandboxConfig("a", nil), RuntimeHandler: "muster-vm"}); err != nil {
		t.Fatal(err)
	}
	list := func() {
		if _, err := h.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	list()
	until(t, "the state to be written", h.router.store.clean)
	h.router.store.flush()
	stats := func() int64 {
		s := h.router.store.db.Stats()
		return s.TxStats.GetWrite()
	}
	h.router.store.setRuntimeConfig([]byte("ends after what was under way"))
	before := stats()
	for range 10 {
		list()
	}
	h.router.store.flush()
	if after := stats(); after != before {
		t.Errorf("%d pages were written", after-before)
	}
}

// TestCancelPasses looks whether a runtime learns that its caller has gone, and how long the caller waits.
func TestCancelPasses(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	type call struct {
		left time.Duration
		ctx  context.Context
	}
	calls := make(chan call, 1)
	(&rawRuntime{answer: func(method string, _ []byte, ss grpc.ServerStream) error {
		if !strings.HasSuffix(method, "ExecSync") && !strings.HasSuffix(method, "Future") {
			return ss.SendMsg(&frame{})
		}
		end, _ := ss.Context().Deadline()
		calls <- call{time.Until(end), ss.Context()}
		<-ss.Context().Done()
		return ss.Context().Err()
	}}).serve(t, dir+"/p")
	nobody().serve(t, dir+"/b")
	conn := startProxy(t, Config{Listen: dir + "/l", Primary: dir + "/p", Backends: []Backend{{Name: "other", Socket: dir + "/b"}}})
	for _, method := range []string{"ExecSync", "Future"} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		done := make(chan error, 1)
		go func() {
			done <- conn.Invoke(ctx, runtimeService+method, &cri.ExecSyncRequest{}, &cri.ExecSyncResponse{})
		}()
		c := <-calls
		if c.left > time.Hour || c.left < 59*time.Minute {
			t.Errorf("%s: the runtime has %v of an hour", method, c.left)
		}
		cancel()
		<-c.ctx.Done()
		if err := <-done; status.Code(err) != codes.Canceled {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// TestBackpressure writes to a caller that does not read: the runtime is held up, and the proxy keeps no more than the windows of its
// connections.
func TestBackpressure(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	const piece, pieces = 1 << 20, 100
	sent := make(chan int, pieces)
	(&rawRuntime{answer: func(_ string, _ []byte, ss grpc.ServerStream) error {
		for i := range pieces {
			if err := ss.SendMsg(&frame{body: make([]byte, piece)}); err != nil {
				return err
			}
			sent <- i
		}
		return nil
	}}).serve(t, dir+"/p")
	nobody().serve(t, dir+"/b")
	conn := startProxy(t, Config{Listen: dir + "/l", Primary: dir + "/p", Backends: []Backend{{Name: "other", Socket: dir + "/b"}}})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ss, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, runtimeService+"Future", grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ss.SendMsg(&frame{}), ss.CloseSend()); err != nil {
		t.Fatal(err)
	}
	// Each piece that is read lets about one more be written. What is ahead is bounded by windows, which grow to 16 MiB at most a connection.
	written := 0
	for read := 1; read <= pieces; read++ {
		var f frame
		if err := ss.RecvMsg(&f); err != nil || len(f.body) != piece {
			t.Fatalf("piece %d: %v, %d bytes", read, err, len(f.body))
		}
		for len(sent) > 0 {
			written = <-sent + 1
		}
		if ahead := written - read; ahead > 64 {
			t.Fatalf("the runtime is %d pieces ahead of the reader", ahead)
		}
	}
}

// TestConfig looks at the rules of the configuration.
func TestConfig(t *testing.T) {
	t.Parallel()
	good := func() Config {
		return Config{Listen: "unix:///run/cri.sock", Primary: "/run/containerd/containerd.sock", Backends: []Backend{
			{Name: "vm", Socket: "/run/vm.sock", Handlers: []string{"muster-vm"}, ImagePrefixes: []string{"muster-vm/", "virtlet.cloud/"}},
		}}
	}
	c, err := good().complete()
	if err != nil || c.Listen != "/run/cri.sock" || c.Mode != 0o600 || c.ListTimeout != 3*time.Second || c.Grace != 5*time.Second {
		t.Errorf("completed: %+v, %v", c, err)
	}
	for _, test := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Listen = "cri.sock" }, `Listen: "cri.sock" is not an absolute path of a socket`},
		{func(c *Config) { c.Primary = "/run/cri.sock" }, `Primary: "/run/cri.sock" is already Listen`},
		{func(c *Config) { c.Backends[0].Socket = "" }, `Backends[0].Socket: "" is not an absolute path of a socket`},
		{func(c *Config) { c.Backends[0].Name = "VM" }, `Backends[0].Name: "VM" is not a lower-case DNS name of at most 63 characters`},
		{func(c *Config) { c.Backends[0].Name = "primary" }, `Backends[0].Name: "primary" is taken`},
		{func(c *Config) { c.Backends[0].Handlers = []string{""} }, `Backends[0].Handlers: the empty handler is always the primary's`},
		{func(c *Config) { c.Backends[0].ImagePrefixes = []string{"vm"} }, `Backends[0].ImagePrefixes: "vm" does not end in a slash with a name before it`},
		{func(c *Config) { c.Backends[0].ImagePrefixes = []string{"a/", "a/b/"} }, `Backends[0].ImagePrefixes: "a/b/" and "a/" begin the same names`},
		{func(c *Config) {
			c.Backends = append(c.Backends, Backend{Name: "x", Socket: "/run/x.sock", Handlers: []string{"muster-vm"}})
		}, `Backends[1]: "muster-vm" (name, handler or image prefix) already means backend "vm"`},
		{func(c *Config) { c.Mode = 0o666 }, `Mode: 0666 is neither 0600 nor 0660`},
		{func(c *Config) { c.State = "state" }, `State: "state" is not an absolute path`},
		{func(c *Config) { c.ListTimeout = -1 }, `ListTimeout: -1ns is negative`},
	} {
		c := good()
		test.change(&c)
		if _, err := c.complete(); err == nil || err.Error() != "proxy configuration: "+test.want {
			t.Errorf("%v, want %s", err, test.want)
		}
		if err := Run(t.Context(), c, logr.Discard()); err == nil {
			t.Errorf("%s: it runs", test.want)
		}
	}
}

// startProxy2 is startProxy for a node on which only some runtimes are up.
func startProxy2(t testing.TB, c Config, up ...string) *grpc.ClientConn {
	h := &fixture{t: t, config: c, runtimes: map[string]*fakeRuntime{}}
	for _, name := range []string{"primary", "vm"} {
		h.runtimes[name] = &fakeRuntime{}
	}
	for _, name := range up {
		h.runtimes[name].server = grpc.NewServer()
	}
	if err := h.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.stop)
	return h.conn
}

// FuzzRouting gives hostile requests and answers to everything that reads them. Nothing panics, and what is edited and edited back is what
// it was.
func FuzzRouting(f *testing.F) {
	for name, m := range methods() {
		f.Add(name, filled(f, m.Input()))
		f.Add(name, filled(f, m.Output()))
	}
	f.Add(runtimeService+"RunPodSandbox", []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	vm := &connection{name: "vm", handlers: []string{"muster-vm"}, prefixes: []string{"muster-vm/"}, known: newKnown()}
	p := &router{backends: []*connection{{name: primaryName, primary: true, known: newKnown()}, vm}, words: map[string]*connection{"vm": vm}, wordList: []string{"vm"}}
	f.Fuzz(func(t *testing.T, method string, body []byte) {
		_ = p.ofUnknownMethod(body)
		var run cri.RunPodSandboxRequest
		if proto.Unmarshal(body, &run) == nil {
			if b, err := p.ofSandbox(&run); (b == nil) == (err == nil) {
				t.Errorf("sandbox: %v, %v", b, err)
			}
		}
		var pull cri.PullImageRequest
		if proto.Unmarshal(body, &pull) == nil {
			_, _ = p.ofImage(pull.GetImage(), pull.GetSandboxConfig())
		}
		r := rules[method]
		_ = p.whom(r, body)
		_ = wholeList(body)
		for k := range kinds {
			if match, err := filter(k, body); err == nil {
				match(body)
			}
			_ = isImage(body, "x")
		}
		if list, err := listItems(body); err == nil {
			known := newKnown()
			known.replace(images, list, known.mark())
			known.replace(images, list, known.mark())
		}
		_, _ = withoutHandlers(body, func(string) bool { return true })
		_, _ = newNames(body, body)
		same, err := editAll(body, within(1, imageNames()), func(s string) string { return s })
		if err == nil && string(same) != string(body) {
			t.Errorf("an edit that changes nothing made %x of %x", same, body)
		}
		longer, err := editAll(body, within(1, imageNames()), func(s string) string { return "muster-vm/" + s })
		if err != nil {
			return
		}
		back, err := editAll(longer, within(1, imageNames()), func(s string) string { return strings.TrimPrefix(s, "muster-vm/") })
		var before, after cri.ListImagesResponse
		if err != nil || (proto.Unmarshal(body, &before) == nil) != (proto.Unmarshal(back, &after) == nil) || !proto.Equal(&before, &after) {
			t.Errorf("edited there and back %x became %x: %v", body, back, err)
		}
	})
}

// TestStatusWaitsForThePrimary: what the others said lately counts, a verbose question is asked of all, and one that is away is told at once.
func TestStatusWaitsForThePrimary(t *testing.T) {
	h := newFixture(t)
	h.config.StatusEvery = time.Hour // once, when it starts
	for _, f := range h.runtimes {
		f.up()
	}
	if err := h.start(); err != nil {
		t.Fatal(err)
	}
	ask := func(limit time.Duration, verbose bool) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		r, err := h.Status(ctx, &cri.StatusRequest{Verbose: verbose})
		for _, c := range r.GetStatus().GetConditions() {
			if c.Type == ConditionPrefix+"vm" {
				return c.Reason, err
			}
		}
		return "", err
	}
	if said, err := ask(time.Minute, false); said != "Ready" || err != nil {
		t.Fatalf("%q, %v", said, err)
	}
	vm := h.runtimes["vm"]
	vm.mute()
	// It would have 2 s to answer, and the kubelet has 1 s.
	if said, err := ask(time.Second, false); said != "Ready" || err != nil {
		t.Errorf("beside a runtime that does not answer any more: %q, %v", said, err)
	}
	if said, err := ask(time.Minute, true); said != "DeadlineExceeded" || err != nil {
		t.Errorf("a verbose question: %q, %v", said, err)
	}
	vm.unmute()
	vm.down()
	deadline := time.Now().Add(30 * time.Second)
	for {
		said, err := ask(time.Minute, false)
		if said == "Unavailable" && err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("of a runtime that is away: %q, %v", said, err)
		}
	}
}

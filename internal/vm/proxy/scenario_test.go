package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"golang.org/x/tools/txtar"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm/socket"
)

// TestScenarios plays the conversations in testdata: each file of an archive is one, in which "> command" is followed by what comes back.
// Two fake runtimes stand behind the proxy, "primary" and "vm", which has the handler muster-vm and the prefixes muster-vm/ and
// virtlet.cloud/.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range a.Files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+"/"+f.Name, func(t *testing.T) {
				t.Parallel()
				got, want := play(t, string(f.Data)), string(f.Data)
				if got != want {
					t.Errorf("%s: the conversation went otherwise:\n%s\nwant\n%s", file, got, want)
				}
			})
		}
	}
}

// play says the commands of a conversation and gives it with what came back.
func play(t *testing.T, script string) string {
	h := newFixture(t)
	var out strings.Builder
	for line := range strings.Lines(script) {
		switch {
		case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
			out.WriteString(line)
		case strings.HasPrefix(line, "> "):
			out.WriteString(line)
			if said := h.say(strings.TrimSpace(line[2:])); said != "" {
				out.WriteString(said + "\n")
			}
		}
	}
	return out.String()
}

// fixture is a node: runtimes, the proxy, and a client in the kubelet's place.
type fixture struct {
	t        testing.TB
	dir      string
	config   Config
	runtimes map[string]*fakeRuntime
	router   *router
	end      func() // stops the proxy
	conn     *grpc.ClientConn
	cri.RuntimeServiceClient
	cri.ImageServiceClient
	events chan string
	names  []string // of images, whose digests are shown by them
}

// shortDir is a temporary folder whose name leaves room for a socket's.
func shortDir(t testing.TB) string {
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func newFixture(t testing.TB) *fixture {
	dir := shortDir(t)
	h := &fixture{t: t, dir: dir, runtimes: map[string]*fakeRuntime{}, config: Config{
		Listen: dir + "/cri", Primary: dir + "/primary", State: dir + "/state", ListTimeout: 2 * time.Second, StatusEvery: -1,
		Backends: []Backend{{Name: "vm", Socket: dir + "/vm", Handlers: []string{"muster-vm"}, ImagePrefixes: []string{"muster-vm/", "virtlet.cloud/"}}},
	}}
	for _, name := range []string{"primary", "vm"} {
		h.runtimes[name] = newFake(t, name, dir+"/"+name)
	}
	t.Cleanup(func() { h.stop() })
	return h
}

// start runs the proxy.
func (h *fixture) start() error {
	c, err := h.config.complete()
	if err != nil {
		return err
	}
	l, err := socket.Listen(c.Listen, c.Mode)
	if err != nil {
		return err
	}
	log := testr.New(&testing.T{}) // what it logs is not for the reader of a failing test
	if t, ok := h.t.(*testing.T); ok && testing.Verbose() {
		log = testr.New(t)
	}
	p, err := newRouter(c, log)
	if err != nil {
		_ = l.Close()
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- p.serve(ctx, l)
		_ = l.Close()
	}()
	h.conn = dialKubelet(h.t, c.Listen)
	h.RuntimeServiceClient, h.ImageServiceClient = cri.NewRuntimeServiceClient(h.conn), cri.NewImageServiceClient(h.conn)
	h.router = p
	h.end = func() {
		cancel()
		if err := <-served; err != nil {
			h.t.Errorf("the proxy ended with %v", err)
		}
		_ = h.conn.Close()
	}
	for _, b := range p.backends {
		if f := h.runtimes[b.name]; f.server != nil && f.muted == nil {
			h.greeted(b)
		}
	}
	return nil
}

// dialKubelet connects as a kubelet does.
func dialKubelet(t testing.TB, socket string) *grpc.ClientConn {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func (h *fixture) stop() {
	if h.end != nil {
		h.end()
		h.end = nil
	}
}

// until waits for a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// greeted waits until the proxy has a connection and knows what the runtime has.
func (h *fixture) greeted(b *connection) {
	until(h.t, b.name+" to be greeted", func() bool {
		return b.conn.GetState() == connectivity.Ready && b.greetings.Load() > 0
	})
}

func (h *fixture) backend(name string) *connection {
	for _, b := range h.router.backends {
		if b.name == name {
			return b
		}
	}
	h.t.Fatalf("no backend %q", name)
	return nil
}

// say carries out one command. Arguments are words, and key=value pairs.
func (h *fixture) say(line string) string {
	line = regexp.MustCompile(`sha256\(([^)]*)\)`).ReplaceAllStringFunc(line, func(s string) string { return digest(s[7 : len(s)-1]) })
	words := strings.Fields(line)
	opt := map[string]string{}
	var args []string
	for _, w := range words[1:] {
		if k, v, ok := strings.Cut(w, "="); ok {
			opt[k] = v
		} else {
			args = append(args, w)
		}
	}
	if words[0] == "pull" || words[0] == "image" {
		h.names = append(h.names, args[0], strings.TrimPrefix(strings.TrimPrefix(args[0], "muster-vm/"), "virtlet.cloud/"))
	}
	patience := 20 * time.Second
	if d, err := time.ParseDuration(opt["deadline"]); err == nil {
		patience = d
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	said, err := h.do(ctx, words[0], args, opt)
	if err != nil {
		said = fmt.Sprintf("%s: %s", status.Code(err), status.Convert(err).Message())
	}
	for _, n := range h.names {
		said = strings.ReplaceAll(said, digest(n), "sha256("+n+")")
	}
	said = regexp.MustCompile(`(does not answer: |Unavailable runtime "vm": ).*`).ReplaceAllString(said, "$1…") // what follows is grpc's
	return strings.ReplaceAll(strings.TrimRight(said, "\n"), h.dir, "DIR")
}

func annotations(opt map[string]string) map[string]string {
	if v, ok := opt["target"]; ok {
		return map[string]string{TargetAnnotation: v}
	}
	return nil
}

func sandboxConfig(name string, opt map[string]string) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name}, Annotations: annotations(opt)}
}

// stale says which backends' items are last known ones.
func stale(md metadata.MD) string {
	if v := md.Get(StaleTrailer); len(v) > 0 {
		slices.Sort(v)
		return "stale: " + strings.Join(v, " ")
	}
	return ""
}

func (h *fixture) do(ctx context.Context, verb string, args []string, opt map[string]string) (string, error) {
	var trailer metadata.MD
	lines := func(out []string) string {
		if s := stale(trailer); s != "" {
			out = append(out, s)
		}
		return strings.Join(out, "\n")
	}
	spec := func() *cri.ImageSpec {
		return &cri.ImageSpec{Image: args[0], RuntimeHandler: opt["handler"], Annotations: annotations(opt)}
	}
	switch verb {
	// The node.
	case "up":
		f := h.runtimes[args[0]]
		f.streams = opt["streams"] == "yes"
		if h.router != nil && h.end != nil {
			h.backend(args[0]).greetings.Store(0)
		}
		f.up()
		if h.router != nil && h.end != nil {
			h.greeted(h.backend(args[0]))
		}
	case "up-silent": // it is up, and muted
		h.runtimes[args[0]].up()
	case "down":
		f := h.runtimes[args[0]]
		f.down()
		if h.end != nil {
			b := h.backend(args[0])
			until(h.t, "the connection to end", func() bool { return b.conn.GetState() != connectivity.Ready })
		}
	case "mute":
		h.runtimes[args[0]].mute()
	case "unmute":
		h.runtimes[args[0]].unmute()
	case "start":
		return "", h.start()
	case "stop":
		h.stop()
	case "restart":
		h.stop()
		return "", h.start()
	case "lose": // the state file
		return "", os.Remove(h.config.State)
	case "damage":
		return "", os.WriteFile(h.config.State, []byte(strings.Repeat("no database ", 4096)), 0o600)
	case "timeout":
		d, err := time.ParseDuration(args[0])
		h.config.ListTimeout = d
		return "", err
	case "break":
		h.runtimes[args[0]].mu.Lock()
		defer h.runtimes[args[0]].mu.Unlock()
		h.runtimes[args[0]].notReady = opt["message"]
	case "handlers":
		f := h.runtimes[args[0]]
		for _, name := range args[1:] {
			f.handlers = append(f.handlers, &cri.RuntimeHandler{Name: name, Features: &cri.RuntimeHandlerFeatures{UserNamespaces: true}})
		}
	case "crash-create": // a sandbox of which the proxy never heard
		f := h.runtimes[args[0]]
		f.mu.Lock()
		defer f.mu.Unlock()
		s := &cri.PodSandbox{Id: f.id(), Metadata: sandboxConfig(args[1], opt).Metadata}
		f.sandboxes = append(f.sandboxes, s)
		return s.Id, nil

	// The kubelet.
	case "run":
		r, err := h.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandboxConfig(args[0], opt), RuntimeHandler: opt["handler"]})
		return r.GetPodSandboxId(), err
	case "pod-status":
		r, err := h.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: args[0]})
		return r.GetStatus().GetId() + " " + r.GetStatus().GetState().String(), err
	case "pod-stop":
		_, err := h.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: args[0]})
		return "ok", err
	case "pod-remove":
		_, err := h.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: args[0]})
		return "ok", err
	case "create":
		r, err := h.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: args[0], Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: args[1]}, Image: &cri.ImageSpec{Image: args[2], UserSpecifiedImage: args[2]},
		}})
		return r.GetContainerId(), err
	case "begin":
		_, err := h.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: args[0]})
		return "ok", err
	case "end":
		_, err := h.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: args[0]})
		return "ok", err
	case "remove":
		_, err := h.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: args[0]})
		return "ok", err
	case "status":
		r, err := h.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: args[0]})
		return r.GetStatus().GetId() + " " + r.GetStatus().GetState().String(), err
	case "exec":
		r, err := h.Exec(ctx, &cri.ExecRequest{ContainerId: args[0], Cmd: args[1:]})
		return r.GetUrl(), err
	case "pods", "stream-pods":
		f := &cri.PodSandboxFilter{Id: opt["id"]}
		if len(args) > 0 && args[0] == "ready" {
			f.State = &cri.PodSandboxStateValue{}
		}
		var all []*cri.PodSandbox
		if verb == "pods" {
			r, err := h.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: f}, grpc.Trailer(&trailer))
			if err != nil {
				return "", err
			}
			all = r.Items
		} else {
			ss, err := h.StreamPodSandboxes(ctx, &cri.StreamPodSandboxesRequest{Filter: f})
			if err != nil {
				return "", err
			}
			for {
				r, err := ss.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return "", err
				}
				all = append(all, r.PodSandboxes...)
			}
			trailer = ss.Trailer()
		}
		var out []string
		for _, s := range all {
			out = append(out, s.Id+" "+s.Metadata.Name+" "+s.State.String())
		}
		return lines(out), nil
	case "ps":
		r, err := h.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: opt["pod"]}}, grpc.Trailer(&trailer))
		var out []string
		for _, c := range r.GetContainers() {
			out = append(out, fmt.Sprintf("%s of %s %s %s", c.Id, c.PodSandboxId, c.Image.Image, c.State))
		}
		return lines(out), err
	case "pod-stats":
		r, err := h.ListPodSandboxStats(ctx, &cri.ListPodSandboxStatsRequest{}, grpc.Trailer(&trailer))
		var out []string
		for _, s := range r.GetStats() {
			out = append(out, s.Attributes.Id)
		}
		return lines(out), err
	case "metrics":
		r, err := h.ListMetricDescriptors(ctx, &cri.ListMetricDescriptorsRequest{})
		var out []string
		for _, d := range r.GetDescriptors() {
			out = append(out, strings.TrimSpace(d.Name+" "+d.Help))
		}
		return lines(out), err
	case "pull":
		r := &cri.PullImageRequest{Image: spec()}
		if name, ok := opt["for"]; ok {
			r.SandboxConfig = sandboxConfig(name, map[string]string{})
			if v, ok := opt["for-target"]; ok {
				r.SandboxConfig.Annotations = map[string]string{TargetAnnotation: v}
			}
		}
		before := map[string]uint64{}
		for _, b := range h.router.backends {
			before[b.name] = b.greetings.Load()
		}
		a, err := h.PullImage(ctx, r)
		if err == nil { // the proxy asks the one that pulled for its images; the conversation waits for it
			until(h.t, "a list of images", func() bool {
				return slices.ContainsFunc(h.router.backends, func(b *connection) bool { return b.greetings.Load() > before[b.name] })
			})
		}
		return a.GetImageRef(), err
	case "image":
		r, err := h.ImageStatus(ctx, &cri.ImageStatusRequest{Image: spec()})
		if r.GetImage() == nil && err == nil {
			return "none", nil
		}
		return r.GetImage().GetId() + " " + strings.Join(r.GetImage().GetRepoTags(), " "), err
	case "rmi":
		_, err := h.RemoveImage(ctx, &cri.RemoveImageRequest{Image: spec()})
		return "ok", err
	case "images":
		r, err := h.ListImages(ctx, &cri.ListImagesRequest{}, grpc.Trailer(&trailer))
		var out []string
		for _, i := range r.GetImages() {
			out = append(out, i.Id+" "+strings.Join(i.RepoTags, " ")+" spec "+i.GetSpec().GetImage())
		}
		return lines(out), err
	case "has":
		f := h.runtimes[args[0]]
		f.mu.Lock()
		defer f.mu.Unlock()
		var out []string
		for _, i := range f.images {
			out = append(out, "image "+strings.Join(i.RepoTags, " "))
		}
		for _, c := range f.containers {
			out = append(out, "container "+c.Id+" image "+c.Image.Image+" user "+c.Image.UserSpecifiedImage)
		}
		if f.cidr != "" {
			out = append(out, "pods in "+f.cidr)
		}
		return strings.Join(out, "\n"), nil
	case "fs":
		r, err := h.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
		var out []string
		for _, f := range r.GetImageFilesystems() {
			out = append(out, f.FsId.Mountpoint)
		}
		return lines(out), err
	case "node":
		r, err := h.Status(ctx, &cri.StatusRequest{Verbose: opt["verbose"] == "yes"})
		var out []string
		for _, c := range r.GetStatus().GetConditions() {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %v %s %s", c.Type, c.Status, c.Reason, c.Message)))
		}
		for _, x := range r.GetRuntimeHandlers() {
			out = append(out, strings.TrimSpace(fmt.Sprintf("handler %q userns %v", x.Name, x.GetFeatures().GetUserNamespaces())))
		}
		for _, k := range []string{"who", "vm/who"} {
			if v, ok := r.GetInfo()[k]; ok {
				out = append(out, k+": "+v)
			}
		}
		return lines(out), err
	case "future": // a method of a later CRI
		var out cri.PodSandboxStatusResponse
		err := h.conn.Invoke(ctx, runtimeService+args[0], &cri.PodSandboxStatusRequest{PodSandboxId: opt["id"]}, &out)
		return "ok", err
	case "version":
		r, err := h.Version(ctx, &cri.VersionRequest{})
		return r.GetRuntimeName(), err
	case "configure":
		_, err := h.UpdateRuntimeConfig(ctx, &cri.UpdateRuntimeConfigRequest{RuntimeConfig: &cri.RuntimeConfig{NetworkConfig: &cri.NetworkConfig{PodCidr: args[0]}}})
		return "ok", err
	case "watch":
		h.events = make(chan string, 64)
		ss, err := h.GetContainerEvents(context.Background(), &cri.GetEventsRequest{})
		if err != nil {
			return "", err
		}
		go func() {
			for {
				e, err := ss.Recv()
				if err != nil {
					h.events <- fmt.Sprintf("%s: %s", status.Code(err), status.Convert(err).Message())
					return
				}
				h.events <- e.ContainerId + " " + e.ContainerEventType.String()
			}
		}()
		for _, name := range args { // whose watcher has to be there before anything happens
			f := h.runtimes[name]
			until(h.t, "a watcher of "+name, func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				return len(f.watchers) > 0
			})
		}
	case "event":
		select {
		case e := <-h.events:
			return e, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	default:
		h.t.Fatalf("no command %q", verb)
	}
	return "", nil
}

package nodezones

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// kubelet is a podresources server whose answer can be changed.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	mu     sync.Mutex
	answer *podresources.ListPodResourcesResponse
	asked  chan struct{}
}

func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case k.asked <- struct{}{}:
	default:
	}
	if k.answer == nil {
		return nil, errors.New("not ready")
	}
	return k.answer, nil
}

func (k *kubelet) say(pods ...*podresources.PodResources) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answer = &podresources.ListPodResourcesResponse{PodResources: pods}
}

func serve(t *testing.T) (*kubelet, string) {
	t.Helper()
	// A socket's path may have 108 bytes, and a test's own folder can be longer.
	dir, err := os.MkdirTemp("", "pr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "kubelet.sock")
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{asked: make(chan struct{}, 1)}
	s := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(s, k)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return k, path
}

func sysfs(t *testing.T, lists map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for node, list := range lists {
		dir := filepath.Join(root, "devices/system/node", node)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cpulist"), []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func in(zones ...int64) *podresources.TopologyInfo {
	t := &podresources.TopologyInfo{}
	for _, z := range zones {
		t.Nodes = append(t.Nodes, &podresources.NUMANode{ID: z})
	}
	return t
}

func given(name string, cs ...*podresources.ContainerResources) *podresources.PodResources {
	return &podresources.PodResources{Namespace: "ns", Name: name, Containers: cs}
}

func exporter(t *testing.T, socket string, p *kubetest.Process) *Exporter {
	t.Helper()
	c, err := p.Client(kubetest.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{
		Node: "n1", Socket: "unix://" + socket, Sysfs: sysfs(t, map[string]string{"node0": "0-3,8\n", "node1": "4-7,9-10\n", "node2": "\n", "nodelist": "x"}),
		Poll: time.Millisecond, Resync: time.Hour,
	}, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func pod(name, annotation string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}, Spec: corev1.PodSpec{NodeName: "n1"}}
	if annotation != "" {
		p.Annotations = map[string]string{keys.NUMAObservedAnnotation: annotation}
	}
	return p
}

// api is an API server with these pods.
func api(pods ...client.Object) *kubetest.Server {
	s := kubetest.New(kubetest.Options{})
	s.Put(pods...)
	return s
}

func observed(t *testing.T, s *kubetest.Server, name string) string {
	t.Helper()
	p := pod(name, "")
	if !s.Get(p) {
		t.Fatalf("no pod %s", name)
	}
	return p.Annotations[keys.NUMAObservedAnnotation]
}

func TestPoll(t *testing.T) {
	t.Parallel()
	k, socket := serve(t)
	c := api(pod("a", ""), pod("b", ""), pod("c", ""))
	e := exporter(t, socket, c.Process("numa"))
	ctx := context.Background()

	if err := e.Poll(ctx); err == nil || !strings.Contains(err.Error(), "not ready") {
		t.Fatalf("error %v, want the kubelet's", err)
	}
	gpu := "nvidia.com/gpu"
	k.say(
		given("a",
			&podresources.ContainerResources{
				CpuIds:  []int64{0, 1, 4, 99},
				Devices: []*podresources.ContainerDevices{{ResourceName: gpu, DeviceIds: []string{"x", "y"}, Topology: in(1)}, {ResourceName: "any/where", DeviceIds: []string{"z"}}},
				Memory:  []*podresources.ContainerMemory{{Size: 1 << 30, Topology: in(0)}, {MemoryType: "hugepages-2Mi", Size: 4 << 20, Topology: in(0, 1)}},
			},
			&podresources.ContainerResources{CpuIds: []int64{8}, Devices: []*podresources.ContainerDevices{{ResourceName: gpu, DeviceIds: []string{"w"}, Topology: in(0, 1)}}}),
		given("b", &podresources.ContainerResources{}),                           // shared CPUs only
		given("gone", &podresources.ContainerResources{CpuIds: []int64{2}}),      // deleted at the API server already
		given("c", &podresources.ContainerResources{CpuIds: []int64{9, 10, 10}})) // the kubelet's answer is summed as it is
	if err := e.Poll(ctx); err != nil {
		t.Fatal(err)
	}
	want := `[{"zone":"node-0","amount":{"cpu":"3","hugepages-2Mi":"2097152","memory":"1Gi"}},` +
		`{"zone":"node-1","amount":{"cpu":"1","hugepages-2Mi":"2097152","nvidia.com/gpu":"2"}}]`
	if d := cmp.Diff(want, observed(t, c, "a")); d != "" {
		t.Error(d)
	}
	if got := observed(t, c, "b"); got != "" {
		t.Errorf("a pod without anything of its own got %s", got)
	}
	if d := cmp.Diff(`[{"zone":"node-1","amount":{"cpu":"3"}}]`, observed(t, c, "c")); d != "" {
		t.Error(d)
	}
	c.Writes()
	if err := e.Poll(ctx); err != nil || len(c.Writes()) > 0 {
		t.Errorf("%v, or a write without news", err)
	}
	k.say(given("c", &podresources.ContainerResources{CpuIds: []int64{9}}))
	err := e.Poll(ctx)
	if writes := c.Writes(); err != nil || len(writes) != 1 {
		t.Errorf("%v; writes %v for one change", err, writes)
	}
	if got := observed(t, c, "a"); got != want {
		t.Errorf("the annotation of a pod that the kubelet has let go became %q", got)
	}
}

func TestWhatCouldNotBeWrittenIsTriedAgain(t *testing.T) {
	t.Parallel()
	k, socket := serve(t)
	c := api(pod("a", ""))
	works := c.Fault(func(call kubetest.Call) kubetest.Outcome { return kubetest.Broken("unreachable") })
	e := exporter(t, socket, c.Process("numa"))
	k.say(given("a", &podresources.ContainerResources{CpuIds: []int64{0}}))
	if err := e.Poll(context.Background()); err == nil || !strings.Contains(err.Error(), "unreachable") {
		t.Fatalf("error %v", err)
	}
	works()
	if err := e.Poll(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := observed(t, c, "a"); got == "" {
		t.Error("nothing was written")
	}
}

// TestCrashes: it dies at a write, before or after it, and the next one leaves each pod with what the kubelet says.
func TestCrashes(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 2; n++ {
		for _, after := range []bool{false, true} {
			k, socket := serve(t)
			c := api(pod("a", ""), pod("b", ""))
			k.say(given("a", &podresources.ContainerResources{CpuIds: []int64{0}}), given("b", &podresources.ContainerResources{CpuIds: []int64{4}}))
			p := c.Process("numa")
			p.CrashAt(n, after)
			if err := exporter(t, socket, p).Poll(t.Context()); !errors.Is(err, kubetest.ErrDead) {
				t.Errorf("write %d, after=%v: %v", n, after, err)
			}
			e := exporter(t, socket, c.Process("numa"))
			for _, step := range []func(context.Context) error{e.Poll, e.Resync} {
				if err := step(t.Context()); err != nil {
					t.Error(err)
				}
			}
			for name, want := range map[string]string{"a": `[{"zone":"node-0","amount":{"cpu":"1"}}]`, "b": `[{"zone":"node-1","amount":{"cpu":"1"}}]`} {
				if got := observed(t, c, name); got != want {
					t.Errorf("write %d, after=%v: pod %s has %s, want %s", n, after, name, got, want)
				}
			}
		}
	}
}

func TestResync(t *testing.T) {
	t.Parallel()
	k, socket := serve(t)
	right := `[{"zone":"node-0","amount":{"cpu":"1"}}]`
	c := api(pod("edited", ""), pod("right", ""), pod("unknown", "[]"))
	e := exporter(t, socket, c.Process("numa"))
	ctx := context.Background()
	k.say(given("edited", &podresources.ContainerResources{CpuIds: []int64{0}}), given("right", &podresources.ContainerResources{CpuIds: []int64{1}}))
	if err := e.Poll(ctx); err != nil {
		t.Fatal(err)
	}
	c.Remove(pod("edited", ""))
	c.Put(pod("edited", "nonsense")) // made anew under its name
	c.Writes()
	if err := e.Resync(ctx); err != nil {
		t.Fatal(err)
	}
	if got := observed(t, c, "edited"); got != right {
		t.Errorf("edited: %q, want %q", got, right)
	}
	if got := observed(t, c, "unknown"); got != "[]" {
		t.Errorf("a pod of which the kubelet says nothing became %q", got)
	}
	if writes := c.Writes(); len(writes) != 1 {
		t.Errorf("%v, want 1 write", writes)
	}
}

func TestRunOutlivesTheKubelet(t *testing.T) {
	t.Parallel()
	k, socket := serve(t)
	e := exporter(t, socket, api().Process("numa"))
	ctx, stop := context.WithCancel(context.Background())
	end := make(chan error)
	go func() { end <- e.Run(ctx) }()
	<-k.asked // and it fails
	<-k.asked // and comes again
	stop()
	if err := <-end; err != nil {
		t.Error(err)
	}
}

// TestHangingLooksAreNoticed: a look that hangs is open for whoever watches, and one that fails is not: the kubelet may be away.
func TestHangingLooksAreNoticed(t *testing.T) {
	t.Parallel()
	k, socket := serve(t)
	k.say(given("p", &podresources.ContainerResources{Name: "c", CpuIds: []int64{1}}))
	patched := make(chan struct{}, 1)
	c := api(pod("p", ""))
	c.Fault(func(kubetest.Call) kubetest.Outcome {
		select {
		case patched <- struct{}{}:
		default:
		}
		return kubetest.Outcome{Hang: true}
	})
	p := c.Process("numa")
	e := exporter(t, socket, p)
	var open atomic.Int32
	ended := make(chan struct{}, 1)
	e.o.Watch = func(ctx context.Context, _ string) (context.Context, func()) {
		open.Add(1)
		return ctx, func() {
			if open.Add(-1); len(ended) == 0 {
				ended <- struct{}{}
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	<-patched
	if n := open.Load(); n != 1 {
		t.Errorf("%d looks are open while one hangs", n)
	}
	p.Kill()
	<-ended
	stop()
	if err := <-done; err != nil || open.Load() != 0 {
		t.Errorf("%v; %d looks are open after the end", err, open.Load())
	}
}

func TestReadCPUs(t *testing.T) {
	t.Parallel()
	got, err := readCPUs(sysfs(t, map[string]string{"node0": "0-1,4", "node1": "2-3", "node10": ""}))
	if d := cmp.Diff(map[int64]int64{0: 0, 1: 0, 4: 0, 2: 1, 3: 1}, got); err != nil || d != "" {
		t.Error(err, d)
	}
	if _, err := readCPUs(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no NUMA zone") {
		t.Errorf("error %v for a kernel without zones", err)
	}
	for _, bad := range []string{"x", "3-1", "1-", "-1", "0-999999999999", "1,,a"} {
		if _, err := readCPUs(sysfs(t, map[string]string{"node0": bad})); err == nil || !strings.Contains(err.Error(), "node0/cpulist") {
			t.Errorf("%q: error %v, want one that names the file", bad, err)
		}
	}
}

func FuzzParseCPUs(f *testing.F) {
	f.Add("0-3,8-11")
	f.Add("")
	f.Add("1,,2-")
	f.Fuzz(func(t *testing.T, text string) {
		cpus, err := parseCPUs(text)
		for _, c := range cpus {
			if err == nil && (c < 0 || c >= maxCPU) {
				t.Fatalf("CPU %d of %q", c, text)
			}
		}
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	err := Options{Resync: -1}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, what := range []string{"NODE_NAME", "--podresources-socket", "--poll-interval", "--drift-resync-interval"} {
		if !strings.Contains(err.Error(), what) {
			t.Errorf("%v does not mention %s", err, what)
		}
	}
}

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
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-scheduler/muster/api/kai/keys"
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

func exporter(t *testing.T, socket string, c client.Client) *Exporter {
	t.Helper()
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

// api is an API server that counts what is written to it.
func api(writes *int, pods ...client.Object) client.Client {
	return fake.NewClientBuilder().WithObjects(pods...).WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
		p, _ := o.(*corev1.Pod)
		return []string{p.Spec.NodeName}
	}).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			*writes++
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
}

func observed(t *testing.T, c client.Client, name string) string {
	t.Helper()
	var p corev1.Pod
	if err := c.Get(context.Background(), types.NamespacedName{Namespace: "ns", Name: name}, &p); err != nil {
		t.Fatal(err)
	}
	return p.Annotations[keys.NUMAObservedAnnotation]
}

func TestPoll(t *testing.T) {
	t.Parallel()
	k, socket := serve(t)
	writes := 0
	c := api(&writes, pod("a", ""), pod("b", ""), pod("c", ""))
	e := exporter(t, socket, c)
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
	before := writes
	if err := e.Poll(ctx); err != nil || writes != before {
		t.Errorf("%v; %d writes without news, want none", err, writes-before)
	}
	k.say(given("c", &podresources.ContainerResources{CpuIds: []int64{9}}))
	if err := e.Poll(ctx); err != nil || writes != before+1 {
		t.Errorf("%v; %d writes for one change", err, writes-before)
	}
	if got := observed(t, c, "a"); got != want {
		t.Errorf("the annotation of a pod that the kubelet has let go became %q", got)
	}
}

func TestWhatCouldNotBeWrittenIsTriedAgain(t *testing.T) {
	t.Parallel()
	k, socket := serve(t)
	down := true
	c := fake.NewClientBuilder().WithObjects(pod("a", "")).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if down {
				return errors.New("unreachable")
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	e := exporter(t, socket, c)
	k.say(given("a", &podresources.ContainerResources{CpuIds: []int64{0}}))
	if err := e.Poll(context.Background()); err == nil || !strings.Contains(err.Error(), "unreachable") {
		t.Fatalf("error %v", err)
	}
	down = false
	if err := e.Poll(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := observed(t, c, "a"); got == "" {
		t.Error("nothing was written")
	}
}

func TestResync(t *testing.T) {
	t.Parallel()
	k, socket := serve(t)
	writes := 0
	right := `[{"zone":"node-0","amount":{"cpu":"1"}}]`
	c := api(&writes, pod("edited", ""), pod("right", ""), pod("unknown", "[]"))
	e := exporter(t, socket, c)
	ctx := context.Background()
	k.say(given("edited", &podresources.ContainerResources{CpuIds: []int64{0}}), given("right", &podresources.ContainerResources{CpuIds: []int64{1}}))
	if err := e.Poll(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, pod("edited", "")); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(ctx, pod("edited", "nonsense")); err != nil { // made anew under its name
		t.Fatal(err)
	}
	before := writes
	if err := e.Resync(ctx); err != nil {
		t.Fatal(err)
	}
	if got := observed(t, c, "edited"); got != right {
		t.Errorf("edited: %q, want %q", got, right)
	}
	if got := observed(t, c, "unknown"); got != "[]" {
		t.Errorf("a pod of which the kubelet says nothing became %q", got)
	}
	if writes != before+1 {
		t.Errorf("%d writes, want 1", writes-before)
	}
}

func TestRunOutlivesTheKubelet(t *testing.T) {
	t.Parallel()
	k, socket := serve(t)
	writes := 0
	e := exporter(t, socket, api(&writes))
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
	hangs, patched := make(chan struct{}), make(chan struct{}, 1)
	c := fake.NewClientBuilder().WithObjects(pod("p", "")).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			select {
			case patched <- struct{}{}:
			default:
			}
			<-hangs // whatever the context says
			return errors.New("at last")
		},
	}).Build()
	e := exporter(t, socket, c)
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
	close(hangs)
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

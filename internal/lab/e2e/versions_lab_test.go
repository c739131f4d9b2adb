//go:build lab

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/crds"
	"github.com/muster-scheduler/muster/api/kai/keys"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/controllers/admission"
	"github.com/muster-scheduler/muster/internal/kube/served"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestVersions runs the roles, each a process of its own, on servers that behave like each version of Kubernetes that is served.
func TestVersions(t *testing.T) {
	roles := []string{"scheduler", "binder", "podgrouper", "podgroup", "queue"}
	for minor := served.Oldest; minor <= served.Newest; minor++ {
		t.Run(served.Minor(minor), func(t *testing.T) {
			w := newFixture(t, 1, lab.Options{Kubernetes: served.Minor(minor)})
			w.behavesLike(t, minor)
			w.takesPolicies(t)
			pool := lab.Pool{Name: "d", Count: 2, Devices: []lab.Devices{{Driver: claimDriver, Class: claimClass, Count: perNode, Attributes: map[string]string{"model": "GB200"}}}}
			if err := w.lab.AddNodes(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			var all []*process
			for _, role := range roles {
				p := newProcess(t, role, w.lab.Kubeconfig(), "--leader-elect")
				p.start()
				all = append(all, p)
			}
			w.namespace(t, "gang")
			w.create(t, gang("gang", "gang", 8, ""))
			w.must(t, 30*time.Second, w.allRunning("gang", 8))

			w.namespace(t, "claims")
			w.create(t, claimTemplate("claims"))
			w.create(t, claimants("claims", perNode+1))
			w.must(t, 30*time.Second, w.allRunning("claims", perNode+1))
			if got := w.tenants(t, "claims"); len(got) != perNode+1 {
				t.Errorf("%d claims have %d devices: %v", perNode+1, len(got), got)
			}

			w.namespace(t, "extended")
			job := claimants("extended", 1)
			job.Spec.Template.Spec.ResourceClaims = nil
			amount := corev1.ResourceList{corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + claimClass): resource.MustParse("1")}
			job.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amount, Limits: amount}
			w.create(t, job)
			if has := !slices.ContainsFunc(served.LackingSince(minor), func(n served.Need) bool { return n.Name == served.ExtendedByClaim }); has {
				w.must(t, 30*time.Second, w.allRunning("extended", 1))
			} else {
				w.must(t, 30*time.Second, func() string {
					if why := w.why("extended"); !strings.Contains(why, resourcev1.ResourceDeviceClassPrefix) {
						return "the pod does not say that nobody has the resource, but: " + why
					}
					return ""
				})
				if n := w.boundNow(t, "extended"); n != 0 {
					t.Error("a pod is bound whose devices its kubelet would never find")
				}
			}
			for _, p := range all {
				p.awaitReady(t)
				p.saysWhatIsLacking(t, minor)
				p.complainsOfNothing(t)
				p.stop(t)
			}
		})
	}
}

// behavesLike checks that the lab is what it was asked for.
func (w *fixture) behavesLike(t *testing.T, minor int) {
	t.Helper()
	s, err := served.Look(w.lab.Client().Discovery())
	if err != nil || s.Minor != minor {
		t.Fatalf("the lab is %s, %v; want %s", s.String(), err, served.Minor(minor))
	}
	var names []served.Name
	for _, n := range served.LackingSince(minor) {
		names = append(names, n.Name)
	}
	if !slices.Equal(s.Missing, names) {
		t.Errorf("%s lacks %v, want %v", s.String(), s.Missing, names)
	}
	// What the table says of gates is what the server does.
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	class.Spec.ExtendedResourceName = new("example.com/probe")
	taints := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "probe.example.com", NodeName: new("probe"), Pool: resourcev1.ResourcePool{Name: "probe", ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{
			Name: "d", Taints: []resourcev1.DeviceTaint{{Key: "ails", Effect: resourcev1.DeviceTaintEffectNoSchedule}},
			AllowMultipleAllocations: new(true), BindingConditions: []string{"Ready"}, BindingFailureConditions: []string{"Failed"},
		}},
	}}
	counters := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "counters"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "probe.example.com", NodeName: new("probe"), Pool: resourcev1.ResourcePool{Name: "counted", ResourceSliceCount: 1},
		SharedCounters: []resourcev1.CounterSet{{Name: "set", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse("1Gi")}}}},
	}}
	for _, o := range []client.Object{class, taints} {
		if err := w.client.Create(t.Context(), o, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
	}
	partitions := w.client.Create(t.Context(), counters, client.DryRunAll) == nil && len(counters.Spec.SharedCounters) > 0
	d := &taints.Spec.Devices[0]
	for gate, kept := range map[served.Name]bool{
		served.ExtendedByClaim: class.Spec.ExtendedResourceName != nil, "DRADeviceTaints": len(d.Taints) > 0, "DRAConsumableCapacity": d.AllowMultipleAllocations != nil,
		"DRADeviceBindingConditions": len(d.BindingConditions) > 0, "DRAPartitionableDevices": partitions,
	} {
		if kept != s.Has(gate) {
			t.Errorf("%s: %s: the server keeps its fields: %v; it is said to have it: %v", s.String(), gate, kept, s.Has(gate))
		}
	}
}

// takesPolicies has the API server judge every admission policy of ours, without keeping it.
func (w *fixture) takesPolicies(t *testing.T) {
	t.Helper()
	o := admission.DefaultOptions()
	o.Identity, o.AuthorizeQueues, o.ForbidForeignGPUs = admission.Enforce, true, true
	for _, object := range o.Policies() {
		if err := w.client.Create(t.Context(), object, client.DryRunAll); err != nil {
			t.Errorf("%T %s: %v", object, object.GetName(), err)
		}
	}
}

// said is all that the process said.
func (p *process) said(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// saysWhatIsLacking checks that a role says of its needs, once each, those that a version of Kubernetes lacks.
func (p *process) saysWhatIsLacking(t testing.TB, minor int) {
	t.Helper()
	said := p.said(t)
	for _, n := range served.Needs() {
		want := 0
		if slices.Contains(n.Roles, p.role) && n.Since > 0 && !n.Has(minor) {
			want = 1
		}
		if got := strings.Count(said, "lacking="+string(n.Name)+" "); got != want {
			t.Errorf("%s on %s says %d times that it lacks %s, want %d", p.role, served.Minor(minor), got, n.Name, want)
		}
	}
}

// complainsOfNothing checks that nothing failed, and no watch least of all.
func (p *process) complainsOfNothing(t testing.TB) {
	t.Helper()
	for line := range strings.Lines(p.said(t)) {
		if low := strings.ToLower(line); strings.Contains(line, "level=ERROR") || strings.Contains(low, "reflector") || strings.Contains(low, "failed to watch") || strings.Contains(low, "failed to list") {
			t.Errorf("%s says: %s", p.role, line)
		}
	}
}

// TestUpgrade: under running roles, an API server that behaves like 1.34 and serves no claims becomes one that is 1.37. They say so, and
// work with what has come, without a restart.
func TestUpgrade(t *testing.T) {
	door := newDoor(t)
	dir := t.TempDir()
	start := func(o lab.Options) *lab.Lab {
		t.Helper()
		o.Dir, o.CRDs = dir, crds.Documents()
		o.Logf = func(format string, args ...any) {
			if line := fmt.Sprintf(format, args...); !strings.Contains(line, `"logger":"etcd-client"`) {
				t.Log(line)
			}
		}
		l, err := lab.Start(context.WithoutCancel(t.Context()), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Stop(); err != nil {
				t.Error(err)
			}
		})
		door.leadsTo(t, l)
		return l
	}
	old := start(lab.Options{
		Kubernetes: "1.34", Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "n", Count: 1, GPUs: 8}}},
		APIServerArgs: []string{"--runtime-config=resource.k8s.io/v1=false"},
	})
	w := &fixture{lab: old}
	s := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(s), queuev2.AddToScheme(s))
	if err != nil {
		t.Fatal(err)
	}
	config := old.Config()
	config.Host = "https://" + door.Addr().String()
	if w.client, err = client.New(config, client.Options{Scheme: s}); err != nil {
		t.Fatal(err)
	}
	w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys.Namespace}})
	w.create(t, queue("root", ""))
	w.create(t, queue("team", "root"))
	p := newProcess(t, "all", door.kubeconfig)
	p.start()
	p.awaitReady(t)
	running := func(namespace string, n int, limit time.Duration) {
		t.Helper()
		var have int
		err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
			var pods corev1.PodList
			if err := w.client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
				return false, nil // it is away for a moment
			}
			have = 0
			for i := range pods.Items {
				if pods.Items[i].Status.Phase == corev1.PodRunning {
					have++
				}
			}
			return have == n, nil
		})
		if err != nil {
			t.Fatalf("%d of %d pods in %s run after %s: %v", have, n, namespace, limit, err)
		}
	}
	made := func(namespace string, objects ...client.Object) {
		t.Helper()
		w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		for _, o := range objects {
			w.create(t, o)
		}
	}
	made("before", gang("before", "gang", 4, ""))
	running("before", 4, 30*time.Second)
	if said := p.said(t); strings.Count(said, "lacking="+string(served.ResourceClaims)+" ") != 1 || strings.Contains(said, "lacking="+string(served.ExtendedByClaim)) {
		t.Errorf("the process does not say once that claims are lacking, and no more:\n%s", p.tail(20))
	}
	p.complainsOfNothing(t)

	if err := old.Stop(); err != nil {
		t.Fatal(err)
	}
	pool := lab.Pool{Name: "d", Count: 1, Devices: []lab.Devices{{Driver: claimDriver, Class: claimClass, Count: perNode, Attributes: map[string]string{"model": "GB200"}}}}
	begun := time.Now()
	w.lab = start(lab.Options{Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "n", Count: 1, GPUs: 8}, pool}}})
	made("after", claimTemplate("after"), claimants("after", perNode))
	running("after", perNode, 2*time.Minute)
	t.Logf("claims are served to running pods %s after the upgrade began", time.Since(begun).Round(time.Second))
	running("before", 4, time.Second)
	err = wait.PollUntilContextTimeout(t.Context(), time.Second, 2*time.Minute, true, func(context.Context) (bool, error) {
		return strings.Contains(p.said(t), "found="+string(served.ResourceClaims)), nil
	})
	if err != nil {
		t.Error("the process does not say what has come:\n", p.tail(20))
	}
	p.stop(t)
}

// door is an address of this machine that leads to a lab, and later to another.
type door struct {
	net.Listener
	kubeconfig string

	mu sync.Mutex
	to string
}

func newDoor(t *testing.T) *door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{Listener: l, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	var passing sync.WaitGroup
	t.Cleanup(func() { l.Close(); passing.Wait() })
	passing.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			to := d.to
			d.mu.Unlock()
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			passing.Go(func() { _, _ = io.Copy(out, in); out.Close() })
			passing.Go(func() { _, _ = io.Copy(in, out); in.Close() })
		}
	})
	return d
}

// leadsTo has it lead to a lab from now on. Connections that there are end with their lab.
func (d *door) leadsTo(t *testing.T, l *lab.Lab) {
	t.Helper()
	host, err := url.Parse(l.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.to = host.Host
	d.mu.Unlock()
	text, err := os.ReadFile(l.Kubeconfig())
	if err == nil {
		err = os.WriteFile(d.kubeconfig, []byte(strings.ReplaceAll(string(text), host.Host, d.Addr().String())), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

//go:build lab

package podgroup

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2/ktesting"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/crds"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestOnARealAPIServer is about what a fake one cannot prove: that the API server takes the patches, stores what they
// say, and that its watch events then lead to no further write.
func TestOnARealAPIServer(t *testing.T) {
	var definitions [][]byte
	for _, kind := range []string{"podgroups", "queues"} {
		crd, err := crds.YAML("scheduling.run.ai", kind)
		if err != nil {
			t.Fatal(err)
		}
		definitions = append(definitions, crd)
	}
	l, err := lab.Start(t.Context(), lab.Options{
		CRDs: definitions, Logf: t.Logf,
		Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "gpu", Prefix: "node-", Count: 1, GPUs: 8, CPU: "16"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v2.AddToScheme, v2alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.NewWithWatch(l.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	shared, err := cache.New(l.Config(), cache.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	log, _ := ktesting.NewTestContext(t)
	role, err := New(control.Shell{Cache: shared, Client: c, Log: log}, nil, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- shared.Start(ctx) }()
	go func() { ended <- role.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})

	ns := func(pg *v2alpha2.PodGroup) { pg.Namespace = "default" }
	create := func(obj client.Object) {
		t.Helper()
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	create(makeGroup("gang", ns, says(v2alpha2.NonPreemptible)))
	pod := makePod("a", containers(container("cpu", "1500m", "memory", "1Gi")), func(p *corev1.Pod) {
		p.Namespace, p.UID, p.Status = "default", "", corev1.PodStatus{}
		p.Spec.Containers[0].Image = "any"
		p.Spec.Containers[0].Resources.Limits = list("nvidia.com/gpu", "2") // requests of a device follow its limit
	})
	create(pod)
	asks := map[string]string{"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2"}
	await := func(what string, requested, allocated, fixed map[string]string) *v2alpha2.PodGroup {
		t.Helper()
		deadline, stop := context.WithTimeout(t.Context(), 15*time.Second)
		defer stop()
		groups, err := c.Watch(deadline, &v2alpha2.PodGroupList{}, client.InNamespace("default"))
		if err != nil {
			t.Fatal(err)
		}
		defer groups.Stop()
		var d string
		for e := range groups.ResultChan() {
			pg, ok := e.Object.(*v2alpha2.PodGroup)
			if !ok {
				t.Fatalf("%s: event %+v", what, e)
			}
			s := pg.Status.ResourcesStatus
			if d = cmp.Diff([]map[string]string{requested, allocated, fixed},
				[]map[string]string{shown(s.Requested), shown(s.Allocated), shown(s.AllocatedNonPreemptible)}); d == "" {
				return pg
			}
		}
		t.Fatalf("%s: %s", what, d)
		return nil
	}
	none := map[string]string{}
	await("a pod asks", asks, none, none)
	if err := c.SubResource("binding").Create(t.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node-0"}}); err != nil {
		t.Fatal(err)
	}
	pg := await("and is bound", asks, asks, asks)

	// The scheduler's part of the status is not ours to touch.
	body := []byte(`{"status":{"schedulingConditions":[{"type":"UnschedulableOnNodePool","nodePool":"default"}]},"spec":{"preemptibility":"preemptible"}}`)
	if err := c.Status().Patch(t.Context(), pg.DeepCopy(), client.RawPatch("application/merge-patch+json", body)); err != nil {
		t.Fatal(err)
	}
	if err := c.Patch(t.Context(), pg.DeepCopy(), client.RawPatch("application/merge-patch+json", body)); err != nil {
		t.Fatal(err)
	}
	pg = await("the gang becomes preemptible", asks, asks, none)
	if len(pg.Status.SchedulingConditions) != 1 {
		t.Errorf("scheduling conditions: %+v", pg.Status.SchedulingConditions)
	}

	// Quiet: no event of ours follows our own writes.
	quiet, stop := context.WithTimeout(t.Context(), 4*time.Second)
	defer stop()
	groups, err := c.Watch(quiet, &v2alpha2.PodGroupList{}, client.InNamespace("default"), &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: pg.ResourceVersion},
	})
	if err != nil {
		t.Fatal(err)
	}
	for e := range groups.ResultChan() {
		t.Errorf("a write of nothing: %s %+v", e.Type, e.Object)
	}

	if err := c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	await("the pod goes", none, none, none)
}

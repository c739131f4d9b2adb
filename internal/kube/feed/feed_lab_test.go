//go:build lab

package feed

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-scheduler/muster/api/crds"
	kaiv1alpha1 "github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestLab follows a pod through a real API server and a real cache, and audits the store against fresh lists.
func TestLab(t *testing.T) {
	log.SetLogger(logr.Discard())
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	var definitions [][]byte
	for _, file := range crds.All() {
		definitions = append(definitions, file.YAML)
	}
	l, err := lab.Start(ctx, lab.Options{
		CRDs: definitions, Logf: t.Logf,
		Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "gpu", Prefix: "n", Count: 2, GPUs: 8, CPU: "16"}}},
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
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, kaiv1alpha1.AddToScheme, v1alpha2.AddToScheme, v2.AddToScheme, v2alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	direct, err := client.New(l.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	options := cache.Options{Scheme: scheme}
	Trim(&options, Reads{})
	shared, err := cache.New(l.Config(), options)
	if err != nil {
		t.Fatal(err)
	}
	f, store := New(FromCache(shared), Options{StorageCapacity: true}), cluster.NewStore(cluster.Options{})
	ended := make(chan error, 2)
	go func() { ended <- shared.Start(ctx) }()
	go func() { ended <- f.Run(ctx) }()

	await := func(what string, ok func(*cluster.Snapshot) bool) {
		t.Helper()
		for {
			f.Drain(store)
			if f.Synced() && ok(store.Snapshot(cluster.InstantOf(time.Now()))) {
				return
			}
			select {
			case <-f.Changed():
			case err := <-ended:
				t.Fatalf("%s: ended early: %v", what, err)
			case <-ctx.Done():
				t.Fatalf("%s: %v", what, ctx.Err())
			}
		}
	}
	create := func(o client.Object) {
		t.Helper()
		if err := direct.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	phase := func(uid string, want cluster.Phase, node string) func(*cluster.Snapshot) bool {
		return func(s *cluster.Snapshot) bool {
			found := false
			s.EachPod(func(p *cluster.Pod) {
				found = found || p.UID == uid && p.Phase == want && p.NodeName == node && p.Gang != cluster.None
			})
			return found
		}
	}
	await("nodes", func(s *cluster.Snapshot) bool {
		return len(s.NodeOrder) == 2 && s.Node(s.NodeOrder[0]).Problem == "" && s.Node(s.NodeOrder[0]).Allocatable.At(cluster.GPU) == 8000
	})
	name := func() string {
		return store.Snapshot(cluster.Instant{}).Node(store.Snapshot(cluster.Instant{}).NodeOrder[0]).Name
	}()

	create(&v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: v2.QueueSpec{Resources: &v2.QueueResources{GPU: v2.QueueResource{Quota: -1, Limit: -1}}}})
	g := gang("g", "")
	g.Namespace, g.UID = "default", ""
	create(g)
	p := pod("p", "", 0)
	p.Namespace = "default"
	p.Spec.Containers[0].Image = "busybox"
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"nvidia.com/gpu": p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"]}
	create(p)
	await("pending", phase(string(p.UID), cluster.Pending, ""))

	br := (&kai.Intent{Namespace: "default", Pod: "p", PodUID: p.UID, Node: name, GPU: 1000, Bundle: "b", Size: 1}).BindRequest()
	create(br)
	await("binding", phase(string(p.UID), cluster.Binding, name))
	br.Status.Phase = v1alpha2.BindRequestFailed
	if err := direct.Status().Update(ctx, br); err != nil {
		t.Fatal(err)
	}
	await("pending again", phase(string(p.UID), cluster.Pending, ""))
	if got := f.StaleBindRequests(); len(got) != 1 || got[0].UID != br.UID || got[0].Reason != Failed {
		t.Errorf("stale: %+v", got)
	}
	if err := l.Client().CoreV1().Pods("default").Bind(ctx, &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: p.UID}, Target: v1.ObjectReference{Kind: "Node", Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await("running", phase(string(p.UID), cluster.Running, name))

	// Lists are taken at moments of their own, so a difference may be an event on its way: it must go.
	await("audit", func(s *cluster.Snapshot) bool {
		fresh := cluster.NewStore(cluster.Options{})
		if err := Rebuild(ctx, direct, Options{StorageCapacity: true}, fresh); err != nil {
			t.Fatal(err)
		}
		diff := Compare(s, fresh.Snapshot(s.Now))
		if len(diff) > 0 {
			t.Log("still different: " + strings.Join(diff, "\n"))
		}
		return len(diff) == 0
	})
	if err := direct.Delete(ctx, p, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	await("gone", func(s *cluster.Snapshot) bool {
		n := 0
		s.EachPod(func(*cluster.Pod) { n++ })
		return n == 0 && len(f.StaleBindRequests()) == 0 // the garbage collector took the request
	})
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(fmt.Errorf("after the end: %w", err))
		}
	}
}

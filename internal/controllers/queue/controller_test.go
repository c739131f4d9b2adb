package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/muster-scheduler/muster/api/kai/keys"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// rig runs the role in a bubble of fake time, against an API server that only knows Queues.
type rig struct {
	t              *testing.T
	client         client.Client
	registry       *prometheus.Registry
	queues, groups *controllertest.FakeInformer
	stop           func()

	mu     sync.Mutex
	writes map[string]int
}

// startRig starts the role with the given queues; the caller is in a synctest bubble.
func startRig(t *testing.T, queues ...*v2.Queue) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v2.AddToScheme, v2alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{t: t, writes: map[string]int{}, registry: prometheus.NewRegistry()}
	b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v2.Queue{})
	for _, q := range queues {
		b = b.WithObjects(q)
	}
	r.client = b.WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: r.patch}).Build()
	informers := &informertest.FakeInformers{Scheme: scheme}
	informer := func(obj client.Object) *controllertest.FakeInformer {
		i, err := informers.FakeInformerFor(t.Context(), obj)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	r.queues, r.groups = informer(&v2.Queue{}), informer(&v2alpha2.PodGroup{})
	c, err := New(Deps{Cache: informers, Client: r.client, Log: logr.Discard(), Registry: r.registry}, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	synctest.Wait()
	for _, q := range queues {
		r.queues.Add(q)
	}
	return r
}

// patch counts, and plays the watch event that follows a write.
func (r *rig) patch(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
	r.mu.Lock()
	r.writes[obj.GetName()]++
	r.mu.Unlock()
	if err := c.SubResource(sub).Patch(ctx, obj, p, o...); err != nil {
		return err
	}
	q := r.get(obj.GetName())
	r.queues.Update(q, q)
	return nil
}

func (r *rig) get(name string) *v2.Queue {
	q := &v2.Queue{}
	if err := r.client.Get(r.t.Context(), client.ObjectKey{Name: name}, q); err != nil {
		r.t.Error(err)
	}
	return q
}

// sleep lets the bubble's clock run.
func (r *rig) sleep(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// expect compares the writes since the last call.
func (r *rig) expect(what string, want map[string]int) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := cmp.Diff(want, r.writes); d != "" {
		r.t.Errorf("%s: %s", what, d)
	}
	r.writes = map[string]int{}
}

func TestFillWritesEachQueueOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, makeQueue("dept", ""), makeQueue("team", "dept"), makeQueue("idle", "dept"))
		r.sleep(4500 * time.Millisecond)
		r.expect("children are found", map[string]int{"dept": 1})

		const n = 4000
		for i := range n {
			r.groups.Add(makeGroup(fmt.Sprint(i), "team", 1))
			r.sleep(2500 * time.Microsecond) // ten seconds in all
		}
		r.sleep(1100 * time.Millisecond)
		r.mu.Lock()
		for _, name := range []string{"dept", "team"} {
			if w := r.writes[name]; w < 8 || w > 11 {
				t.Errorf("queue %s: %d writes in eleven seconds", name, w)
			}
		}
		delete(r.writes, "dept")
		delete(r.writes, "team")
		r.mu.Unlock()
		r.expect("others", map[string]int{})
		for _, name := range []string{"dept", "team"} {
			s := r.get(name).Status
			if got, want := s.Allocated["nvidia.com/gpu"], int64(n); got.Value() != want {
				t.Errorf("queue %s: %s GPUs", name, got.String())
			}
		}
		r.sleep(10 * time.Second)
		r.expect("a quiet cluster", map[string]int{})
	})
}

func TestRestartWritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, child := makeQueue("dept", ""), makeQueue("team", "dept")
		g := makeGroup("g", "team", 1)
		for _, q := range []*v2.Queue{parent, child} {
			s := g.Status.ResourcesStatus
			q.Status = v2.QueueStatus{Requested: s.Requested, Allocated: s.Allocated, AllocatedNonPreemptible: s.AllocatedNonPreemptible}
		}
		parent.Status.ChildQueues = []string{"team"}
		r := startRig(t, child, parent)
		r.groups.Add(g)
		r.sleep(10 * time.Second)
		r.expect("nothing had changed", map[string]int{})
	})
}

// The field is repeated in the annotation once, and the annotation is still there when the field is not.
func TestExtendedResourcesOutliveTheirField(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const copied = `{"rdma/hca":{"quota":4,"overQuotaWeight":0,"limit":8}}`
		q := makeQueue("q", "", func(q *v2.Queue) {
			q.Spec.Resources.Extended = map[string]v2.QueueResource{"rdma/hca": {Quota: 4, Limit: 8}}
		})
		r := startRig(t, q)
		r.sleep(5 * time.Second)
		got := r.get("q")
		if a := got.Annotations[keys.ExtendedResourcesAnnotation]; a != copied {
			t.Fatalf("annotation %q", a)
		}
		got.Spec.Resources.Extended = nil
		if err := r.client.Update(t.Context(), got); err != nil {
			t.Fatal(err)
		}
		r.queues.Update(q, got)
		r.sleep(5 * time.Second)
		if a := r.get("q").Annotations[keys.ExtendedResourcesAnnotation]; a != copied {
			t.Errorf("annotation %q after the field went", a)
		}
		r.expect("the status is as it was", map[string]int{})
	})
}

func TestMetricsEndWithTheRole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, makeQueue("dept", ""))
		served := func() int {
			families, err := r.registry.Gather()
			if err != nil {
				t.Error(err)
			}
			n := 0
			for _, f := range families {
				if f.GetName() == "kai_queue_info" {
					n += len(f.GetMetric())
				}
			}
			return n
		}
		if n := served(); n != 1 {
			t.Errorf("%d queues while running", n)
		}
		r.stop()
		if n := served(); n != 0 {
			t.Errorf("%d queues after the end", n)
		}
	})
}

package nodescale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-scheduler/muster/internal/engine/builtin"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// rig runs the role in a bubble of fake time, against an API server that keeps scaling pods and plays their events.
type rig struct {
	t        *testing.T
	client   client.Client
	metrics  *metrics
	pods     *controllertest.FakeInformer
	requests *controllertest.FakeInformer

	mu    sync.Mutex
	story []string
	fail  error // what the next writes get
}

func startRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha2.AddToScheme, v2alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{t: t}
	r.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&corev1.Pod{}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			if err := r.write("create " + obj.GetName()); err != nil {
				return err
			}
			obj.SetUID(types.UID("uid-" + obj.GetName()))
			obj.SetCreationTimestamp(metav1.Now())
			if err := c.Create(ctx, obj, o...); err != nil {
				return err
			}
			r.pods.Add(obj.DeepCopyObject().(*corev1.Pod))
			return nil
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.DeleteOption) error {
			if err := r.write("delete " + obj.GetName()); err != nil {
				return err
			}
			have := &corev1.Pod{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(obj), have); err != nil {
				return err
			}
			if err := c.Delete(ctx, obj, o...); err != nil {
				return err
			}
			r.pods.Delete(have)
			return nil
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
			if err := r.write("mark " + obj.GetName()); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, obj, p, o...)
		},
	}).Build()
	informers := &informertest.FakeInformers{Scheme: scheme}
	informer := func(obj client.Object) *controllertest.FakeInformer {
		i, err := informers.FakeInformerFor(t.Context(), obj)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	r.pods, r.requests = informer(&corev1.Pod{}), informer(&v1alpha2.BindRequest{})
	informer(&v2alpha2.PodGroup{})
	c, err := New(Deps{Cache: informers, Client: r.client, Log: logr.Discard(), Registry: prometheus.NewRegistry(), NodesHelp: builtin.Registry().NodesHelp()}, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	r.metrics = c.metrics
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return r
}

func (r *rig) write(what string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.story = append(r.story, what)
	return r.fail
}

// pass lets the bubble's clock run, and compares what was written meanwhile.
func (r *rig) pass(d time.Duration, what string, want ...string) {
	r.t.Helper()
	<-time.After(d)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if diff := cmp.Diff(want, slices.Clone(r.story)); diff != "" {
		r.t.Errorf("%s: %s", what, diff)
	}
	r.story = nil
}

func (r *rig) get(name string) *corev1.Pod {
	p := &corev1.Pod{}
	if err := r.client.Get(r.t.Context(), client.ObjectKey{Namespace: keys.ScaleAdjustNamespace, Name: name}, p); err != nil {
		r.t.Error(err)
	}
	return p
}

// TestLifeOfAScalingPod: two pods that wait share one; it ends; they are given a minute to find the room; one does, for the
// other another is made.
func TestLifeOfAScalingPod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t)
		p, q := sharerPod("p"), sharerPod("q", annotated(keys.GPUFractionAnnotation, "0.4"))
		r.pods.Add(p)
		r.pods.Add(q)
		r.pass(time.Second, "they wait", "create ns-p", "mark ns-p")
		have := r.get("ns-p")
		if c := have.Status.Conditions; len(c) != 1 || c[0].Type != corev1.PodScheduled || c[0].Status != corev1.ConditionFalse || c[0].Reason != corev1.PodReasonUnschedulable {
			t.Errorf("conditions: %+v", c)
		}
		r.pass(time.Hour, "nothing happens")

		ran := have.DeepCopy()
		ran.Spec.NodeName, ran.Status.Phase = "new", corev1.PodSucceeded
		r.pods.Update(have, ran)
		r.pass(time.Second, "a node came", "delete ns-p")
		bound := sharerPod("p", scheduled(corev1.ConditionTrue, ""), func(p *corev1.Pod) { p.Spec.NodeName = "new" })
		r.pods.Update(p, bound)
		r.pass(50*time.Second, "who waits looks at it first")
		r.pass(15*time.Second, "a minute is over", "create ns-q", "mark ns-q")

		r.requests.Add(&v1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q", UID: "r"}, Spec: v1alpha2.BindRequestSpec{PodName: "q"}})
		r.pass(time.Second, "it is being bound", "delete ns-q")
		for why, n := range map[string]float64{whyEnded: 1, whyPlaced: 1} {
			if got := testutil.ToFloat64(r.metrics.removed.WithLabelValues(why)); got != n {
				t.Errorf("removed as %s: %v", why, got)
			}
		}
		if got := testutil.ToFloat64(r.metrics.created); got != 2 {
			t.Errorf("%v created", got)
		}
	})
}

// TestFailedWritesAreRepeated: without a namespace nothing is lost but time, and not the API server's.
func TestFailedWritesAreRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t)
		r.fail = errors.New("namespaces \"kai-scale-adjust\" not found")
		r.pods.Add(sharerPod("p"))
		r.pass(10*time.Second, "at a growing distance", "create ns-p", "create ns-p", "create ns-p", "create ns-p")
		r.mu.Lock()
		r.fail = nil
		r.mu.Unlock()
		r.pass(time.Minute, "until it works", "create ns-p", "mark ns-p")
	})
}

// TestNameTaken: namespaces and names put together may be another pod's; a scaling pod whose event is late is not made twice.
func TestNameTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		other := sharerPod("b-c")
		other.Namespace = "a"
		theirs := o.newPod(other, 1, true) // a/b-c
		mine := o.newPod(sharerPod("p"), 1, true)
		r := startRig(t, theirs, mine)
		pod := sharerPod("c")
		pod.Namespace = "a-b"
		r.pods.Add(pod)
		second := podName(types.NamespacedName{Namespace: "a-b", Name: "c"}, false)
		r.pass(time.Second, "a second name", "create a-b-c", "create "+second, "mark "+second)
		r.pods.Delete(pod)
		r.pass(time.Second, "it is gone", "delete "+second)
		r.pods.Add(sharerPod("p"))
		r.pass(time.Second, "is there already", "create ns-p")
		if !strings.HasPrefix(second, "a-b-c-") {
			t.Errorf("name %s", second)
		}
	})
}

// TestBurstIsOneLook: many pods that come at once are packed together.
func TestBurstIsOneLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t)
		for i := range 100 {
			r.pods.Add(sharerPod(fmt.Sprintf("p%02d", i), annotated(keys.GPUFractionAnnotation, "0.1")))
		}
		var want []string
		for i := range 10 {
			want = append(want, fmt.Sprintf("create ns-p%02d", i*10), fmt.Sprintf("mark ns-p%02d", i*10))
		}
		r.pass(time.Minute, "ten devices for a hundred tenths", want...)
	})
}

package nodescale

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/kube/control"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// fixture runs the role in a bubble of fake time.
type fixture struct {
	*kubetest.Server
	t       *testing.T
	metrics *metrics
}

func startFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	r := &fixture{Server: kubetest.New(kubetest.Options{}), t: t}
	r.Put(objects...)
	r.run(r.Process("nodescale"))
	return r
}

// run runs the role in a process until the test ends, or what it returns is called.
func (r *fixture) run(p *kubetest.Process) (stop func()) {
	return p.Run(r.t, func(objects cache.Cache, writer client.Client) (func(context.Context) error, error) {
		c, err := New(control.Shell{Cache: objects, Client: writer, Log: logr.Discard(), Registry: prometheus.NewRegistry()}, builtin.Registry().NodesHelp(), DefaultOptions())
		if err != nil {
			return nil, err
		}
		r.metrics = c.metrics
		return c.Run, nil
	})
}

func home() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys.ScaleAdjustNamespace}}
}

// pass lets the bubble's clock run, and compares what was written meanwhile.
func (r *fixture) pass(d time.Duration, what string, want ...string) {
	r.t.Helper()
	<-time.After(d)
	synctest.Wait()
	var got []string
	for _, w := range r.Writes() {
		verb := map[string]string{"create Pod": "create", "patch Pod": "mark", "delete Pod": "delete"}[w.Verb+" "+w.Kind]
		got = append(got, verb+" "+w.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("%s: %s", what, diff)
	}
}

func (r *fixture) get(name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: keys.ScaleAdjustNamespace, Name: name}}
	if !r.Get(p) {
		r.t.Errorf("no pod %s", name)
	}
	return p
}

// TestLifeOfAScalingPod: two pods that wait share one; it ends; they are given a minute to find the room; one does, for the
// other another is made.
func TestLifeOfAScalingPod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startFixture(t, home())
		p, q := sharerPod("p"), sharerPod("q", annotated(keys.GPUFractionAnnotation, "0.4"))
		r.Put(p)
		r.Put(q)
		r.pass(time.Second, "they wait", "create ns-p", "mark ns-p")
		have := r.get("ns-p")
		if c := have.Status.Conditions; len(c) != 1 || c[0].Type != corev1.PodScheduled || c[0].Status != corev1.ConditionFalse || c[0].Reason != corev1.PodReasonUnschedulable {
			t.Errorf("conditions: %+v", c)
		}
		r.pass(time.Hour, "nothing happens")

		ran := have.DeepCopy()
		ran.Spec.NodeName, ran.Status.Phase = "new", corev1.PodSucceeded
		r.Put(ran)
		r.pass(time.Second, "a node came", "delete ns-p")
		bound := sharerPod("p", scheduled(corev1.ConditionTrue, ""), func(p *corev1.Pod) { p.Spec.NodeName = "new" })
		r.Put(bound)
		r.pass(50*time.Second, "who waits looks at it first")
		r.pass(15*time.Second, "a minute is over", "create ns-q", "mark ns-q")

		r.Put(&v1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q", UID: "r"}, Spec: v1alpha2.BindRequestSpec{PodName: "q"}})
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
		r := startFixture(t)
		r.Put(sharerPod("p"))
		r.pass(10*time.Second, "at a growing distance", "create ns-p", "create ns-p", "create ns-p", "create ns-p")
		r.Put(home())
		r.pass(time.Minute, "until it works", "create ns-p", "mark ns-p")
	})
}

// TestNameTaken: namespaces and names put together may be another pod's; a scaling pod whose event is late, and of which no answer
// told, is not made twice.
func TestNameTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		other := sharerPod("b-c", annotated(keys.GPUFractionAnnotation, "0.9"))
		other.Namespace = "a"
		r := startFixture(t, home(), other, o.newPod(other, 1, true)) // a/b-c
		pod := sharerPod("c")
		pod.Namespace = "a-b"
		r.Put(pod)
		second := podName(types.NamespacedName{Namespace: "a-b", Name: "c"}, false)
		r.pass(time.Second, "a second name", "create a-b-c", "create "+second, "mark "+second)
		r.Remove(pod)
		r.pass(time.Second, "it is gone", "delete "+second)
		r.Put(sharerPod("p"))
		synctest.Wait()
		r.Hold("Pod")
		r.Fault(kubetest.Nth(1, kubetest.Is("create Pod"), kubetest.LostAnswer()))
		r.pass(10*time.Second, "is there already", "create ns-p", "create ns-p")
		r.Release("Pod")
		r.pass(time.Minute, "its event has come")
		if !strings.HasPrefix(second, "a-b-c-") {
			t.Errorf("name %s", second)
		}
	})
}

// TestBurstIsOneLook: many pods that come at once are packed together.
func TestBurstIsOneLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startFixture(t, home())
		for i := range 100 {
			r.Put(sharerPod(fmt.Sprintf("p%02d", i), annotated(keys.GPUFractionAnnotation, "0.1")))
		}
		var want []string
		for i := range 10 {
			want = append(want, fmt.Sprintf("create ns-p%02d", i*10), fmt.Sprintf("mark ns-p%02d", i*10))
		}
		r.pass(time.Minute, "ten devices for a hundred tenths", want...)
	})
}

// TestCrashes: the role dies at each of its writes, before or after it, and the next one makes of what is left what should be.
func TestCrashes(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 3; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d after=%v", n, after), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					o := DefaultOptions()
					r := &fixture{Server: kubetest.New(kubetest.Options{}), t: t}
					left := o.newPod(sharerPod("left"), 1, true) // its pod is gone
					p := r.Process("nodescale")
					p.CrashAt(n, after)
					r.Put(home(), left, sharerPod("p"))
					stop := r.run(p)
					<-p.Dead()
					stop()
					r.run(r.Process("nodescale"))
					<-time.After(time.Minute)
					if r.Server.Get(left) {
						t.Error("what nobody needs is still there")
					}
					r.get("ns-p")
					r.Writes()
					r.pass(time.Hour, "at rest")
				})
			})
		}
	}
}

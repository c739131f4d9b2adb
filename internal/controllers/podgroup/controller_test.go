package podgroup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// rig runs the role in a bubble of fake time, against an API server that only knows PodGroups.
type rig struct {
	t      *testing.T
	client client.Client
	role   *Controller

	pods, groups *controllertest.FakeInformer

	mu     sync.Mutex
	writes []time.Duration // since the start
	fail   error           // what the next writes get
	start  time.Time
}

// startRig starts the role; the caller is in a synctest bubble. Objects are the PodGroups that exist.
func startRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, schedulingv1.AddToScheme, resourcev1.AddToScheme, v2.AddToScheme, v2alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{t: t, start: time.Now()}
	r.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v2alpha2.PodGroup{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: r.patch}).Build()
	informers := &informertest.FakeInformers{Scheme: scheme}
	informer := func(obj client.Object) *controllertest.FakeInformer {
		i, err := informers.FakeInformerFor(t.Context(), obj)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	r.pods, r.groups = informer(&corev1.Pod{}), informer(&v2alpha2.PodGroup{})
	informer(&corev1.Node{})
	informer(&v2.Queue{})
	informer(&schedulingv1.PriorityClass{})
	informer(&resourcev1.ResourceClaim{})
	c, err := New(Deps{Cache: informers, Client: r.client, Log: logr.Discard(), Registry: prometheus.NewRegistry()}, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	r.role = c
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

// patch counts, and plays the watch event that follows a write.
func (r *rig) patch(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
	r.mu.Lock()
	r.writes = append(r.writes, time.Since(r.start))
	err := r.fail
	r.mu.Unlock()
	if err != nil {
		return err
	}
	if err := c.SubResource(sub).Patch(ctx, obj, p, o...); err != nil {
		return err
	}
	r.echo(obj.GetName())
	return nil
}

func (r *rig) echo(name string) {
	pg := r.get(name)
	r.groups.Update(pg, pg)
}

func (r *rig) get(name string) *v2alpha2.PodGroup {
	pg := &v2alpha2.PodGroup{}
	if err := r.client.Get(r.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, pg); err != nil {
		r.t.Error(err)
	}
	return pg
}

// sleep lets the bubble's clock run.
func (r *rig) sleep(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (r *rig) wrote() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.writes
	r.writes = nil
	return w
}

func (r *rig) expect(what string, want ...time.Duration) {
	r.t.Helper()
	if d := cmp.Diff(want, r.wrote()); d != "" {
		r.t.Errorf("%s: writes at other times: %s", what, d)
	}
}

const ms = time.Millisecond

func TestWritesAreFewAndTimely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pg := makeGroup("gang")
		r := startRig(t, pg)
		r.groups.Add(pg)
		r.pods.Add(makePod("a"))
		r.sleep(500 * ms)
		r.pods.Update(makePod("a"), makePod("a", on("n1")))
		r.sleep(400 * ms)
		r.pods.Update(makePod("a", on("n1")), makePod("a", on("n1"), phase(corev1.PodRunning)))
		r.sleep(5 * time.Second)
		r.expect("a gang that is placed at once", 1500*ms)

		r.pods.Update(makePod("a", on("n1")), makePod("a", on("n1"), phase(corev1.PodSucceeded)))
		r.sleep(600 * ms)
		r.pods.Delete(makePod("a", on("n1"), phase(corev1.PodSucceeded)))
		r.sleep(5 * time.Second)
		r.expect("its end", 6900*ms)
		if s := r.get("gang").Status.ResourcesStatus; len(s.Requested)+len(s.Allocated) != 0 {
			t.Errorf("left over: %+v", s)
		}
	})
}

func TestRequestsAloneAreWrittenWithinThreeSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pg := makeGroup("gang")
		r := startRig(t, pg)
		r.groups.Add(pg)
		for i := range 50 { // a stream of events must not push the write off for ever
			r.pods.Add(makePod(fmt.Sprint(i)))
			r.sleep(210 * ms)
		}
		r.sleep(5 * time.Second)
		r.expect("a trickle of pods over ten seconds", 3000*ms, 6150*ms, 9300*ms, 12450*ms)
		if got := shown(r.get("gang").Status.ResourcesStatus.Requested)["nvidia.com/gpu"]; got != "50" {
			t.Errorf("requested %s GPUs", got)
		}
	})
}

func TestFillCostsAtMostTwoWritesPerGang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 400
		var objects []client.Object
		for i := range n {
			objects = append(objects, makeGroup(fmt.Sprintf("g%d", i)))
		}
		r := startRig(t, objects...)
		in := func(i int) func(*corev1.Pod) { return annotated(kai.PodGroupAnnotation, fmt.Sprintf("g%d", i)) }
		for i := range n { // created within a second, bound one by one over forty
			r.groups.Add(objects[i])
			r.pods.Add(makePod(fmt.Sprint(i), in(i)))
			r.sleep(2 * ms)
		}
		for i := range n {
			r.pods.Update(makePod(fmt.Sprint(i), in(i)), makePod(fmt.Sprint(i), in(i), on("n1")))
			r.sleep(100 * ms)
			r.pods.Update(makePod(fmt.Sprint(i), in(i), on("n1")), makePod(fmt.Sprint(i), in(i), on("n1"), phase(corev1.PodRunning)))
		}
		r.sleep(10 * time.Second)
		writes := len(r.wrote())
		if writes > 2*n {
			t.Errorf("%d writes for %d gangs", writes, n)
		}
		t.Logf("%d writes for %d gangs", writes, n)
		for i := range n {
			if got := shown(r.get(fmt.Sprintf("g%d", i)).Status.ResourcesStatus.Allocated)["nvidia.com/gpu"]; got != "1" {
				t.Fatalf("gang g%d: allocated %q", i, got)
			}
		}
	})
}

func TestRestartWritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pg := makeGroup("gang", observed(v2alpha2.PodGroupResourcesStatus{
			Requested: list("cpu", "2", "nvidia.com/gpu", "2"), Allocated: list("cpu", "2", "nvidia.com/gpu", "2"),
		}))
		r := startRig(t, pg)
		r.pods.Add(makePod("a", on("n1"), phase(corev1.PodRunning)))
		r.groups.Add(pg) // with one pod counted it looks wrong, and is reported
		r.pods.Add(makePod("b", on("n1"), phase(corev1.PodRunning)))
		r.sleep(10 * time.Second)
		r.expect("nothing had changed")
	})
}

func TestFailedWritesAreRepeatedAtAMeasuredPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pg := makeGroup("gang")
		r := startRig(t, pg)
		r.fail = errors.New("no such luck")
		r.groups.Add(pg)
		r.pods.Add(makePod("a", on("n1")))
		r.sleep(31500 * ms)
		r.expect("failures", 1000*ms, 2000*ms, 4000*ms, 8000*ms, 16000*ms, 24000*ms)
		r.mu.Lock()
		r.fail = nil
		r.mu.Unlock()
		r.sleep(10 * time.Second)
		r.expect("success", 32000*ms)
	})
}

// The PodGroup goes while its status waits to be written: no error, no retry, no end of the role.
func TestGangGoesBeforeItsWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t)                // the API server knows no gang
		r.groups.Add(makeGroup("gang")) // but the informer still does
		r.pods.Add(makePod("a", on("n1")))
		r.sleep(10 * time.Second)
		r.expect("one try", 1000*ms)
		r.groups.Delete(makeGroup("gang"))
		r.pods.Update(makePod("a", on("n1")), makePod("a", on("n1"), containers()))
		r.sleep(10 * time.Second)
		r.expect("none for a gang that is gone")
	})
}

// A pod deleted and made anew while the watch was down comes as one update.
func TestReplacedPodIsCountedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pg := makeGroup("gang")
		r := startRig(t, pg)
		r.groups.Add(pg)
		old := makePod("a", on("n1"))
		r.pods.Add(old)
		r.pods.Update(old, makePod("a", func(p *corev1.Pod) { p.UID = "another" }))
		r.sleep(5 * time.Second)
		s := r.get("gang").Status.ResourcesStatus
		if d := cmp.Diff(map[string]string{"cpu": "1", "nvidia.com/gpu": "1"}, shown(s.Requested)); d != "" || len(s.Allocated) != 0 {
			t.Errorf("requested %s; allocated %v", d, s.Allocated)
		}
	})
}

func TestBadOptionsAreNamed(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"podgroup role: --scheduler-name: at least one name is needed":       {MaxConcurrentReconciles: 1},
		"podgroup role: --scheduler-name: a name must not be empty":          {SchedulerNames: []string{""}, MaxConcurrentReconciles: 1},
		"podgroup role: --max-concurrent-reconciles=0: it must be 1 or more": {SchedulerNames: []string{"a"}},
	} {
		_, err := New(Deps{}, o)
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestPodGroupsWithoutPodsCostNothing: PodGroups that somebody makes in masses cost no write, and no memory once they are gone.
func TestPodGroupsWithoutPodsCostNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t)
		for i := range 2000 {
			r.groups.Add(makeGroup(fmt.Sprintf("g%d", i)))
		}
		r.sleep(10 * time.Second)
		for i := range 2000 {
			r.groups.Delete(makeGroup(fmt.Sprintf("g%d", i)))
		}
		r.sleep(10 * time.Second)
		r.expect("they hold nothing, and say so")
		if n := len(r.role.fold.gangs); n != 0 {
			t.Errorf("%d are remembered", n)
		}
	})
}

// TestFlipsAreWrittenAtOurPace: whoever changes something of a running pod, or writes into a PodGroup's status, twenty times a second
// causes one write a second at most, and what is nothing to us causes none.
func TestFlipsAreWrittenAtOurPace(t *testing.T) {
	t.Parallel()
	const flips, every = 20 * 60, 50 * ms
	t.Run("labels and annotations of a pod", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			pg := makeGroup("gang")
			r := startRig(t, pg)
			r.groups.Add(pg)
			r.pods.Add(makePod("a", on("n1")))
			r.sleep(5 * time.Second)
			r.expect("the pod", 1000*ms)
			was := makePod("a", on("n1"))
			for i := range flips {
				is := makePod("a", on("n1"), annotated("note", fmt.Sprint(i)))
				is.Labels = map[string]string{"kai.scheduler/queue": fmt.Sprint(i % 2)}
				r.pods.Update(was, is)
				was = is
				r.sleep(every)
			}
			r.expect("nothing that it holds changed")
		})
	})
	t.Run("the gang that a waiting pod says", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			here, there := makeGroup("gang"), makeGroup("other")
			r := startRig(t, here, there)
			r.groups.Add(here)
			r.groups.Add(there)
			was := makePod("a")
			r.pods.Add(was)
			for i := range flips {
				is := makePod("a", annotated(kai.PodGroupAnnotation, []string{"other", "gang"}[i%2]))
				r.pods.Update(was, is)
				was = is
				r.sleep(every)
			}
			r.sleep(5 * time.Second)
			if n := len(r.wrote()); n > 2*60/3+4 {
				t.Errorf("%d writes in a minute of two gangs", n)
			}
		})
	})
	t.Run("a status that somebody else writes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			pg := makeGroup("gang")
			r := startRig(t, pg)
			r.groups.Add(pg)
			r.pods.Add(makePod("a", on("n1")))
			r.sleep(5 * time.Second)
			r.wrote()
			for i := range flips {
				is := r.get("gang")
				is.Status.ResourcesStatus.Allocated = list("nvidia.com/gpu", fmt.Sprint(100+i))
				if err := r.client.Status().Update(t.Context(), is); err != nil {
					t.Fatal(err)
				}
				r.echo("gang")
				r.sleep(every)
			}
			if n := len(r.wrote()); n > 61 {
				t.Errorf("%d writes in a minute", n)
			}
			r.sleep(5 * time.Second)
			if got := shown(r.get("gang").Status.ResourcesStatus.Allocated)["nvidia.com/gpu"]; got != "1" {
				t.Errorf("what was written last stands: %s GPUs", got)
			}
		})
	})
}

package podgrouper

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// running starts the role and returns the informers of pods and PodGroups that drive it.
func (w *world) running() (pods, groups *controllertest.FakeInformer) {
	w.t.Helper()
	w.wrote = make(chan string, 100)
	for obj, at := range map[client.Object]**controllertest.FakeInformer{&corev1.Pod{}: &pods, &v2alpha2.PodGroup{}: &groups} {
		informer, err := w.cache.FakeInformerFor(w.t.Context(), obj)
		if err != nil {
			w.t.Fatal(err)
		}
		*at = informer
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.role.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			if err != nil {
				w.t.Errorf("run: %v", err)
			}
		case <-time.After(10 * time.Second):
			w.t.Error("the role does not end")
		}
	})
	// The sweep's ticker is the sign that the queue is there; the kinds' handlers are registered soon after.
	deadline := time.After(10 * time.Second)
	for !w.clock.HasWaiters() || !w.cache.listening() {
		select {
		case <-deadline:
			w.t.Fatal("the role does not start")
		case <-time.After(time.Millisecond):
		}
	}
	return pods, groups
}

// expect waits for writes, in any order of arrival up to their number.
func (w *world) expect(want ...string) {
	w.t.Helper()
	var got []string
	for range want {
		select {
		case text := <-w.wrote:
			got = append(got, text)
		case <-time.After(10 * time.Second):
			w.t.Fatalf("wrote %v, want %v", got, want)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		w.t.Errorf("(-want +got)\n%s", d)
	}
}

func (w *world) quiet() {
	w.t.Helper()
	select {
	case text := <-w.wrote:
		w.t.Errorf("unexpected: %s", text)
	default:
	}
}

// TestRun follows one Job through its life by the events that an API server sends.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, job("train", nil), podOf("p", ref("batch/v1", "Job", "train")), podOf("solo", nil))
	pods, groups := w.running()

	before := w.pod("p")
	pods.Add(before)
	w.expect("create PodGroup team/pg-train-u-train", "patch Pod team/p")

	// Our own write comes back, then the pod's status changes, and a foreign label: nothing to do, nothing queued.
	after := w.pod("p")
	pods.Update(before, after)
	running := after.DeepCopy()
	running.Status.Phase = corev1.PodRunning
	running.Labels = map[string]string{"seen": "yes"}
	pods.Update(after, running)

	// The Job is edited: its watch, begun by the first pod, says so.
	old := &metav1.PartialObjectMetadata{ObjectMeta: job("train", nil).ObjectMeta}
	edited := job("train", map[string]string{keys.BatchMinMemberAnnotation: "2"})
	if err := w.client.Update(t.Context(), withVersion(t, w, edited)); err != nil {
		t.Fatal(err)
	}
	kind := schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	w.cache.metadata[kind].Update(old, &metav1.PartialObjectMetadata{ObjectMeta: edited.ObjectMeta})
	w.expect("patch PodGroup team/pg-train-u-train")

	// Someone deletes the PodGroup.
	group := w.podGroup("pg-train-u-train")
	if err := w.client.Delete(t.Context(), group.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	groups.Delete(group)
	w.expect("create PodGroup team/pg-train-u-train")

	// Someone takes the pod out of its group.
	stray := w.pod("p")
	out := stray.DeepCopy()
	out.Annotations[keys.PodGroupAnnotation] = "elsewhere"
	if err := w.client.Update(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	pods.Update(stray, out)
	w.expect("patch Pod team/p")

	// The pod's own hints change.
	was := w.pod("p")
	is := was.DeepCopy()
	is.Labels = map[string]string{keys.PriorityClassLabel: "build"}
	if err := w.client.Update(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	pods.Update(was, is)
	w.expect("patch PodGroup team/pg-train-u-train")

	pods.Add(w.pod("solo"))
	w.expect("create PodGroup team/pg-solo-u-solo", "patch Pod team/solo")
	w.quiet()
}

// TestOptions: each impossible option is refused by name.
func TestOptions(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options){
		"no scheduler":     func(o *Options) { o.SchedulerNames = nil },
		"empty scheduler":  func(o *Options) { o.SchedulerNames = []string{""} },
		"no queue label":   func(o *Options) { o.QueueLabel = "" },
		"no workers":       func(o *Options) { o.Workers = 0 },
		"no memory":        func(o *Options) { o.Remembered = 0 },
		"waits":            func(o *Options) { o.MaxBackoff = o.Backoff - 1 },
		"half a ConfigMap": func(o *Options) { o.DefaultsName = "x" },
		"bad selector":     func(o *Options) { o.PodSelector = map[string]string{"a b": "c"} },
	} {
		o := DefaultOptions()
		if err := o.check(); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if _, err := New(Deps{}, o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := New(Deps{}, DefaultOptions()); err == nil {
		t.Error("no dependencies: accepted")
	}
}

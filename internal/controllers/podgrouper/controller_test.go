package podgrouper

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// expect lets time pass and compares the writes that came.
func (w *fakeAPI) expect(want ...string) {
	w.t.Helper()
	w.sleep(time.Second)
	if d := cmp.Diff(want, w.take()); d != "" {
		w.t.Errorf("(-want +got)\n%s", d)
	}
}

// TestRun follows one Job through its life.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := server(t, job("train", nil), podOf("p", ref("batch/v1", "Job", "train")))
		w.run(w.Process("podgrouper"))
		w.expect("create PodGroup team/pg-train-u-train", "patch Pod team/p")

		// The pod's status changes, and a foreign label: nothing to do.
		kubetest.Edit(w.Server, podOf("p", nil), func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Labels = map[string]string{"seen": "yes"}
		})
		w.expect()

		// The Job is edited: its watch, begun by the first pod, says so.
		kubetest.Edit(w.Server, job("train", nil), func(j *batchv1.Job) { j.Annotations = map[string]string{keys.BatchMinMemberAnnotation: "2"} })
		w.expect("patch PodGroup team/pg-train-u-train")

		// Someone deletes the PodGroup.
		w.Remove(w.podGroup("pg-train-u-train"))
		w.expect("create PodGroup team/pg-train-u-train")

		// Someone takes the pod out of its group.
		kubetest.Edit(w.Server, podOf("p", nil), func(p *corev1.Pod) { p.Annotations = map[string]string{keys.PodGroupAnnotation: "elsewhere"} })
		w.expect("patch Pod team/p")

		// The pod's own hints change.
		kubetest.Edit(w.Server, podOf("p", nil), func(p *corev1.Pod) { p.Labels = map[string]string{keys.PriorityClassLabel: "build"} })
		w.expect("patch PodGroup team/pg-train-u-train")

		w.Put(podOf("solo", nil))
		w.expect("create PodGroup team/pg-solo-u-solo", "patch Pod team/solo")
	})
}

// TestCrashes: the role dies at a write, before or after it, and the next one leaves what one that lives does.
func TestCrashes(t *testing.T) {
	t.Parallel()
	kubetest.Story{
		Options: kubetest.Options{More: foreign()},
		Set: func(s *kubetest.Server) {
			owner := job("train", map[string]string{keys.BatchMinMemberAnnotation: "2"})
			s.Put(namespace("team"), owner, podOf("p", ref("batch/v1", "Job", "train")), podOf("q", ref("batch/v1", "Job", "train")))
		},
		Run: func(t *testing.T, p *kubetest.Process) func() { return (&fakeAPI{t: t}).run(p) }, Settle: time.Minute,
		Check: func(t *testing.T, s *kubetest.Server) {
			w := &fakeAPI{Server: s, t: t}
			if writes := w.take(); len(writes) != 3 {
				t.Errorf("writes %v, want each once", writes)
			}
			if got := *w.podGroup("pg-train-u-train").Spec.MinMember; got != 2 {
				t.Errorf("minimum %d", got)
			}
			for _, name := range []string{"p", "q"} {
				if got := w.pod(name).Annotations[keys.PodGroupAnnotation]; got != "pg-train-u-train" {
					t.Errorf("pod %s is in %q", name, got)
				}
			}
		},
	}.Crashes(t)
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

package podgrouper

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/kube/links"
)

// TestToldOwnGang: where the scheduler hears it, what gang a lone pod is is told and not written, with the very words, until the pod has waited
// for long, or needs a PodGroup. Each case says what is written in the end; kept is whether something is still told of the pod.
func TestToldOwnGang(t *testing.T) {
	t.Parallel()
	const solo, train = "pg-solo-u-solo", "pg-train-u-train"
	for name, c := range map[string]struct {
		owner  *metav1.OwnerReference
		closed bool // the scheduler of the process does not lead, or not this shard
		then   func(w *fakeAPI, pod *corev1.Pod)
		writes []string
		kept   bool
	}{
		"nothing happens":           {then: func(*fakeAPI, *corev1.Pod) {}, kept: true},
		"nothing happens, of a Job": {owner: ref("batch/v1", "Job", "train"), then: func(*fakeAPI, *corev1.Pod) {}, kept: true},
		"nobody hears":              {closed: true, then: func(*fakeAPI, *corev1.Pod) {}},
		"just before patience ends": {then: func(w *fakeAPI, _ *corev1.Pod) { w.sleep(toldPatience - time.Millisecond) }, kept: true},
		"patience ends": {
			then:   func(w *fakeAPI, _ *corev1.Pod) { w.sleep(toldPatience) },
			writes: []string{"patch Pod team/solo"},
		},
		"bound, and its Binding said so": {
			then: func(w *fakeAPI, p *corev1.Pod) {
				p.Annotations = map[string]string{keys.OwnGangAnnotation: w.links.Text(p)}
				p.Spec.NodeName = "n"
				w.Put(p)
				w.sleep(time.Minute)
			},
		},
		"bound by who does not know": {
			then:   func(w *fakeAPI, p *corev1.Pod) { p.Spec.NodeName = "n"; w.Put(p) },
			writes: []string{"patch Pod team/solo"},
		},
		"it is told that there is no room": {
			then: func(w *fakeAPI, p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"}}
				w.Put(p)
			},
			writes: []string{"create PodGroup team/" + solo, "patch Pod team/solo"},
		},
		"it moves to another queue": {
			then: func(w *fakeAPI, p *corev1.Pod) {
				p.Labels = map[string]string{keys.QueueLabel: "another"}
				w.Put(p)
			},
			kept: true,
		},
		"its Job has another pod": {
			owner: ref("batch/v1", "Job", "train"),
			then: func(w *fakeAPI, _ *corev1.Pod) {
				w.Put(podOf("second", ref("batch/v1", "Job", "train")))
				w.mustReconcile("second")
			},
			writes: []string{"create PodGroup team/" + train, "patch Pod team/solo"},
		},
		"it goes": {then: func(w *fakeAPI, p *corev1.Pod) { w.Remove(p) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := podOf("solo", c.owner)
				p.CreationTimestamp = metav1.Now()
				w := server(t, p, job("train", nil))
				w.links = links.New()
				if !c.closed {
					w.links.Open(func(map[string]string) bool { return true })
				}
				w.runInSteps(func(o *Options) { o.OwnGangs = true })
				w.mustReconcile("solo")
				wrote := w.take()
				if c.closed {
					if d := cmp.Diff([]string{"patch Pod team/solo"}, wrote); d != "" {
						t.Error(d)
					}
					return
				}
				own := kai.OwnGang(w.links.With(p))
				if len(wrote) > 0 || own == nil || own.Spec.Queue != "default-queue" || own.Spec.PriorityClassName != "train" {
					t.Fatalf("wrote %v, told %+v", wrote, own)
				}
				text := w.links.Text(p)
				c.then(w, w.pod("solo"))
				w.mustReconcile("solo")
				if again := w.pods("solo"); again != nil && c.kept && w.links.Text(again) != text {
					t.Errorf("told %q, then %q", text, w.links.Text(again))
				}
				synctest.Wait()
				if is := w.pods("solo"); is != nil { // as the informer of the scheduler's feed does
					w.links.Saw(is)
				} else {
					w.links.Gone(key("solo"), p.UID)
				}
				if d := cmp.Diff(c.writes, w.take()); d != "" {
					t.Error(d)
				}
				if (w.links.Len() == 1) != c.kept {
					t.Errorf("something is told of %d pods", w.links.Len())
				}
				if written := w.pods("solo"); written != nil && len(c.writes) == 1 && written.Annotations[keys.OwnGangAnnotation] != text {
					t.Errorf("told %q, wrote %q", text, written.Annotations[keys.OwnGangAnnotation])
				}
			})
		})
	}
}

// TestToldTooLate: of a pod that was gone before something was told of it nothing is kept, though no event of it is to come.
func TestToldTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := podOf("solo", nil)
		w := server(t, p)
		w.links = links.New()
		w.links.Open(func(map[string]string) bool { return true })
		w.runInSteps(func(o *Options) { o.OwnGangs = true })
		seen := w.pod("solo")
		w.Remove(p)
		synctest.Wait()
		if _, err := w.role.grouper.group(t.Context(), seen); err != nil {
			t.Fatal(err)
		}
		if w.links.Len() != 0 {
			t.Error("something is told of a pod that is gone, for ever")
		}
	})
}

// TestToldAtOnceAfterAStart: a role that starts anew tells, and does not write, what its predecessor told.
func TestToldAtOnceAfterAStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := podOf("solo", nil)
		p.CreationTimestamp = metav1.Now()
		w := server(t, p)
		var texts []string
		for _, name := range []string{"first", "second"} {
			w.links = links.New() // what a process knows ends with it
			w.links.Open(func(map[string]string) bool { return true })
			w.options = func(o *Options) { o.OwnGangs = true }
			stop := w.run(w.Process(name))
			w.sleep(5 * time.Second)
			texts = append(texts, w.links.Text(p))
			stop()
		}
		if writes := w.take(); len(writes) != 0 || texts[0] == "" || texts[0] != texts[1] {
			t.Errorf("wrote %v, told %q", writes, texts)
		}
		w.run(w.Process("third"))
		w.sleep(toldPatience + time.Second)
		if d := cmp.Diff([]string{"patch Pod team/solo"}, w.take()); d != "" {
			t.Error(d)
		}
	})
}

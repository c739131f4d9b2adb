package podgrouper

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// TestOwnGang: a pod that is alone in its gang costs one patch and no PodGroup, for as long as no PodGroup is needed; and one of a gang of more,
// whose PodGroup is its owner's, is told so only when it has waited for long. Each case says what is written once that has happened; the pod was its
// gang by itself before, unless the case begins otherwise.
func TestOwnGang(t *testing.T) {
	t.Parallel()
	const solo, train = "pg-solo-u-solo", "pg-train-u-train"
	for name, c := range map[string]struct {
		owner  *metav1.OwnerReference
		job    map[string]string // annotations
		others []client.Object
		never  bool // it is no gang by itself to begin with
		then   func(w *fakeAPI, pod *corev1.Pod)
		writes []string
	}{
		"nothing happens":            {then: func(*fakeAPI, *corev1.Pod) {}},
		"nothing happens, of a Job":  {owner: ref("batch/v1", "Job", "train"), then: func(*fakeAPI, *corev1.Pod) {}},
		"it is bound, and time goes": {then: func(w *fakeAPI, p *corev1.Pod) { p.Spec.NodeName = "n"; w.Put(p); w.sleep(2 * time.Minute) }},
		"it is told that there is no room": {
			then: func(w *fakeAPI, p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"}}
				w.Put(p)
			},
			writes: []string{"create PodGroup team/" + solo, "patch Pod team/solo"},
		},
		"it is gated": {
			then: func(w *fakeAPI, p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated}}
				w.Put(p)
			},
		},
		"a minute goes by": {
			then:   func(w *fakeAPI, _ *corev1.Pod) { w.sleep(time.Minute + time.Second) },
			writes: []string{"create PodGroup team/" + solo, "patch Pod team/solo"},
		},
		"somebody makes a PodGroup of the name": {
			then: func(w *fakeAPI, _ *corev1.Pod) {
				w.Put(&v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: solo}, Spec: v2alpha2.PodGroupSpec{Queue: "another"}})
			},
			writes: []string{"patch PodGroup team/" + solo, "patch Pod team/solo"},
		},
		"somebody writes over the annotation": {
			then: func(w *fakeAPI, p *corev1.Pod) {
				p.Annotations[keys.OwnGangAnnotation] = "{}"
				w.Put(p)
			},
			writes: []string{"patch Pod team/solo"},
		},
		"its Job has another pod": {
			owner: ref("batch/v1", "Job", "train"),
			then: func(w *fakeAPI, _ *corev1.Pod) {
				w.Put(podOf("second", ref("batch/v1", "Job", "train")))
				w.mustReconcile("second")
			},
			writes: []string{"create PodGroup team/" + train, "patch Pod team/solo"},
		},
		"its Job makes it anew": {
			owner: ref("batch/v1", "Job", "train"),
			then: func(w *fakeAPI, p *corev1.Pod) {
				w.Remove(p)
				synctest.Wait()
				anew := podOf("solo", ref("batch/v1", "Job", "train"))
				anew.UID = "another"
				w.Put(anew)
			},
			writes: []string{"create PodGroup team/" + train},
		},
		"its gang is of two": {
			owner: ref("batch/v1", "Job", "train"), job: map[string]string{keys.BatchMinMemberAnnotation: "2"}, never: true,
			then: func(*fakeAPI, *corev1.Pod) {}, writes: nil,
		},
		"its gang is of two, and it is bound, and time goes": {
			owner: ref("batch/v1", "Job", "train"), job: map[string]string{keys.BatchMinMemberAnnotation: "2"}, never: true,
			then: func(w *fakeAPI, p *corev1.Pod) { p.Spec.NodeName = "n"; w.Put(p); w.sleep(2 * time.Minute) },
		},
		"its gang is of two, and a minute goes by": {
			owner: ref("batch/v1", "Job", "train"), job: map[string]string{keys.BatchMinMemberAnnotation: "2"}, never: true,
			then:   func(w *fakeAPI, _ *corev1.Pod) { w.sleep(time.Minute + time.Second) },
			writes: []string{"patch Pod team/solo"},
		},
		"its gang is of two, and it is in another queue since": {
			owner: ref("batch/v1", "Job", "train"), job: map[string]string{keys.BatchMinMemberAnnotation: "2"}, never: true,
			then: func(w *fakeAPI, p *corev1.Pod) {
				p.Labels = map[string]string{keys.QueueLabel: "another"}
				w.Put(p)
			},
			writes: []string{"patch Pod team/solo"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := podOf("solo", c.owner)
				p.CreationTimestamp = metav1.Now()
				w := newFakeAPI(t, func(o *Options) { o.OwnGangs = true }, append(c.others, p, job("train", c.job))...)
				w.mustReconcile("solo")
				began := []string{"patch Pod team/solo"}
				if c.never {
					began = []string{"create PodGroup team/" + train} // of which the pod knows by its owner
				}
				if d := cmp.Diff(began, w.take()); d != "" {
					t.Fatal(d)
				}
				p = w.pod("solo")
				own := kai.OwnGang(p)
				switch {
				case c.never != (own == nil):
					t.Fatalf("the gang by itself: %+v", own)
				case own != nil && (own.Spec.Queue != "default-queue" || own.Spec.PriorityClassName != "train" || own.Spec.MinMember == nil || *own.Spec.MinMember != 1):
					t.Errorf("the gang is %+v", own.Spec)
				}
				c.then(w, p)
				w.mustReconcile("solo", "solo")
				if d := cmp.Diff(c.writes, w.take()); d != "" {
					t.Error(d)
				}
			})
		})
	}
}

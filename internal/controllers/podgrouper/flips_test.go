package podgrouper

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// TestFlips: a label of a running pod that somebody changes again and again costs nothing if it is nothing to us. One that
// says what its gang is costs one look at the pod and one write to its PodGroup for each change, however many pods the gang has, and
// tells nobody anything.
func TestFlips(t *testing.T) {
	t.Parallel()
	const flips = 40
	for _, c := range []struct {
		name             string
		flip             func(p *corev1.Pod, i int)
		most, mostWrites int
	}{
		{"a label of others", func(p *corev1.Pod, i int) { p.Labels = map[string]string{"note": fmt.Sprint(i)} }, 0, 0},
		{"an annotation of others", func(p *corev1.Pod, i int) { p.Annotations["note"] = fmt.Sprint(i) }, 0, 0},
		{"the class", func(p *corev1.Pod, i int) {
			p.Labels = map[string]string{keys.PriorityClassLabel: []string{"build", "train"}[i%2]}
		}, flips, flips},
		{"the gang", func(p *corev1.Pod, i int) { p.Annotations[keys.PodGroupAnnotation] = fmt.Sprint("g", i%2) }, flips, flips},
		{"whether it is ours to group", func(p *corev1.Pod, i int) {
			p.Annotations[keys.SkipPodGrouperAnnotation] = []string{"true", "false"}[i%2]
		}, flips, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newFakeAPI(t, nil, job("train", nil), podOf("p", ref("batch/v1", "Job", "train")), podOf("q", ref("batch/v1", "Job", "train")), podOf("r", ref("batch/v1", "Job", "train")))
				w.mustReconcile("p", "q", "r")
				w.take()
				work := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
				defer work.ShutDown()
				w.role.queue.Store(&queue{work})
				looks, writes := 0, 0
				was := w.pod("p")
				for i := range flips {
					is := w.pod("p")
					c.flip(is, i)
					w.Put(is)
					is = w.pod("p")
					w.role.podEvents().Update(t.Context(), event.TypedUpdateEvent[*corev1.Pod]{ObjectOld: was, ObjectNew: is}, work)
					for was = is; work.Len() > 0; looks++ {
						r, _ := work.Get()
						w.mustReconcile(r.Name)
						work.Done(r)
					}
					writes += len(w.take())
				}
				if looks > c.most || writes > c.mostWrites {
					t.Errorf("%d looks and %d writes for %d changes", looks, writes, flips)
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				if len(w.events) > 0 {
					t.Errorf("%d events, such as %s", len(w.events), strings.Join(w.events[:1], ""))
				}
			})
		})
	}
}

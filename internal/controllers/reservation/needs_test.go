package reservation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// TestWhoeverSharesIsAsked: the scheduler, which binds pods that need no binder, leaves to the binder every pod that gets a shared device, and
// every pod of which there is something to tell.
func TestWhoeverSharesIsAsked(t *testing.T) {
	t.Parallel()
	c := &Controller{}
	for name, change := range map[string]func(*corev1.Pod, *kai.Intent) bool{
		"a whole device": func(*corev1.Pod, *kai.Intent) bool { return false },
		"a shared one": func(_ *corev1.Pod, in *kai.Intent) bool {
			in.GPU, in.Groups = 500, []string{"g"}
			return true
		},
		"a slice of one": func(p *corev1.Pod, _ *kai.Intent) bool {
			p.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{keys.MIGResourcePrefix + "1g.5gb": {}}}}}
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{}
			pod.Namespace, pod.Name, pod.UID = "a", "p", "u"
			in := kai.Intent{Namespace: "a", Pod: "p", PodUID: "u", Node: "n", GPU: 1000}
			want := change(pod, &in)
			r := in.BindRequest()
			work := c.Relevant(r, pod)
			if work = work || c.Note(r, pod) != ""; work != want {
				t.Errorf("there is work: %v", work)
			}
			if in.NeedsBinder(pod) != want {
				t.Errorf("the binder is asked: %v", !want)
			}
		})
	}
}

package roles

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWhoIsTold: what gang a lone pod is is told where the scheduler is of the podgrouper's process, and not before it leads: another may, who
// does not hear. Anywhere else it is written.
func TestWhoIsTold(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "u"}}
	for _, role := range []string{All, PodGrouper, PodGroup, Scheduler} {
		p, err := newProcess(roleNames(role), parse(t, role, "--kubeconfig="+newPlane(t, true).kubeconfig()), "v", logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		if got := p.links != nil; got != (role == All) {
			t.Errorf("%s: there is somebody who hears: %v", role, got)
		}
		if _, ok := p.links.Tell(pod, nil, "text", time.Now()); ok {
			t.Errorf("%s: told before the scheduler leads", role)
		}
	}
}

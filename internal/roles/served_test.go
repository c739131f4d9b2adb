package roles

import (
	"slices"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/kube/served"
)

// TestNeeds: what Muster can do without is needed by roles and plugins that there are.
func TestNeeds(t *testing.T) {
	t.Parallel()
	for _, n := range served.Needs() {
		for _, role := range n.Roles {
			if !slices.Contains(slices.Concat(Names(), Apart()), role) {
				t.Errorf("%s is needed by %q, which is no role", n.Name, role)
			}
		}
		if _, known := builtin.Registry().Plugins[n.Plugin]; n.Plugin != "" && !known {
			t.Errorf("%s is needed by %q, which is no plugin", n.Name, n.Plugin)
		}
	}
}

// TestLackingIsSaid: each role says at its start what the API server lacks of its needs, and goes on.
func TestLackingIsSaid(t *testing.T) {
	t.Parallel()
	for role, says := range map[string]bool{Scheduler: true, Binder: true, PodGroup: true, Queue: false, Admission: false} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			server := newPlane(t, true)
			delete(server.groups, resourcev1.SchemeGroupVersion)
			_, log, stop := launch(t, role, quiet(role, "--kubeconfig="+server.kubeconfig())...)
			const first = `msg="the API server says what it is" kubernetes=v1.36.0`
			for give := time.After(20 * time.Second); !strings.Contains(log.String(), first); {
				select {
				case <-give:
					t.Fatalf("nothing is said of the API server:\n%s", log)
				case <-time.After(10 * time.Millisecond):
				}
			}
			if !says {
				return
			}
			server.await(begins(role))
			if err := stop(); err != nil {
				t.Error(err)
			}
			if n := strings.Count(log.String(), "lacking="+string(served.ResourceClaims)+" effect="); n != 1 || strings.Contains(log.String(), "level=ERROR") {
				t.Errorf("%s says %d times that there are no claims:\n%s", role, n, log)
			}
		})
	}
}

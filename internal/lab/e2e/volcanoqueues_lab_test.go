//go:build lab

package e2e

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// TestVolcanoQueueHolds: the status of a queue says what the pods of its Jobs hold, that of its parent and of root the same; what somebody else writes there is put right; and nothing is left when the Job goes.
func TestVolcanoQueueHolds(t *testing.T) {
	b := newFacesFixture(t, nil)
	const ns = "holding"
	b.namespace(t, ns)
	for name, parent := range map[string]string{"team": vckeys.RootQueue, "team-a": "team"} { // order: a queue may come before its parent
		b.create(t, &vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: vcscheduling.QueueSpec{Weight: 1, Parent: parent}})
	}
	hold := func(pods int64) func() string {
		return func() string {
			var wrong []string
			for _, name := range []string{vckeys.RootQueue, "team", "team-a"} {
				q := &vcscheduling.Queue{}
				if err := b.client.Get(t.Context(), client.ObjectKey{Name: name}, q); err != nil {
					return err.Error()
				}
				if have := q.Status.Allocated.Pods().Value(); have != pods || len(q.Status.Reservation.Nodes) > 0 {
					wrong = append(wrong, fmt.Sprintf("%s holds %v, and reserves %v", name, q.Status.Allocated, q.Status.Reservation.Nodes))
				}
			}
			return strings.Join(wrong, "; ")
		}
	}
	j := bareJob(ns, "work", "team-a")
	j.Spec.SchedulerName, j.Spec.MinAvailable, j.Spec.Tasks[0].Name = vckeys.SchedulerName, 2, "worker"
	b.create(t, j)
	b.must(t, guard, b.phase(ns, "work", vcbatch.Running, 2, 0))
	b.must(t, guard, hold(2))
	forged := &vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
	body := []byte(`{"status": {"allocated": {"pods": "0", "cpu": "7"}, "reservation": {"nodes": ["n"]}}}`)
	if err := b.client.Status().Patch(t.Context(), forged, client.RawPatch("application/merge-patch+json", body)); err != nil {
		t.Fatal(err)
	}
	b.must(t, guard, hold(2))
	if err := b.client.Delete(t.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	b.must(t, guard, hold(0))
}

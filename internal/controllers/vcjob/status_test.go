package vcjob

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// wide is a Job of so many tasks of one pod, t0 and so on, with the plugins env and svc.
func wide(name string, tasks int) *batch.Job {
	return job(func(j *batch.Job) {
		j.Name, j.Spec.MinAvailable, j.Spec.Tasks = name, int32(tasks), nil
		j.Spec.Plugins = map[string][]string{"env": nil, "svc": nil}
		for i := range tasks {
			j.Spec.Tasks = append(j.Spec.Tasks, batch.TaskSpec{Name: fmt.Sprintf("t%d", i), Replicas: 1, Template: template()})
		}
	})
}

// statuses are the statuses that were written of Jobs.
func statuses(s *kubetest.Server) (n int) {
	for _, c := range s.Writes() {
		if c.Kind == "Job" && c.Subresource == "status" {
			n++
		}
	}
	return n
}

// TestCountsStandBack: the phases of a Job are written at once, each; that some of its pods run, while others of them still wait, a second later, and what has come by then in the same write.
func TestCountsStandBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.start()
		j := wide("j", 8)
		w.Put(j)
		pass(10 * time.Millisecond)
		w.is(batch.Pending)
		if n := statuses(w.Server); n != 1 {
			t.Errorf("%d statuses of a Job that waits for its gang, want 1", n)
		}
		pass(time.Second)
		admit(w.Server, j)
		pass(100 * time.Millisecond)
		for i := range 8 {
			set(w.Server, fmt.Sprintf("j-t%d-0", i), corev1.PodRunning, 0)
			pass(60 * time.Millisecond)
		}
		if j := w.is(batch.Running); j.Status.Running != 8 || j.Status.Pending != 0 {
			t.Errorf("%d run and %d wait as the status has it, want 8 and 0", j.Status.Running, j.Status.Pending)
		}
		if n := statuses(w.Server); n != 1 {
			t.Errorf("%d statuses while the pods are made and start, want 1", n)
		}

		set(w.Server, "j-t0-0", corev1.PodSucceeded, 0) // nothing else is on its way
		pass(60 * time.Millisecond)
		if j := w.is(batch.Running); j.Status.Succeeded != 1 {
			t.Errorf("%d pods have succeeded as the status has it, want 1", j.Status.Succeeded)
		}
	})
}

// TestCountsComeInTheEnd: a Job some of whose pods wait for long says so after a second, and while pods of other Jobs are made without end after ten.
func TestCountsComeInTheEnd(t *testing.T) {
	t.Parallel()
	for busy, longest := range map[bool]time.Duration{false: trailAfter, true: trailLongest} { // order: each for itself
		synctest.Test(t, func(t *testing.T) {
			w := newFixture(t)
			w.start()
			j := wide("j", 2)
			w.Put(j)
			pass(time.Second)
			admit(w.Server, j)
			pass(100 * time.Millisecond)
			set(w.Server, "j-t0-0", corev1.PodRunning, 0)
			pass(100 * time.Millisecond)
			statuses(w.Server)
			began := time.Now()
			for i := 0; w.job().Status.Running == 0; i++ {
				if time.Since(began) > longest+time.Second {
					t.Fatalf("nothing is said of a pod that runs after %s", time.Since(began))
				}
				if busy {
					other := wide(fmt.Sprintf("other-%d", i), 1)
					w.Put(other)
					pass(10 * time.Millisecond)
					admit(w.Server, other)
				}
				pass(200 * time.Millisecond)
			}
			for _, c := range w.Writes() {
				if c.Name == "j" && c.Kind == "Job" && !strings.Contains(string(c.Body), `"running":1`) {
					t.Errorf("beside the counts there is written %s %s", c, c.Body)
				}
			}
			if took := time.Since(began); busy && took < trailLongest/2 {
				t.Errorf("what nobody waits for comes after %s, while pods are made", took)
			}
		})
	}
}

// TestPodsOnTheirWay: that a gang lacks pods is not told of its Job by him who makes them; that it lacks room is.
func TestPodsOnTheirWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.start()
		j := wide("j", 8)
		w.Put(j)
		pass(time.Second)
		statuses(w.Server)
		lacks := func(reason string) {
			g := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: groupName(w.job())}}
			kubetest.Edit(w.Server, g, func(g *scheduling.PodGroup) {
				g.Status.Phase = scheduling.PodGroupInqueue
				g.Status.Conditions = []scheduling.PodGroupCondition{{Type: scheduling.PodGroupUnschedulableType, Status: corev1.ConditionTrue, Reason: reason, Message: "so it is"}}
			})
			pass(60 * time.Millisecond)
		}
		lacks(scheduling.NotEnoughPodsReason)
		if n := statuses(w.Server); n != 0 {
			t.Errorf("%d statuses of a Job whose pods are being made, want none", n)
		}
		lacks(scheduling.NotEnoughResourcesReason)
		if s := w.job().Status.State; s.Reason != reasonGroup {
			t.Errorf("the Job waits for %q (%s), want %s", s.Reason, s.Message, reasonGroup)
		}
	})
}

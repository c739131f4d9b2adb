package vcjob

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// others play the scheduler and the kubelets of a Job: its gang is admitted, its pods run, those that are deleted go, and, once all run, the
// first pod of task w that was ever made fails, or is deleted by somebody.
func others(how corev1.PodPhase) func(context.Context, *kubetest.Server) {
	return func(ctx context.Context, s *kubetest.Server) {
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		struck := false
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			admit(s, job())
			running := 0
			for _, name := range podNames {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
				switch {
				case !s.Get(p):
				case p.DeletionTimestamp != nil:
					s.Remove(p)
				case p.Status.Phase == corev1.PodPending:
					set(s, name, corev1.PodRunning, 0)
				case p.Status.Phase == corev1.PodRunning:
					running++
				}
			}
			j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j"}}
			if !struck && running == len(podNames) && s.Get(j) && j.Status.State.Phase == batch.Running {
				struck = true
				if how == "" {
					s.Remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j-w-0"}})
				} else {
					set(s, "j-w-0", how, 1)
				}
			}
		}
	}
}

// TestCrashes: the controller dies before and after each of its writes, and the next one ends where it would have ended: no retry is
// counted twice, no pod is made twice.
func TestCrashes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action  bus.Action
		phase   batch.JobPhase
		retries int32
		pods    string
		stride  int // it takes about a second for each
		edit    func(*batch.Job)
	}{
		{bus.RestartJobAction, batch.Running, 1, "ps-0@1 w-0@1 w-1@1", 1, func(j *batch.Job) {
			j.Spec.Plugins = map[string][]string{"env": nil, "svc": nil, "ssh": nil}
			j.Spec.Volumes = []batch.VolumeSpec{{MountPath: "/data", VolumeClaim: &corev1.PersistentVolumeClaimSpec{}}}
		}},
		{bus.RestartTaskAction, batch.Running, 1, "ps-0@0 w-0@0 w-1@0", 1, func(*batch.Job) {}},
		{bus.RestartPodAction, batch.Running, 1, "ps-0@0 w-0@0 w-1@0", 1, func(*batch.Job) {}},
		{bus.AbortJobAction, batch.Aborted, 0, "w-0@0", 3, func(*batch.Job) {}},
		{bus.CompleteJobAction, batch.Completed, 0, "w-0@0", 3, func(*batch.Job) {}},
		{bus.RestartJobAction, batch.Failed, 1, "w-0@0", 3, func(j *batch.Job) { j.Spec.MaxRetry = 1 }},
	} {
		t.Run(fmt.Sprintf("%s to %s", c.action, c.phase), func(t *testing.T) {
			t.Parallel()
			kubetest.Story{
				Options: serves(),
				Set: func(s *kubetest.Server) {
					s.Put(&scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, job(policies(policy(c.action, on(bus.PodFailedEvent))), c.edit))
				},
				Run:    func(t *testing.T, p *kubetest.Process) func() { return run(t, p, nil) },
				Beside: others(corev1.PodFailed),
				Settle: 30 * time.Second, Stride: c.stride,
				Check: func(t *testing.T, s *kubetest.Server) {
					j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j"}}
					if s.Get(j); j.Status.State.Phase != c.phase || j.Status.RetryCount != c.retries {
						t.Errorf("in the end %s with %d retries, want %s with %d: %+v", j.Status.State.Phase, j.Status.RetryCount, c.phase, c.retries, j.Status)
					}
					if got := pods(s); got != c.pods {
						t.Errorf("pods %s, want %s", got, c.pods)
					}
					made := map[string]int{}
					for _, w := range s.Writes() {
						if w.Verb == "create" && w.Kind == "Pod" {
							made[w.Name]++
						}
					}
					for name, n := range made { // order: each for itself
						if n > 3 { // two versions, and one attempt whose success nobody heard of
							t.Errorf("pod %s was asked for %d times", name, n)
						}
					}
				},
			}.Crashes(t)
		})
	}
}

// TestCommandCrashes: a Command is obeyed once, wherever the controller dies, and is gone in the end with what the Job's status says of it.
func TestCommandCrashes(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 8; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d after=%v", n, after), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newFixture(t)
					go others(corev1.PodRunning)(t.Context(), w.Server)
					stop := w.start()
					w.Put(job())
					pass(5 * time.Second)
					j := w.is(batch.Running)
					stop()
					w.Put(&bus.Command{
						ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Action: string(bus.RestartJobAction),
						TargetObject: &metav1.OwnerReference{APIVersion: batch.GroupVersion.String(), Kind: "Job", Name: "j", UID: j.UID},
					})
					p := w.Process("first")
					p.CrashAt(n, after)
					stop = run(t, p, nil)
					pass(10 * time.Second)
					stop()
					run(t, w.Process("second"), nil)
					pass(30 * time.Second)
					is := w.is(batch.Running).Status
					if is.RetryCount != 1 {
						t.Errorf("%d retries, want 1", is.RetryCount)
					}
					if w.Get(&bus.Command{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}}) {
						t.Error("the Command is still there")
					}
					for name := range is.ControlledResources { // order: each for itself
						if strings.HasPrefix(name, recordPrefix) {
							t.Errorf("the status still says %s", name)
						}
					}
				})
			})
		}
	}
}

// TestTroubles: lost answers, conflicts and refusals of writes end where undisturbed ones do.
func TestTroubles(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"create PodGroup", "patch Job/status", "create Pod", "patch Pod", "delete Pod", "delete PodGroup"} {
		for name, o := range map[string]kubetest.Outcome{
			"lost request": kubetest.LostRequest(), "lost answer": kubetest.LostAnswer(), "conflict": kubetest.Conflict(), "busy": kubetest.TooMany(1), "broken": kubetest.Broken("disk"),
		} {
			t.Run(what+" "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newFixture(t)
					for n := 1; n < 6; n += 2 {
						w.Fault(kubetest.Nth(n, kubetest.Is(what), o))
					}
					go others(corev1.PodFailed)(t.Context(), w.Server)
					w.start()
					w.Put(job(policies(policy(bus.RestartJobAction, on(bus.PodFailedEvent)))))
					pass(10 * time.Minute)
					if is := w.is(batch.Running).Status; is.RetryCount != 1 || pods(w.Server) != "ps-0@1 w-0@1 w-1@1" {
						t.Errorf("pods %s, status %+v", pods(w.Server), is)
					}
				})
			})
		}
	}
}

// TestStale: what the cache does not tell yet is neither done twice nor counted twice.
func TestStale(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Job", "Pod", "PodGroup"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.start()
				j := job(policies(policy(bus.RestartJobAction, on(bus.PodFailedEvent))))
				w.up(j)
				w.Hold(kind)
				set(w.Server, "j-w-0", corev1.PodFailed, 1)
				pass(time.Minute)
				w.gone()
				admit(w.Server, j)
				pass(time.Minute)
				w.Release(kind)
				pass(time.Minute)
				w.gone()
				admit(w.Server, j)
				pass(time.Minute)
				if is := w.job().Status; is.RetryCount != 1 || pods(w.Server) != "ps-0@1 w-0@1 w-1@1" {
					t.Errorf("pods %s, status %+v", pods(w.Server), is)
				}
			})
		})
	}
}

// TestRefused: what the API server goes on refusing terminates the Job, and not before fifteen times; nobody else is hindered.
func TestRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.start()
		bad := job(func(j *batch.Job) { j.Name, j.Spec.Plugins = "bad", map[string][]string{"svc": {"--nonsense"}} })
		good := job()
		w.Put(bad, good)
		pass(100 * time.Millisecond)
		admit(w.Server, good)
		pass(time.Second)
		if pods(w.Server) != "ps-0@0 w-0@0 w-1@0" {
			t.Errorf("the other's pods: %s", pods(w.Server))
		}
		w.Get(bad)
		if is := bad.Status.State; is.Phase != batch.Pending || is.Reason != reasonPlugin {
			t.Errorf("at first: %+v", is)
		}
		pass(10 * time.Minute)
		if w.Get(bad); bad.Status.State.Phase != batch.Terminated {
			t.Errorf("in the end: %+v", bad.Status.State)
		}
	})
}

// TestOnePodIsKept: a pod that the API server goes on keeping holds up no other's end.
func TestOnePodIsKept(t *testing.T) {
	t.Parallel()
	for _, kept := range podNames {
		synctest.Test(t, func(t *testing.T) {
			w := newFixture(t)
			w.start()
			j := job(policies(policy(bus.AbortJobAction, on(bus.PodFailedEvent))))
			w.up(j)
			w.Fault(func(c kubetest.Call) kubetest.Outcome {
				if c.Verb == "delete" && c.Name == kept {
					return kubetest.Broken("a webhook refuses")
				}
				return kubetest.Outcome{}
			})
			set(w.Server, "j-w-0", corev1.PodFailed, 1)
			pass(time.Second)
			w.gone()
			want := []string{kept, "j-w-0"} // what has failed is left for people to look at
			slices.Sort(want)
			want = slices.Compact(want)
			for i := range want {
				want[i] = strings.TrimPrefix(want[i], "j-") + "@0"
			}
			if left := pods(w.Server); left != strings.Join(want, " ") {
				t.Errorf("%s is kept, and %q is left", kept, left)
			}
		})
	}
}

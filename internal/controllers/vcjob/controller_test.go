package vcjob

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// serves is a cluster with Volcano's kinds.
func serves() kubetest.Options {
	return kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)}
}

// fixture is a cluster on which the controller runs.
type fixture struct {
	*kubetest.Server
	t    *testing.T
	told []string
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	w := &fixture{Server: kubetest.New(serves()), t: t}
	w.Put(&scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	w.Put(objects...)
	return w
}

// run runs the controller in a process until the test ends, or stop is called.
func run(t *testing.T, p *kubetest.Process, tell func(string)) (stop func()) {
	t.Helper()
	return p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
		r, err := New(Deps{
			Cache: objects, Client: c, Log: logr.Discard(),
			Keys: func() ([]byte, []byte, error) { return []byte("private"), []byte("public"), nil },
			Tell: func(_ client.Object, _ bool, reason, message string) {
				if tell != nil {
					tell(reason + ": " + message)
				}
			},
		}, DefaultOptions())
		if err != nil {
			return nil, err
		}
		return r.Run, nil
	})
}

func (w *fixture) start() (stop func()) {
	return run(w.t, w.Process("vcjob"), func(s string) { w.told = append(w.told, s) })
}

// pass lets the bubble's clock run until all is at rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// job is a Job of two tasks: one ps, two workers, all of which start together.
func job(edit ...func(*batch.Job)) *batch.Job {
	j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j"}, Spec: batch.JobSpec{
		SchedulerName: "volcano", MinAvailable: 3, Queue: "default", MaxRetry: 3,
		Tasks: []batch.TaskSpec{{Name: "ps", Replicas: 1, Template: template()}, {Name: "w", Replicas: 2, Template: template()}},
	}}
	for _, e := range edit {
		e(j)
	}
	return j
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "busybox"}}}}
}

func policies(p ...batch.LifecyclePolicy) func(*batch.Job) {
	return func(j *batch.Job) { j.Spec.Policies = p }
}

// admit is what the scheduler does to a Job's PodGroup: it makes it Inqueue.
func admit(s *kubetest.Server, j *batch.Job) {
	stored := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name}}
	if !s.Get(stored) {
		return
	}
	g := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: groupName(stored)}}
	if s.Get(g) && (g.Status.Phase == "" || g.Status.Phase == scheduling.PodGroupPending) {
		g.Status.Phase = scheduling.PodGroupInqueue
		s.Put(g)
	}
}

// set gives a pod a phase and an exit code, as a kubelet does.
func set(s *kubetest.Server, name string, phase corev1.PodPhase, exit int32) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	kubetest.Edit(s, p, func(p *corev1.Pod) {
		p.Spec.NodeName, p.Status.Phase = "n", phase
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Ready: phase == corev1.PodRunning}}
		if phase == corev1.PodFailed || phase == corev1.PodSucceeded {
			p.Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: exit, FinishedAt: metav1.Unix(946684800, 0)}
		}
	})
}

var podNames = []string{"j-ps-0", "j-w-0", "j-w-1"}

// up brings a Job to where all its pods run.
func (w *fixture) up(j *batch.Job) {
	w.t.Helper()
	w.Put(j)
	pass(time.Second)
	admit(w.Server, j)
	pass(time.Second)
	for _, name := range podNames {
		set(w.Server, name, corev1.PodRunning, 0)
	}
	pass(time.Second)
	w.is(batch.Running)
	w.Writes()
}

// gone ends the pods that are being deleted, as kubelets do.
func (w *fixture) gone() {
	for _, name := range podNames {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if w.Get(p) && p.DeletionTimestamp != nil {
			w.Remove(p)
		}
	}
	pass(time.Second)
}

func (w *fixture) job() *batch.Job {
	w.t.Helper()
	j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j"}}
	if !w.Get(j) {
		w.t.Fatal("there is no Job")
	}
	return j
}

// is asks for the Job's phase.
func (w *fixture) is(want batch.JobPhase) *batch.Job {
	w.t.Helper()
	j := w.job()
	if j.Status.State.Phase != want {
		w.t.Fatalf("the Job is %s (%s: %s), want %s", j.Status.State.Phase, j.Status.State.Reason, j.Status.State.Message, want)
	}
	return j
}

// pods are the pods that are there, with their version, and - for one that is going.
func pods(s *kubetest.Server) string {
	var out []string
	for _, name := range podNames {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if !s.Get(p) {
			continue
		}
		text := strings.TrimPrefix(name, "j-") + "@" + p.Annotations[keys.JobVersion]
		if p.DeletionTimestamp != nil {
			text += "-"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// wrote are the writes since it was last asked, each kind once with how often.
func (w *fixture) wrote() string {
	n := map[string]int{}
	for _, c := range w.Writes() {
		what := c.Kind
		if c.Subresource != "" {
			what += "/" + c.Subresource
		}
		n[c.Verb+" "+what]++
	}
	var out []string
	for _, what := range slices.Sorted(maps.Keys(n)) {
		out = append(out, fmt.Sprintf("%d %s", n[what], what))
	}
	return strings.Join(out, ", ")
}

// TestLife: a Job waits for its gang to be admitted, gets its pods, runs, and is completed; at rest nothing is written.
func TestLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.start()
		j := job()
		w.Put(j)
		pass(time.Second)
		w.is(batch.Pending)
		if got := w.wrote(); got != "1 create PodGroup, 1 patch Job/status" {
			t.Errorf("at first: %s", got)
		}
		pass(time.Hour)
		if got := w.wrote(); got != "" {
			t.Errorf("at rest: %s", got)
		}
		admit(w.Server, j)
		pass(time.Second + trailAfter)
		if got := w.wrote(); got != "3 create Pod, 1 patch Job/status" {
			t.Errorf("admitted: %s", got)
		}
		for i, name := range podNames {
			set(w.Server, name, corev1.PodRunning, 0)
			pass(time.Second)
			w.is([]batch.JobPhase{batch.Pending, batch.Pending, batch.Running}[i])
		}
		for _, name := range podNames {
			set(w.Server, name, corev1.PodSucceeded, 0)
		}
		pass(time.Second)
		is := w.is(batch.Completed).Status
		if is.Succeeded != 3 || is.TaskStatusCount["w"].Phase[corev1.PodSucceeded] != 2 || is.RetryCount != 0 || is.Version != 0 || len(is.Conditions) != 3 {
			t.Errorf("in the end: %+v", is)
		}
		if pods(w.Server) != "ps-0@0 w-0@0 w-1@0" {
			t.Errorf("pods: %s", pods(w.Server))
		}
		w.Writes()
		w.Remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j-w-0"}})
		pass(time.Hour)
		if is := w.is(batch.Completed).Status; is.Succeeded != 3 || w.wrote() != "" {
			t.Errorf("its pods are cleared away: %+v", is)
		}
	})
}

// TestAnswers: what each policy makes of a pod that failed or was deleted in a Job that runs.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action  bus.Action
		event   bus.Event
		during  batch.JobPhase // before the pods are gone
		pods    string         // then
		after   batch.JobPhase // when they are gone, and the gang is admitted
		remain  string
		retries int32
	}{
		{bus.RestartJobAction, bus.PodFailedEvent, batch.Restarting, "ps-0@0- w-1@0-", batch.Pending, "ps-0@1 w-0@1 w-1@1", 1},
		{bus.RestartJobAction, bus.PodEvictedEvent, batch.Restarting, "ps-0@0- w-1@0-", batch.Pending, "ps-0@1 w-0@1 w-1@1", 1},
		{bus.RestartTaskAction, bus.PodFailedEvent, batch.Restarting, "ps-0@0 w-1@0-", batch.Pending, "ps-0@0 w-0@0 w-1@0", 1},
		{bus.RestartTaskAction, bus.PodEvictedEvent, batch.Restarting, "ps-0@0 w-1@0-", batch.Pending, "ps-0@0 w-0@0 w-1@0", 1},
		{bus.RestartPodAction, bus.PodFailedEvent, batch.Pending, "ps-0@0 w-0@0 w-1@0", batch.Pending, "ps-0@0 w-0@0 w-1@0", 1},
		{bus.RestartPodAction, bus.PodEvictedEvent, batch.Pending, "ps-0@0 w-0@0 w-1@0", batch.Pending, "ps-0@0 w-0@0 w-1@0", 1},
		{bus.AbortJobAction, bus.PodFailedEvent, batch.Aborting, "ps-0@0- w-0@0 w-1@0-", batch.Aborted, "w-0@0", 0},
		{bus.TerminateJobAction, bus.PodFailedEvent, batch.Terminating, "ps-0@0- w-0@0 w-1@0-", batch.Terminated, "w-0@0", 0},
		{bus.CompleteJobAction, bus.PodFailedEvent, batch.Completing, "ps-0@0- w-0@0 w-1@0-", batch.Completed, "w-0@0", 0},
		{bus.AbortJobAction, bus.PodEvictedEvent, batch.Aborting, "ps-0@0- w-1@0-", batch.Aborted, "", 0},
		{bus.SyncJobAction, bus.PodFailedEvent, batch.Running, "ps-0@0 w-0@0 w-1@0", batch.Running, "ps-0@0 w-0@0 w-1@0", 0},
		{bus.ResumeJobAction, bus.PodFailedEvent, batch.Running, "ps-0@0 w-0@0 w-1@0", batch.Running, "ps-0@0 w-0@0 w-1@0", 0},
	} {
		t.Run(fmt.Sprintf("%s on %s", c.action, c.event), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.start()
				j := job(policies(policy(c.action, on(c.event))))
				w.up(j)
				if c.event == bus.PodEvictedEvent {
					w.Remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j-w-0"}})
				} else {
					set(w.Server, "j-w-0", corev1.PodFailed, 1)
				}
				pass(time.Second)
				w.is(c.during)
				if got := pods(w.Server); got != c.pods {
					t.Errorf("at first: pods %s, want %s", got, c.pods)
				}
				w.gone()
				admit(w.Server, j)
				pass(time.Minute)
				if is := w.is(c.after).Status; is.RetryCount != c.retries {
					t.Errorf("%d retries, want %d", is.RetryCount, c.retries)
				}
				if got := pods(w.Server); got != c.remain {
					t.Errorf("in the end: pods %s, want %s", got, c.remain)
				}
			})
		})
	}
}

// TestLastRetry: the restart that is one too many leaves what has ended for people to look at, ends what runs, and the Job fails.
func TestLastRetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.start()
		j := job(policies(policy(bus.RestartJobAction, on(bus.PodFailedEvent))))
		w.up(j)
		for n := 1; ; n++ {
			set(w.Server, "j-w-0", corev1.PodFailed, 1)
			pass(time.Second)
			if n == 3 {
				break
			}
			w.gone()
			admit(w.Server, j)
			pass(time.Second)
			if is := w.is(batch.Pending).Status; is.RetryCount != int32(n) || is.Version != int32(n) {
				t.Fatalf("restart %d: %+v", n, is)
			}
			for _, name := range podNames {
				set(w.Server, name, corev1.PodRunning, 0)
			}
			pass(time.Second)
		}
		w.gone()
		is := w.is(batch.Failed).Status
		if got := pods(w.Server); got != "w-0@2" || is.RetryCount != 3 || is.Failed != 1 || is.Running+is.Terminating != 0 {
			t.Errorf("pods %s, status %+v", got, is)
		}
	})
}

// TestRestOutlivesNobody: pods that run when a Job fails at its last targeted restart are ended.
func TestRestOutlivesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.start()
		w.up(job(policies(policy(bus.RestartPodAction, on(bus.PodFailedEvent))), func(j *batch.Job) { j.Spec.MaxRetry = 1 }))
		set(w.Server, "j-w-0", corev1.PodFailed, 1)
		pass(time.Second)
		w.gone()
		w.is(batch.Failed)
		if got := pods(w.Server); got != "" {
			t.Errorf("pods %s", got)
		}
	})
}

// TestPendingTimeout: a pod that waits too long is restarted, and its task, which Volcano accepts and does not do.
func TestPendingTimeout(t *testing.T) {
	t.Parallel()
	for action, want := range map[bus.Action]int{bus.RestartPodAction: 1, bus.RestartTaskAction: 2} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				stop := w.start()
				j := job(policies(policy(action, on(bus.PodPendingEvent), within("10m"))))
				w.Put(j)
				pass(time.Second)
				admit(w.Server, j)
				pass(time.Second)
				set(w.Server, "j-ps-0", corev1.PodRunning, 0)
				if action == bus.RestartPodAction {
					set(w.Server, "j-w-0", corev1.PodRunning, 0)
				}
				was := uids(w.Server)
				pass(5 * time.Minute)
				stop() // the controller is started anew meanwhile: the time goes on
				w.start()
				pass(4 * time.Minute)
				if d := changed(was, uids(w.Server)); d != 0 {
					t.Fatalf("%d pods are others before it is time", d)
				}
				pass(2 * time.Minute)
				if d := changed(was, uids(w.Server)); d != want || w.job().Status.RetryCount != 1 {
					t.Errorf("%d pods are others, want %d: %+v", d, want, w.job().Status)
				}
			})
		})
	}
}

func uids(s *kubetest.Server) map[string]types.UID {
	out := map[string]types.UID{}
	for _, name := range podNames {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if s.Get(p) {
			out[name] = p.UID
		}
	}
	return out
}

func changed(was, is map[string]types.UID) (n int) {
	for name := range was { // order: they are counted
		if was[name] != is[name] {
			n++
		}
	}
	return n
}

// TestUnknown: a gang that lost its place is answered also after a restart, which Volcano forgets.
func TestUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.start()
		j := job(policies(policy(bus.RestartJobAction, on(bus.PodFailedEvent)), policy(bus.AbortJobAction, on(bus.JobUnknownEvent))))
		w.up(j)
		set(w.Server, "j-w-0", corev1.PodFailed, 1)
		pass(time.Second)
		w.gone()
		admit(w.Server, j)
		pass(time.Second)
		if v := w.job().Status.Version; v != 1 {
			t.Fatalf("version %d", v)
		}
		g := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: groupName(w.job())}}
		kubetest.Edit(w.Server, g, func(g *scheduling.PodGroup) { g.Status.Phase = scheduling.PodGroupUnknown })
		pass(time.Second)
		w.is(batch.Aborted)
	})
}

// TestJobUpdated: the change of a spec is an event, once; what the controller itself writes into the spec is none.
func TestJobUpdated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.start()
		j := job(policies(policy(bus.RestartJobAction, on(bus.JobUpdatedEvent))), func(j *batch.Job) {
			j.Spec.Volumes = []batch.VolumeSpec{{MountPath: "/data", VolumeClaim: &corev1.PersistentVolumeClaimSpec{}}}
		})
		w.up(j)
		if n := w.job().Status.RetryCount; n != 0 {
			t.Fatalf("%d retries although nobody changed it", n)
		}
		kubetest.Edit(w.Server, w.job(), func(j *batch.Job) { j.Spec.Tasks[1].Replicas, j.Spec.MinAvailable = 1, 2 })
		pass(time.Second)
		w.is(batch.Restarting)
		w.gone()
		admit(w.Server, j)
		pass(time.Hour)
		if is := w.is(batch.Pending).Status; is.RetryCount != 1 || pods(w.Server) != "ps-0@1 w-0@1" {
			t.Errorf("pods %s, status %+v", pods(w.Server), is)
		}
	})
}

// TestFailureWhileAway: a pod that failed while no controller ran is answered by the next.
func TestFailureWhileAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		stop := w.start()
		w.up(job(policies(policy(bus.TerminateJobAction, code(7)))))
		stop()
		set(w.Server, "j-ps-0", corev1.PodFailed, 7)
		w.start()
		pass(time.Second)
		w.gone()
		w.is(batch.Terminated)
	})
}

// TestCommands: a Command is deleted and obeyed once; one for an earlier Job of the name, or with an unknown action, changes nothing.
func TestCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.start()
		j := job()
		w.up(j)
		n := 0
		send := func(action bus.Action, uid types.UID) {
			n++
			c := &bus.Command{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("c%d", n)}, Action: string(action),
				TargetObject: &metav1.OwnerReference{APIVersion: batch.GroupVersion.String(), Kind: "Job", Name: "j", UID: uid},
			}
			w.Put(c)
			pass(time.Second)
			if w.Get(c) {
				t.Errorf("%s is still there", action)
			}
		}
		send(bus.AbortJobAction, "another")
		send("Dance", j.UID)
		w.is(batch.Running)
		send(bus.AbortJobAction, j.UID)
		w.is(batch.Aborting)
		w.gone()
		w.is(batch.Aborted)
		send(bus.RestartJobAction, j.UID)
		w.is(batch.Aborted)
		send(bus.ResumeJobAction, j.UID)
		admit(w.Server, j)
		pass(time.Second)
		if is := w.is(batch.Pending).Status; is.RetryCount != 1 || pods(w.Server) != "ps-0@2 w-0@2 w-1@2" {
			t.Errorf("pods %s, status %+v", pods(w.Server), is)
		}
		send(bus.CompleteJobAction, j.UID)
		w.gone()
		w.is(batch.Completed)
		if !slices.Contains(w.told, "CommandIssued: Start to execute command AbortJob, and clean it up to make sure executed not more than once.") {
			t.Errorf("told: %q", w.told)
		}
	})
}

// TestImportantFirst: pods of the task of the highest priority are made first, and those of each in the order of their numbers.
func TestImportantFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.start()
		w.Put(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 7})
		j := job(func(j *batch.Job) { j.Spec.Tasks[1].Template.Spec.PriorityClassName = "high" })
		w.Put(j)
		pass(time.Second)
		w.Writes()
		admit(w.Server, j)
		pass(time.Second)
		var made []string
		for _, c := range w.Writes() {
			if c.Verb == "create" && c.Kind == "Pod" {
				made = append(made, c.Name)
			}
		}
		if want := []string{"j-w-0", "j-w-1", "j-ps-0"}; !slices.Equal(made, want) {
			t.Errorf("pods are made in the order %v, want %v", made, want)
		}
	})
}

// TestReasons: a Job that waits says why, and nothing is written while it waits.
func TestReasons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.start()
		w.Put(job(func(j *batch.Job) {
			j.Spec.Queue, j.Spec.Volumes = "team", []batch.VolumeSpec{{MountPath: "/data", VolumeClaimName: "data"}}
		}))
		because := func(reason, message string) {
			t.Helper()
			pass(time.Second)
			if is := w.is(batch.Pending).Status.State; is.Reason != reason || is.Message != message {
				t.Errorf("%s: %s, want %s: %s", is.Reason, is.Message, reason, message)
			}
			w.Writes()
			if pass(time.Hour); w.wrote() != "" {
				t.Errorf("something is written while it waits for %s", reason)
			}
		}
		because(reasonQueue, "queue team does not exist")
		w.Put(&scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
		because(reasonClaim, "spec.volumes[0]: claim data does not exist")
		w.Put(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"}})
		because("", "")
		g := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: groupName(w.job())}}
		kubetest.Edit(w.Server, g, func(g *scheduling.PodGroup) {
			g.Status.Phase = scheduling.PodGroupPending
			g.Status.Conditions = []scheduling.PodGroupCondition{{
				Type: scheduling.PodGroupUnschedulableType, Status: corev1.ConditionTrue, Reason: "NotEnoughResources", Message: "3 GPUs are idle, 8 are needed",
			}}
		})
		because(reasonGroup, "NotEnoughResources: 3 GPUs are idle, 8 are needed")
		kubetest.Edit(w.Server, g, func(g *scheduling.PodGroup) {
			g.Status.Phase, g.Status.Conditions[0].Message = scheduling.PodGroupInqueue, "no node has room"
		})
		because(reasonGroup, "NotEnoughResources: no node has room") // admitted, its pods made
		if told := "PodGroupPending: NotEnoughResources: no node has room"; !slices.Contains(w.told, told) {
			t.Errorf("told %q, and not %q", w.told, told)
		}
		kubetest.Edit(w.Server, g, func(g *scheduling.PodGroup) { g.Status.Conditions[0].Status = corev1.ConditionFalse })
		because("", "")
	})
}

// TestMakes: what is said to be made of a Job is what the controller makes of it, but for what the API server adds.
func TestMakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.start()
		j := job(func(j *batch.Job) { j.Spec.Plugins = map[string][]string{"env": {}, "svc": {}} })
		w.up(j)
		w.Get(j)
		j.Status = batch.JobStatus{}
		var names []string
		for _, want := range Makes(j) {
			got := want.DeepCopyObject().(client.Object)
			if !w.Get(got) {
				t.Errorf("%T %s is not there", want, want.GetName())
			}
			names = append(names, fmt.Sprintf("%T", want))
			if d := cmp.Diff(want.GetOwnerReferences(), got.GetOwnerReferences()); d != "" {
				t.Error(d)
			}
			if want, ok := want.(*corev1.Pod); ok {
				got := got.(*corev1.Pod)
				got.Spec.NodeName = ""
				if d := cmp.Diff(want.Spec, got.Spec); d != "" {
					t.Error(d)
				}
			}
		}
		if want := "*v1.ConfigMap *v1.Service *v1.NetworkPolicy *v1beta1.PodGroup *v1.Pod *v1.Pod *v1.Pod"; strings.Join(names, " ") != want {
			t.Errorf("made are %v, want %s", names, want)
		}
	})
}

//go:build lab

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vcbus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	vcflow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// TestVolcanoBetter: on a real API server what Volcano's controllers accept and do not do is done: the counters of a Job that has ended are true and stay, nothing runs on of a Job that failed at
// its last retry, a policy for Unknown works after a restart, one for a failure though no controller ran when the pod failed, terminated Jobs of a CronJob are pruned, probe and patch of a JobFlow are honoured,
// and the status of a queue counts its PodGroups.
// What is asked of policies for PodPending and JobUpdated TestVolcanoStates asks.
func TestVolcanoBetter(t *testing.T) {
	b := newVolcanoFixture(t)
	b.watch(t, &vcflow.JobFlow{})
	d := newDesk(t, b, "better")
	policy := func(event vcbus.Event, action vcbus.Action, retries int32) func(*vcbatch.JobSpec) {
		return func(j *vcbatch.JobSpec) {
			j.Policies, j.MaxRetry = []vcbatch.LifecyclePolicy{{Event: event, Action: action}}, retries
		}
	}
	d.add("counters", 2, nil)
	d.add("last", 2, policy(vcbus.PodFailedEvent, vcbus.RestartJobAction, 1))
	d.add("last-pod", 2, policy(vcbus.PodFailedEvent, vcbus.RestartPodAction, 1))
	d.add("unknown", 2, policy(vcbus.JobUnknownEvent, vcbus.AbortJobAction, 3))
	d.add("away", 2, policy(vcbus.PodFailedEvent, vcbus.TerminateJobAction, 3))
	d.until("they run", func(_ string, j *deskJob) string { return d.up(j, 2) })

	for _, name := range []string{"v-0", "w-0", "w-1"} {
		d.pod(d.jobs["counters"].pods[name], corev1.PodSucceeded, 0, 0)
	}
	d.pod(d.jobs["last"].pods["w-0"], corev1.PodFailed, 1, 0)
	d.pod(d.jobs["last-pod"].pods["w-0"], corev1.PodFailed, 1, 0)
	d.commands("a restart", func(name string) vcbus.Action {
		if name == "unknown" {
			return vcbus.RestartJobAction
		}
		return ""
	})
	d.until("they end, and run again", func(name string, j *deskJob) string {
		switch is := &j.Status; name {
		case "counters":
			if is.State.Phase != vcbatch.Completed || is.Succeeded != 3 {
				return fmt.Sprintf("%d have succeeded", is.Succeeded)
			}
		case "last", "last-pod":
			if text := d.gone(j); text != "" {
				return text
			}
			if is.State.Phase != vcbatch.Failed || is.Running+is.Pending+is.Terminating > 0 {
				return "something goes on"
			}
			return j.leaving()
		case "unknown":
			if text := d.gone(j); text != "" {
				return text
			}
			if is.Version != 1 {
				return "it was not restarted"
			}
			return d.up(j, 2)
		}
		return ""
	})
	if p := d.jobs["last"].pods; len(p) != 1 || p["w-0"] == nil {
		t.Errorf("of the Job that failed at its last retry there are the pods%s, want the one that failed", d.jobs["last"].says())
	}

	for _, p := range d.jobs["counters"].pods { // order: each on its own
		d.ask(d.client.Delete(t.Context(), p.DeepCopy(), client.GracePeriodSeconds(0)))
	}
	d.groupIs(d.jobs["unknown"].group, vcscheduling.PodGroupUnknown)
	d.until("they are cleared away", func(name string, j *deskJob) string {
		switch {
		case name == "counters" && len(j.pods) > 0:
			return "there are pods"
		case name == "unknown" && !j.was(vcbatch.Aborting):
			return "nobody aborts it"
		}
		return ""
	})
	d.commands("a look at the one that has ended", func(name string) vcbus.Action {
		if name == "counters" {
			return vcbus.SyncJobAction
		}
		return ""
	})
	if is := d.jobs["counters"].Status; is.Succeeded != 3 || is.TaskStatusCount["w"].Phase[corev1.PodSucceeded] != 2 {
		t.Errorf("its pods are cleared away, and its status says %+v", is)
	}

	b.controllers.kill()
	d.pod(d.jobs["away"].pods["w-0"], corev1.PodFailed, 7, 0)
	b.controllers.start()
	d.until("a failure is answered by the next controller", func(name string, j *deskJob) string {
		if name == "away" {
			if text := d.gone(j); text != "" {
				return text
			}
			if j.Status.State.Phase != vcbatch.Terminated {
				return "it is not terminated"
			}
		}
		return ""
	})
	cronsArePruned(t, b)
	flowsAreHonoured(t, b)
	queuesAreCounted(t, b)
}

// queuesAreCounted: the status of the queue that all these Jobs are in counts their PodGroups by phase.
func queuesAreCounted(t *testing.T, b *volcanoFixture) {
	b.must(t, guard, func() string {
		want := map[vcscheduling.PodGroupPhase]int32{}
		for _, g := range list(b.fixture, &vcscheduling.PodGroupList{}).Items {
			if g.Status.Phase == "" {
				want[vcscheduling.PodGroupPending]++
			} else {
				want[g.Status.Phase]++
			}
		}
		for _, q := range list(b.fixture, &vcscheduling.QueueList{}).Items {
			is := &q.Status
			if q.Name != vckeys.DefaultQueue {
				continue
			}
			if is.Pending == want[vcscheduling.PodGroupPending] && is.Inqueue == want[vcscheduling.PodGroupInqueue] && is.Unknown == want[vcscheduling.PodGroupUnknown] && is.Pending > 0 && is.Inqueue > 0 {
				return ""
			}
			return fmt.Sprintf("the queue counts %+v, there are %v", *is, want)
		}
		return "there is no queue"
	})
}

// cronsArePruned: of three Jobs of a CronJob that are terminated one is kept. The CronJob is suspended and its Jobs are made here, as its controller makes them, so that no minute has to pass.
func cronsArePruned(t *testing.T, b *volcanoFixture) {
	d := newDesk(t, b, "cron")
	c := &vcbatch.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: d.ns, Name: "c"}, Spec: vcbatch.CronJobSpec{
		Schedule: "* * * * *", Suspend: ptr.To(true), FailedJobsHistoryLimit: ptr.To[int32](1), JobTemplate: vcbatch.JobTemplateSpec{Spec: deskJobSpec(2)},
	}}
	b.create(t, c)
	due := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for range 3 {
		due = due.Add(time.Minute)
		j := &vcbatch.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: d.ns, Name: fmt.Sprintf("c-%d", due.Unix()/60), Annotations: map[string]string{vckeys.CronScheduled: due.Format(time.RFC3339)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c, vcbatch.GroupVersion.WithKind("CronJob"))},
		}, Spec: deskJobSpec(2)}
		b.create(t, j)
		d.jobs[j.Name] = &deskJob{Job: j}
	}
	d.commands("the end", func(string) vcbus.Action { return vcbus.TerminateJobAction })
	last := fmt.Sprintf("c-%d", due.Unix()/60)
	b.must(t, guard, func() string {
		all := list(b.fixture, &vcbatch.JobList{}, client.InNamespace(d.ns)).Items
		if len(all) != 1 || all[0].Name != last || all[0].Status.State.Phase != vcbatch.Terminated {
			return fmt.Sprintf("there are %d Jobs; want %s, terminated", len(all), last)
		}
		return ""
	})
}

// flowsAreHonoured: a part of a flow whose probe asks that the pods of another run is made while these do, as its patch says.
func flowsAreHonoured(t *testing.T, b *volcanoFixture) {
	d := newDesk(t, b, "flow")
	for _, name := range []string{"a", "b"} {
		b.create(t, &vcflow.JobTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: d.ns, Name: name}, Spec: deskJobSpec(2)})
	}
	b.create(t, &vcflow.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: d.ns, Name: "f"}, Spec: vcflow.JobFlowSpec{Flows: []vcflow.Flow{
		{Name: "a"},
		{
			Name:      "b",
			DependsOn: &vcflow.DependsOn{Targets: []string{"a"}, Probe: &vcflow.Probe{TaskStatusList: []vcflow.TaskStatus{{TaskName: "w", Phase: "Running"}}}},
			Patch:     &vcflow.Patch{Spec: vcbatch.JobSpec{MinAvailable: 2, Tasks: []vcbatch.TaskSpec{{Name: "w", Replicas: 5, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/other"}}}}}}}},
		},
	}}})
	b.must(t, guard, func() string {
		if b.job(d.ns, "f-a") == nil {
			return "there is no Job of the first part"
		}
		return ""
	})
	if b.job(d.ns, "f-b") != nil {
		t.Error("the second part is made although nothing runs")
	}
	d.jobs["f-a"] = &deskJob{Job: b.job(d.ns, "f-a")}
	d.until("the first part runs", func(_ string, j *deskJob) string { return d.up(j, 2) })
	b.must(t, guard, func() string {
		if b.job(d.ns, "f-b") == nil {
			return "there is no Job of the second part"
		}
		return ""
	})
	if j := b.job(d.ns, "f-a"); j.Status.State.Phase != vcbatch.Running {
		t.Errorf("the first part is %s", j.Status.State.Phase)
	}
	if j := b.job(d.ns, "f-b"); j.Spec.MinAvailable != 2 || len(j.Spec.Tasks) != 2 || j.Spec.Tasks[1].Replicas != 5 || j.Spec.Tasks[1].Template.Spec.Containers[0].Image != "registry.example/other" || j.Spec.Queue != vckeys.DefaultQueue {
		t.Errorf("the second part is not as its patch says: %+v", j.Spec)
	}
}

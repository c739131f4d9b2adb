//go:build lab

package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/install"
)

// guard is how long something may take that is not about time, on a machine that does other things too.
const guard = 3 * time.Minute

// bareJob is a Job that says no more than it must: two pods, in a queue, or in none.
func bareJob(namespace, name, queue string) *vcbatch.Job {
	return &vcbatch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: vcbatch.JobSpec{
		Queue: queue,
		Tasks: []vcbatch.TaskSpec{{Replicas: 2, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "registry.example/train"}},
		}}}},
	}}
}

// TestVolcanoAdmission: on a real API server Jobs that say little are completed, and run; Volcano's examples that are there to be refused are, and so are Jobs, Queues and PodGroups where the
// queues do not allow them, pods of Volcano's by a policy, and nobody else's; while the role is dead, Volcano's kinds wait for it and pods do not.
func TestVolcanoAdmission(t *testing.T) {
	b := newFacesFixture(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	admission := newProcess(t, install.Admission, b.lab.Kubeconfig(), "--volcano-scheduler-name="+vckeys.SchedulerName,
		fmt.Sprintf("--webhook-addr=%d", port), fmt.Sprintf("--webhook-url=https://127.0.0.1:%d", port))
	admission.start()
	admission.awaitReady(t)
	const ns = "admitted"
	b.namespace(t, ns)
	answer := func(o client.Object) string {
		o = o.DeepCopyObject().(client.Object)
		if err := b.client.Create(t.Context(), o, client.DryRunAll); err != nil {
			return err.Error()
		}
		return ""
	}
	completed := func() string {
		j := bareJob(ns, "probe", "")
		if err := b.client.Create(t.Context(), j, client.DryRunAll); err != nil {
			return err.Error()
		}
		if j.Spec.SchedulerName == "" {
			return "the Job is not completed"
		}
		if said := answer(bareJob(ns, "probe", "gone")); !strings.Contains(said, "spec.queue: Not found") {
			return "the Job is not judged: " + said
		}
		return ""
	}
	b.must(t, guard, completed)
	refused := func(name string, o client.Object, want string) {
		t.Helper()
		if said := answer(o); said != "" && want == "" || !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", name, said, want)
		}
	}

	j := bareJob(ns, "bare", "")
	b.create(t, j)
	task := &j.Spec.Tasks[0]
	if s := &j.Spec; s.Queue != vckeys.DefaultQueue || s.SchedulerName != vckeys.SchedulerName || s.MaxRetry != 3 || s.MinAvailable != 2 || task.Name != "default0" || task.MaxRetry != 3 || ptr.Deref(task.MinAvailable, 0) != 2 {
		t.Errorf("the Job is completed to %+v", j.Spec)
	}
	b.must(t, guard, b.phase(ns, "bare", vcbatch.Running, 2, 0))
	for name, want := range map[string]string{ // order: nothing is kept
		"invalid_jobs/duplicatedPolicyEvent-webhook-deny.yaml": `spec.policies[1].event: Duplicate value: "PodFailed"`,
		"invalid_jobs/duplicatedTaskName-webhook-deny.yaml":    `spec.tasks[1].name: Duplicate value: "task-1"`,
		"invalid_jobs/minAvailable-webhook-deny.yaml":          "spec.minAvailable: Invalid value: 5: must be at most the sum of the tasks' replicas, which is 4",
	} {
		refused(name, volcanoExample(t, ns, name), want)
	}
	moved := j.DeepCopy()
	moved.Spec.Queue = "elsewhere"
	if err := b.client.Patch(t.Context(), moved, client.MergeFrom(j), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "spec.queue: Forbidden: must not change") {
		t.Errorf("a Job is moved: %v", err)
	}
	if err := b.client.Patch(t.Context(), moved, client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"a": "b"}}}`)), client.DryRunAll); err != nil {
		t.Errorf("a Job is not labelled: %v", err)
	}

	queue := func(name, parent string) *vcscheduling.Queue {
		return &vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: vcscheduling.QueueSpec{Parent: parent}}
	}
	b.create(t, queue("team", ""))
	made := queue("team-a", "team")
	b.create(t, made)
	if made.Spec.Reclaimable == nil || !*made.Spec.Reclaimable || made.Spec.Weight != 1 {
		t.Errorf("the queue is completed to %+v", made.Spec)
	}
	b.must(t, guard, func() string { // once the role has heard of it
		if said := answer(bareJob(ns, "above", "team")); !strings.Contains(said, "has queues below it, such as team-a") {
			return "a Job above a queue: " + said
		}
		return ""
	})
	refused("a Job in root", bareJob(ns, "root", vckeys.RootQueue), "no Job is in root")
	refused("a queue below none", queue("lost", "gone"), `Queue.scheduling.volcano.sh "lost" is invalid: spec.parent: Not found: "gone"`)
	b.create(t, bareJob(ns, "leaf", "team-a"))
	b.must(t, guard, b.phase(ns, "leaf", vcbatch.Running, 2, 0))
	b.must(t, guard, func() string {
		if said := answer(queue("team-a-a", "team-a")); !strings.Contains(said, "pods run in it") {
			return "a queue below one in which pods run: " + said
		}
		return ""
	})
	for name, want := range map[string]string{ // order: nothing is deleted
		"team": "has queues below it, such as team-a", vckeys.DefaultQueue: "must not be deleted", vckeys.RootQueue: "must not be deleted", "team-a": "",
	} {
		err := b.client.Delete(t.Context(), queue(name, ""), client.DryRunAll)
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("the end of %s: %v, want %q", name, err, want)
		}
	}
	b.vcctl(t, "queue", "operate", "-n", "team-a", "-a", "close")
	b.must(t, guard, func() string {
		if said := answer(bareJob(ns, "late", "team-a")); !strings.Contains(said, "its state is Closing") {
			return "a Job in a queue that closes: " + said
		}
		return ""
	})
	b.vcctl(t, "queue", "operate", "-n", "team-a", "-a", "open")
	b.must(t, guard, func() string { return answer(bareJob(ns, "late", "team-a")) })

	group := func(queue string) *vcscheduling.PodGroup {
		return &vcscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "g"}, Spec: vcscheduling.PodGroupSpec{Queue: queue}}
	}
	refused("a PodGroup of no queue", group("gone"), "spec.queue: Not found")
	both := group("")
	both.Spec.NetworkTopology = &vcscheduling.NetworkTopologySpec{HighestTierAllowed: ptr.To(1), HighestTierName: "rack"}
	pod := func(scheduler, missing string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p", Annotations: map[string]string{vckeys.JDBMaxUnavailable: missing}},
			Spec:       corev1.PodSpec{SchedulerName: scheduler, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
	}
	// What an API server has been given, webhooks and policies, is in force some time later, of which no object tells.
	b.must(t, guard, func() string {
		if said := answer(both); !strings.Contains(said, "must not be set together with highestTierAllowed") {
			return "both tiers: " + said
		}
		if said := answer(pod(vckeys.SchedulerName, "all")); !strings.Contains(said, `is "all", must be a whole number above 0`) {
			return "a budget of all: " + said
		}
		return ""
	})
	refused("a budget", pod(vckeys.SchedulerName, "10%"), "")
	refused("a budget of another scheduler's pod", pod("default-scheduler", "all"), "")
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	if err := b.client.Patch(t.Context(), space, client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"annotations": {"`+vckeys.QueueName+`": "team-a"}}}`))); err != nil {
		t.Fatal(err)
	}
	g := group(vckeys.DefaultQueue)
	b.create(t, g)
	if g.Spec.Queue != "team-a" {
		t.Errorf("a PodGroup of a namespace that names team-a is in %s", g.Spec.Queue)
	}

	admission.kill()
	refused("a Job without the role", bareJob(ns, "lone", ""), "failed calling webhook")
	refused("a pod without the role", pod(vckeys.SchedulerName, "1"), "")
	refused("somebody else's pod without the role", pod("default-scheduler", "1"), "")
	if err := b.client.Patch(t.Context(), j, client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"a": "b"}}}`))); err != nil {
		t.Errorf("a Job is not labelled without the role: %v", err)
	}
	admission.start()
	b.must(t, guard, completed)
}

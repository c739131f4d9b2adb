//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vcbus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/crds"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/lab"
)

// takeoverGuard is how long the test waits for anything. Nothing is asserted about times.
const takeoverGuard = 3 * time.Minute

// volcanosRecord reads the state that Volcano left in an API server, but for its events and what every API server makes. Namespaces were not recorded.
func volcanosRecord(t *testing.T, folder string) (out []*unstructured.Unstructured) {
	t.Helper()
	for i, name := range []string{"load", vckeys.Namespace} {
		out = append(out, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": name, "uid": fmt.Sprintf("00000000-0000-4000-8000-%012d", i), "creationTimestamp": "2026-11-22T12:12:50Z"},
			"spec":     map[string]any{"finalizers": []any{"kubernetes"}}, "status": map[string]any{"phase": "Active"},
		}})
	}
	for _, file := range []string{"nodes", "queues.scheduling.volcano.sh", "jobs.batch", "jobs.batch.volcano.sh", "podgroups.scheduling.volcano.sh", "pods", "configmaps", "secrets", "services", "leases"} {
		text, err := os.ReadFile(filepath.Join(folder, file+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var list unstructured.UnstructuredList
		if err := list.UnmarshalJSON(text); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i := range list.Items {
			if o := &list.Items[i]; o.GetName() != "kube-root-ca.crt" {
				out = append(out, o)
			}
		}
	}
	return out
}

// register counts what became of the pods and Jobs of a namespace, as watches tell it, from the moment that it begins.
type register struct {
	mu            sync.Mutex
	made, leaving map[types.UID]string // pods by name
	retries       map[string]int32     // the most of each Job
}

// register begins to count.
func (b *volcanoFixture) register(t *testing.T, namespace string) *register {
	t.Helper()
	r := &register{made: map[types.UID]string{}, leaving: map[types.UID]string{}, retries: map[string]int32{}}
	see := func(object any, gone bool) {
		if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		o, ok := object.(client.Object)
		if !ok || o.GetNamespace() != namespace {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		switch o := o.(type) {
		case *corev1.Pod:
			r.made[o.UID] = o.Name
			if gone || o.DeletionTimestamp != nil {
				r.leaving[o.UID] = o.Name
			}
		case *vcbatch.Job:
			r.retries[o.Name] = max(r.retries[o.Name], o.Status.RetryCount)
		}
	}
	for _, kind := range []client.Object{&corev1.Pod{}, &vcbatch.Job{}} {
		i, err := b.cache.GetInformer(t.Context(), kind)
		if err != nil {
			t.Fatal(err)
		}
		h, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { see(o, false) }, UpdateFunc: func(_, o any) { see(o, false) }, DeleteFunc: func(o any) { see(o, true) },
		})
		if err != nil {
			t.Fatal(err)
		}
		if !toolscache.WaitForCacheSync(t.Context().Done(), h.HasSynced) {
			t.Fatal("the watches did not begin")
		}
	}
	return r
}

// of are the pods of a Job that were ever there, and those of them that left.
func (r *register) of(job string) (made, left int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, name := range r.made { // order: a count
		if !strings.HasPrefix(name, job+"-") {
			continue
		}
		made++
		if _, gone := r.leaving[uid]; gone {
			left++
		}
	}
	return made, left
}

// TestVolcanoTakeover loads the state that Volcano left when its programs were killed in the middle of their work, and starts Muster on it: no pod is evicted, none is made twice, no retry is
// counted, Jobs that run go on, one that was being restarted starts when there is room, one that is over its queue's capability waits, and one that was aborted stays so. Then the way
// back: what Muster leaves is what Volcano reads.
func TestVolcanoTakeover(t *testing.T) {
	folder := compatFolder(t, "volcano", "takeover")
	if folder == "" {
		return
	}
	o := lab.Options{Fleet: lab.Fleet{Pools: []lab.Pool{}}, Recorded: volcanosRecord(t, folder)}
	for _, f := range crds.All() {
		o.CRDs = append(o.CRDs, f.YAML)
	}
	b := &volcanoFixture{fixture: newFixture(t, 0, o)}
	for _, kind := range []client.Object{&vcbatch.Job{}, &vcscheduling.PodGroup{}, &vcscheduling.Queue{}, &vcbus.Command{}} {
		b.watch(t, kind)
	}
	b.tell("load")
	b.must(t, takeoverGuard, func() string { return b.allRunning("load", 5+2)() })
	seen := b.register(t, "load")
	was := map[types.UID]corev1.Pod{}
	for _, p := range b.pods("load") {
		was[p.UID] = *p.DeepCopy()
	}
	if len(was) != 5+2+4 {
		t.Fatalf("%d pods are recorded", len(was))
	}

	// The check tells beforehand whom the change concerns: who was admitted and has not started.
	if out, _ := b.migrateCheck(t); !strings.Contains(out, "PodGroup load/train-03a48089-2e52-423f-8926-7b6c3fbc1e6a") || !strings.Contains(out, "[voted-anew]") || strings.Contains(out, "may not read") {
		t.Errorf("the check says\n%s", out)
	}

	b.controllers = newProcess(t, install.VolcanoControllers, b.as(t, install.VolcanoControllers), "--leader-elect")
	b.controllers.start()
	file := filepath.Join(t.TempDir(), "volcano-scheduler.conf")
	text := "actions: \"enqueue, allocate, backfill\"\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n  - name: conformance\n- plugins:\n  - name: overcommit\n  - name: drf\n  - name: predicates\n  - name: proportion\n  - name: nodeorder\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	running := b.schedule(t, func(*volcanoFixture) []string { return []string{"--volcano-scheduler-conf=" + file} })

	// A Job that is new runs: controllers and scheduler are at work, and have taken everything in.
	b.create(t, &vcbatch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "load", Name: "fresh"}, Spec: vcbatch.JobSpec{
		SchedulerName: vckeys.SchedulerName, MinAvailable: 2, Queue: vckeys.DefaultQueue, Tasks: []vcbatch.TaskSpec{{Name: "w", Replicas: 2, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "w", Image: "sim", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}},
		}}}},
	}})
	b.must(t, takeoverGuard, b.phase("load", "fresh", vcbatch.Running, 2, 0))
	groupOf := func(job string, phase vcscheduling.PodGroupPhase) func() string {
		return func() string {
			for _, g := range list(b.fixture, &vcscheduling.PodGroupList{}, client.InNamespace("load")).Items {
				if g.OwnerReferences[0].Name == job && g.Status.Phase == phase {
					return ""
				}
			}
			return fmt.Sprintf("the PodGroup of %s is not %s:%s", job, phase, b.sayGroups("load"))
		}
	}
	b.must(t, takeoverGuard, groupOf("wait", vcscheduling.PodGroupRunning)) // Volcano left it as Inqueue
	b.must(t, takeoverGuard, groupOf("plain", vcscheduling.PodGroupRunning))
	b.must(t, takeoverGuard, groupOf("toobig", vcscheduling.PodGroupPending))
	b.must(t, takeoverGuard, b.phase("load", "wait", vcbatch.Running, 5, 0))
	b.must(t, takeoverGuard, b.phase("load", "train", vcbatch.Pending, 0, 0))
	b.must(t, takeoverGuard, b.phase("load", "aborted", vcbatch.Aborted, 0, 0))
	b.must(t, takeoverGuard, func() string { // whoever leads stands in the way of another
		if out, refused := b.migrateCheck(t); !refused || !strings.Contains(out, "Lease volcano-system/vc-controller-manager: ") {
			return "the check says\n" + out
		}
		return ""
	})
	b.unmoved(t, was)
	for job, pods := range map[string]int{"wait": 5, "plain": 2, "train": 4, "toobig": 0, "aborted": 0, "fresh": 2} { // order: each by itself
		if made, left := seen.of(job); made != pods || left != 0 {
			t.Errorf("of %s there were %d pods, want %d, of which %d left", job, made, pods, left)
		}
	}

	// Its owner ends what is in the way: the Job whose restart was under way starts, with the pods that Volcano made for it.
	wait := b.job("load", "wait")
	b.create(t, &vcbus.Command{
		ObjectMeta: metav1.ObjectMeta{Namespace: "load", Name: "end-wait"}, Action: string(vcbus.AbortJobAction),
		TargetObject: &metav1.OwnerReference{APIVersion: "batch.volcano.sh/v1alpha1", Kind: "Job", Name: "wait", UID: wait.UID},
	})
	b.must(t, takeoverGuard, b.phase("load", "wait", vcbatch.Aborted, 0, 0))
	b.must(t, takeoverGuard, b.phase("load", "train", vcbatch.Running, 4, 0))
	b.must(t, takeoverGuard, groupOf("train", vcscheduling.PodGroupRunning))
	for _, p := range append(running, b.controllers) {
		p.stop(t)
	}
	b.must(t, takeoverGuard, func() string {
		if _, left := seen.of("wait"); left != 5 {
			return fmt.Sprintf("%d pods of wait have left", left)
		}
		return ""
	})
	for job, pods := range map[string][2]int{"wait": {5, 5}, "plain": {2, 0}, "train": {4, 0}, "toobig": {0, 0}, "aborted": {0, 0}, "fresh": {2, 0}} { // order: each by itself
		if made, left := seen.of(job); made != pods[0] || left != pods[1] {
			t.Errorf("of %s there were %d pods, of which %d left; want %v", job, made, left, pods)
		}
	}
	seen.mu.Lock()
	if want := retriesLeft(); !maps.Equal(seen.retries, want) {
		t.Errorf("retries that were counted: %v, want %v", seen.retries, want)
	}
	seen.mu.Unlock()
	b.backToVolcano(t)
}

// retriesLeft are the retries that the recorded Jobs, and the new one, had counted when Volcano left.
func retriesLeft() map[string]int32 {
	return map[string]int32{"train": 1, "wait": 0, "toobig": 0, "aborted": 0, "fresh": 0}
}

// migrateCheck runs the check, and returns what it says, and whether something stands in the way.
func (b *volcanoFixture) migrateCheck(t *testing.T) (out string, refused bool) {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), os.Getenv(binaryEnv), "migrate", "check", "--from", "volcano", "--kubeconfig", b.lab.Kubeconfig()).CombinedOutput()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		t.Fatal(err)
	}
	return string(text), err != nil
}

// unmoved checks that pods are there as they were: none is gone or goes, none that had a node is elsewhere, none that ran does not, and nobody disrupted any.
func (b *volcanoFixture) unmoved(t *testing.T, was map[types.UID]corev1.Pod) {
	t.Helper()
	var now corev1.PodList
	if err := b.client.List(t.Context(), &now, client.InNamespace("load")); err != nil {
		t.Fatal(err)
	}
	there := map[types.UID]*corev1.Pod{}
	for i := range now.Items {
		there[now.Items[i].UID] = &now.Items[i]
	}
	for uid, before := range was { // order: each by itself
		p := there[uid]
		switch {
		case p == nil || p.DeletionTimestamp != nil:
			t.Errorf("pod %s is gone or goes", before.Name)
		case before.Spec.NodeName != "" && p.Spec.NodeName != before.Spec.NodeName:
			t.Errorf("pod %s was on %s and is on %s", before.Name, before.Spec.NodeName, p.Spec.NodeName)
		case before.Status.Phase == corev1.PodRunning && p.Status.Phase != corev1.PodRunning:
			t.Errorf("pod %s ran and is %s", before.Name, p.Status.Phase)
		case slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }):
			t.Errorf("pod %s is the target of a disruption", before.Name)
		}
	}
}

// backToVolcano checks that Volcano can go on from what Muster left, by what Volcano reads.
func (b *volcanoFixture) backToVolcano(t *testing.T) {
	t.Helper()
	var jobs vcbatch.JobList
	var groups vcscheduling.PodGroupList
	var queues vcscheduling.QueueList
	var pods corev1.PodList
	var kais v2alpha2.PodGroupList
	for _, l := range []client.ObjectList{&jobs, &groups, &queues, &pods, &kais} {
		if err := b.client.List(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	if len(jobs.Items) != 5 || len(queues.Items) != 3 || len(kais.Items) != 0 {
		t.Errorf("%d Jobs, %d queues, %d PodGroups of KAI's", len(jobs.Items), len(queues.Items), len(kais.Items))
	}
	phases := []vcbatch.JobPhase{vcbatch.Pending, vcbatch.Aborted, vcbatch.Running}
	owners := map[string]string{} // PodGroups that Volcano looks for
	for i := range jobs.Items {
		j := &jobs.Items[i]
		if !slices.Contains(phases, j.Status.State.Phase) || len(j.Finalizers) > 0 || j.Status.RetryCount != retriesLeft()[j.Name] {
			t.Errorf("Job %s: %s, %d retries, %v", j.Name, j.Status.State.Phase, j.Status.RetryCount, j.Finalizers)
		}
		owners[j.Name+"-"+string(j.UID)] = j.Name
	}
	known := map[string]bool{}
	for i := range groups.Items {
		g := &groups.Items[i]
		known[g.Name] = true
		named := owners[g.Name] == g.OwnerReferences[0].Name || g.Name == "podgroup-"+string(g.OwnerReferences[0].UID)
		word := slices.Contains([]vcscheduling.PodGroupPhase{vcscheduling.PodGroupPending, vcscheduling.PodGroupInqueue, vcscheduling.PodGroupRunning}, g.Status.Phase)
		for _, c := range g.Status.Conditions {
			word = word && (c.Type == vcscheduling.PodGroupUnschedulableType || c.Type == vcscheduling.PodGroupScheduled)
		}
		if !named || !word || len(g.Finalizers) > 0 || len(g.OwnerReferences) != 1 {
			t.Errorf("PodGroup %s: %+v, %+v", g.Name, g.ObjectMeta, g.Status)
		}
	}
	for i := range queues.Items {
		if q := &queues.Items[i]; q.Status.State != vcscheduling.QueueStateOpen || len(q.Finalizers) > 0 || len(q.Status.Reservation.Nodes) > 0 {
			t.Errorf("Queue %s: %+v", q.Name, q.Status)
		}
	}
	if mine := b.pods("load"); len(mine) != 4+2+2 {
		t.Errorf("%d pods are left, of train, plain and fresh", len(mine))
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Spec.SchedulerName != vckeys.SchedulerName {
			continue
		}
		foreign := slices.ContainsFunc(p.Finalizers, func(f string) bool { return f != "batch.kubernetes.io/job-tracking" })
		if foreign || len(p.Spec.SchedulingGates) > 0 || !known[p.Annotations[vckeys.GroupName]] {
			t.Errorf("pod %s: %+v, gates %v", p.Name, p.ObjectMeta, p.Spec.SchedulingGates)
		}
	}
	for _, lease := range leases(t, b.fixture) {
		if strings.HasPrefix(lease, vckeys.Namespace+"/"+vckeys.LeaseControllers+" ") {
			t.Errorf("Lease %s", lease)
		}
	}
}

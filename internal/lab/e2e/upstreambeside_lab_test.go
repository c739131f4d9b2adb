//go:build lab

package e2e

import (
	"fmt"
	"strconv"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestUpstreamsBeside: Muster beside kube-scheduler 1.37 with gangs of its own, on the same nodes, and beside Kueue, for whose controller the test stands.
func TestUpstreamsBeside(t *testing.T) {
	w := newFixture(t, 2, lab.Options{
		KubeScheduler: true, FeatureGates: "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,WorkloadWithJob=true",
		APIServerArgs: []string{"--runtime-config=scheduling.k8s.io/v1beta1=true"},
	})
	w.watch(t, &schedulingv1beta1.PodGroup{})
	muster := newProcess(t, "all", w.lab.Kubeconfig())
	muster.start()
	muster.awaitReady(t)
	besideKubeScheduler(t, w)
	besideKueue(t, w)
	if rejected, err := w.lab.Rejected(t.Context()); err != nil || len(rejected) > 0 {
		t.Errorf("kubelets turned away %v (%v): a node was overcommitted", rejected, err)
	}
}

// besideKubeScheduler has gangs of both schedulers come to the same nodes, and wait for room, so that only one of those that wait fits at any time: each scheduler starts its own, whole,
// and the condition of a group is its own scheduler's alone.
func besideKubeScheduler(t *testing.T, w *fixture) {
	theirs, ours := corev1.DefaultSchedulerName, keys.SchedulerName
	put := func(namespace, name, scheduler string, size int) {
		w.create(t, &schedulingv1beta1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: schedulingv1beta1.PodGroupSpec{
				WorkloadRef:      &schedulingv1beta1.WorkloadReference{WorkloadName: "work", TemplateName: name},
				SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(size)}},
			},
		})
		for i := range size {
			p := gang(namespace, name, 1, "").Spec.Template
			p.Spec.SchedulerName, p.Spec.SchedulingGroup = scheduler, &corev1.PodSchedulingGroup{PodGroupName: &name}
			p.Labels["group"] = name
			w.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-" + strconv.Itoa(i), Labels: p.Labels}, Spec: p.Spec})
		}
	}
	says := func(namespace, name string, status metav1.ConditionStatus) {
		t.Helper()
		w.must(t, upstreamLimit, func() string {
			for _, g := range list(w, &schedulingv1beta1.PodGroupList{}, client.InNamespace(namespace)).Items {
				if g.Name != name {
					continue
				}
				if c := meta.FindStatusCondition(g.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled); c == nil || c.Status != status {
					return fmt.Sprintf("PodGroup %s says %+v, want %s", name, c, status)
				}
				return ""
			}
			return "there is no PodGroup " + name
		})
	}
	gone := func(namespace, name string) {
		if err := w.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(namespace), client.MatchingLabels{"group": name}); err != nil {
			t.Fatal(err)
		}
	}
	const a, b = "theirs", "ours"
	w.namespace(t, a)
	w.namespace(t, b)
	put(a, "first", theirs, 6)
	put(b, "first", ours, 6)
	w.must(t, upstreamLimit, w.allRunning(a, 6))
	w.must(t, upstreamLimit, w.allRunning(b, 6))
	put(a, "second", theirs, 8) // of 16 GPUs 4 are free
	put(b, "second", ours, 13)
	says(a, "first", metav1.ConditionTrue)
	says(b, "first", metav1.ConditionTrue)
	says(a, "second", metav1.ConditionFalse)
	says(b, "second", metav1.ConditionFalse)
	if n, m := w.boundNow(t, a), w.boundNow(t, b); n != 6 || m != 6 {
		t.Fatalf("%d pods of theirs are bound, and %d of ours; of the second groups none may be", n, m)
	}
	gone(a, "first") // 10 are free: theirs fits, ours does not
	w.must(t, upstreamLimit, w.allRunning(a, 8))
	says(a, "second", metav1.ConditionTrue)
	if n := w.boundNow(t, b); n != 6 {
		t.Fatalf("%d pods of ours are bound, want the first 6", n)
	}
	gone(a, "second") // 10 again
	gone(b, "first")  // all
	w.must(t, upstreamLimit, w.allRunning(b, 13))
	says(b, "second", metav1.ConditionTrue)
	var all schedulingv1beta1.PodGroupList
	if err := w.client.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, g := range all.Items {
		for _, f := range g.ManagedFields {
			if f.Subresource == "status" && (f.Manager == "muster-lab") != (g.Namespace == a) { // kube-scheduler is part of the program that the lab is
				t.Errorf("the status of PodGroup %s/%s was written by %s", g.Namespace, g.Name, f.Manager)
			}
		}
	}
	w.erase(t, a)
	w.erase(t, b)
}

// kueueGate is the scheduling gate that Kueue puts on pods that it has not admitted.
const kueueGate = "kueue.x-k8s.io/admission"

// besideKueue has Jobs that Kueue has not admitted: their pods have its gate, and hold nothing, so that another Job takes all nodes. Admitted, which takes off the gates one by one and
// adds the node selector of a flavor, they start whole, where the selector says.
func besideKueue(t *testing.T, w *fixture) {
	const space, other, last = "kueue", "other", "last"
	w.namespace(t, space)
	w.namespace(t, other)
	w.namespace(t, last)
	job := func(namespace, name string, size int, gpus string, gates ...corev1.PodSchedulingGate) {
		j := gang(namespace, name, size, "")
		j.Annotations = nil
		j.Spec.Scheduling = &batchv1.JobSchedulingConfiguration{SchedulingPolicy: &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{Gang: &schedulingv1alpha3.WorkloadPodGroupGangSchedulingPolicy{}}}
		j.Spec.Template.Spec.SchedulingGates = gates
		j.Spec.Template.Spec.Containers[0].Resources.Limits[lab.GPUResource] = resource.MustParse(gpus)
		w.create(t, j)
	}
	job(space, "admitted", 4, "2", corev1.PodSchedulingGate{Name: kueueGate})
	made := func() string {
		if n := len(w.pods(space)); n != 4 {
			return fmt.Sprintf("%d pods are made, want 4", n)
		}
		return ""
	}
	w.must(t, upstreamLimit, made)
	job(other, "other", 16, "1") // all there is
	w.must(t, upstreamLimit, w.allRunning(other, 16))
	if n := w.boundNow(t, space); n != 0 {
		t.Fatalf("%d gated pods are bound", n)
	}
	w.erase(t, other)

	var flavor corev1.NodeList
	if err := w.client.List(t.Context(), &flavor); err != nil {
		t.Fatal(err)
	}
	node := flavor.Items[len(flavor.Items)-1].Name
	admit := func(p *corev1.Pod) {
		before := p.DeepCopy()
		p.Spec.SchedulingGates = nil
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		if err := w.client.Patch(t.Context(), p, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	pods := w.pods(space)
	for i := range pods[1:] {
		admit(pods[1+i].DeepCopy())
	}
	job(last, "last", 1, "1") // who places it has seen what was there before
	w.must(t, upstreamLimit, w.allRunning(last, 1))
	if n := w.boundNow(t, space); n != 0 {
		t.Fatalf("%d pods are bound while one of the Job's is not admitted", n)
	}
	w.erase(t, last)
	admit(pods[0].DeepCopy())
	w.must(t, upstreamLimit, w.allRunning(space, 4))
	for _, p := range w.pods(space) {
		if p.Spec.NodeName != node {
			t.Errorf("pod %s runs on %s; it was admitted for %s", p.Name, p.Spec.NodeName, node)
		}
	}
	w.erase(t, space)
}

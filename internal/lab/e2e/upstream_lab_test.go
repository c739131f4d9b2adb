//go:build lab

package e2e

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// upstreamLimit is how long anything here may take at most.
const upstreamLimit = 3 * time.Minute

// TestUpstreamsGroups: on an API server with Kubernetes' own groups, a Workload's PodGroup and its four pods start whole; one that has no room for one pod starts none, says so in its
// condition, and starts once there is; a PodGroup goes when its pods have gone; the groups of a tree start together; and a gang that the Job controller
// makes by itself starts whole, is preempted whole, and comes back.
func TestUpstreamsGroups(t *testing.T) {
	w := newFixture(t, 1, lab.Options{
		FeatureGates:  "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true,WorkloadWithJob=true",
		APIServerArgs: []string{"--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true"},
	})
	w.watch(t, &schedulingv1beta1.PodGroup{})
	muster := newProcess(t, "all", w.lab.Kubeconfig())
	muster.start()
	muster.awaitReady(t)

	const ns = "groups"
	w.namespace(t, ns)
	policy := schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 4}}
	w.create(t, &schedulingv1beta1.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "work"},
		Spec:       schedulingv1beta1.WorkloadSpec{PodGroupTemplates: []schedulingv1beta1.PodGroupTemplate{{Name: "four", SchedulingPolicy: policy}}},
	})
	group := func(name string) {
		w.create(t, &schedulingv1beta1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{keys.QueueLabel: "team"}},
			Spec:       schedulingv1beta1.PodGroupSpec{WorkloadRef: &schedulingv1beta1.WorkloadReference{WorkloadName: "work", TemplateName: "four"}, SchedulingPolicy: policy},
		})
	}
	pods := func(name, gpus string) {
		for i := range 4 {
			p := gang(ns, name, 1, "").Spec.Template
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
			p.Spec.Containers[0].Resources.Limits[lab.GPUResource] = resource.MustParse(gpus)
			p.Labels["group"] = name
			w.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name + "-" + strconv.Itoa(i), Labels: p.Labels}, Spec: p.Spec})
		}
	}
	condition := func(namespace, name string, status metav1.ConditionStatus, reason string) func() string {
		return func() string {
			for _, g := range list(w, &schedulingv1beta1.PodGroupList{}, client.InNamespace(namespace)).Items {
				if name != "" && g.Name != name {
					continue
				}
				c := meta.FindStatusCondition(g.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled)
				if c != nil && c.Status == status && c.Reason == reason && c.ObservedGeneration == g.Generation {
					return ""
				}
				return fmt.Sprintf("PodGroup %s says %+v, want %s %s", g.Name, c, status, reason)
			}
			return "there is no PodGroup " + name
		}
	}

	group("first")
	pods("first", "1")
	w.must(t, upstreamLimit, w.allRunning(ns, 4))
	w.must(t, upstreamLimit, condition(ns, "first", metav1.ConditionTrue, "Scheduled"))

	pods("second", "2") // before their group, and two of them would fit
	group("second")
	w.must(t, upstreamLimit, condition(ns, "second", metav1.ConditionFalse, schedulingv1beta1.PodGroupReasonUnschedulable))
	if n := w.boundNow(t, ns); n != 4 {
		t.Fatalf("%d pods are bound; of the second group none may be", n)
	}
	if err := w.client.Delete(t.Context(), &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "first"}}); err != nil {
		t.Fatal(err)
	}
	if err := w.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(ns), client.MatchingLabels{"group": "first"}); err != nil {
		t.Fatal(err)
	}
	w.must(t, upstreamLimit, w.allRunning(ns, 4))
	w.must(t, upstreamLimit, condition(ns, "second", metav1.ConditionTrue, "Scheduled"))
	w.must(t, upstreamLimit, func() string {
		if n := len(list(w, &schedulingv1beta1.PodGroupList{}, client.InNamespace(ns)).Items); n != 1 {
			return fmt.Sprintf("%d PodGroups are left; the first has no pods any more, and is deleted", n)
		}
		return ""
	})
	if err := w.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	w.must(t, upstreamLimit, w.allRunning(ns, 0))

	// Two groups of a tree start together, also where each would have room by itself, once the second, and then the root, is there; and each says so.
	const trees = "trees"
	w.namespace(t, trees)
	tree := "tree"
	member := func(name string) {
		w.create(t, &schedulingv1beta1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: trees, Name: name},
			Spec: schedulingv1beta1.PodGroupSpec{
				ParentCompositePodGroupName: &tree, WorkloadRef: &schedulingv1beta1.WorkloadReference{WorkloadName: "work", TemplateName: name},
				SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}},
			},
		})
		for i := range 2 {
			p := gang(trees, name, 1, "").Spec.Template
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
			w.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: trees, Name: name + "-" + strconv.Itoa(i), Labels: p.Labels}, Spec: p.Spec})
		}
	}
	member("left")
	w.must(t, upstreamLimit, condition(trees, "left", metav1.ConditionFalse, schedulingv1beta1.PodGroupReasonUnschedulable))
	w.create(t, &schedulingv1alpha3.CompositePodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: trees, Name: tree},
		Spec: schedulingv1alpha3.CompositePodGroupSpec{
			WorkloadRef:      &schedulingv1alpha3.WorkloadReference{WorkloadName: "work", TemplateName: tree},
			SchedulingPolicy: schedulingv1alpha3.CompositePodGroupSchedulingPolicy{Gang: &schedulingv1alpha3.CompositeGangSchedulingPolicy{MinGroupCount: 2}},
		},
	})
	member("right")
	w.must(t, upstreamLimit, w.allRunning(trees, 4))
	for _, name := range []string{"left", "right"} {
		w.must(t, upstreamLimit, condition(trees, name, metav1.ConditionTrue, "Scheduled"))
	}
	w.erase(t, trees)

	const jobs = "jobs"
	w.namespace(t, jobs)
	const members = 2 // the Job controller waits ten seconds before it makes a pod anew, and twice as long for each that was lost before
	j := gang(jobs, "train", members, "")
	j.Annotations = nil
	j.Spec.Scheduling = &batchv1.JobSchedulingConfiguration{SchedulingPolicy: &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{Gang: &schedulingv1alpha3.WorkloadPodGroupGangSchedulingPolicy{}}}
	w.create(t, j)
	w.must(t, upstreamLimit, w.allRunning(jobs, members))
	w.must(t, upstreamLimit, condition(jobs, "", metav1.ConditionTrue, "Scheduled"))
	for _, p := range w.pods(jobs) {
		if p.Spec.SchedulingGroup == nil || p.Annotations[keys.PodGroupAnnotation] != "" || p.Annotations[keys.OwnGangAnnotation] != "" {
			t.Errorf("pod %s is in group %+v and has the annotations %v; it is in the Job controller's group alone", p.Name, p.Spec.SchedulingGroup, p.Annotations)
		}
	}

	// One of a higher priority that needs the whole node takes the first Job's pods, all of them, which come back once it is gone.
	const above = "above"
	w.namespace(t, above)
	w.create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "above"}, Value: 60})
	urgent := gang(above, "urgent", 8, "")
	urgent.Annotations = nil
	urgent.Spec.Scheduling = j.Spec.Scheduling.DeepCopy()
	urgent.Spec.Template.Spec.PriorityClassName = "above"
	w.create(t, urgent)
	w.must(t, upstreamLimit, w.allRunning(above, 8))
	w.must(t, upstreamLimit, func() string {
		waiting := 0
		for _, p := range w.pods(jobs) {
			if p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
				waiting++
			} else if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				return "pod " + p.Name + " of the Job that is preempted runs"
			}
		}
		if waiting != members {
			return fmt.Sprintf("%d pods of the Job that was preempted wait; it makes %d anew", waiting, members)
		}
		return ""
	})
	w.erase(t, above)
	w.must(t, upstreamLimit, w.allRunning(jobs, members))
	w.must(t, upstreamLimit, condition(jobs, "", metav1.ConditionTrue, "Scheduled"))
}

//go:build lab

package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// image is the name under which the lab runs muster in pods.
const image = "registry.example/muster:lab"

// demand is what an autoscaler sees: of each namespace, the GPUs that pods request which say Unschedulable.
func (w *fixture) demand() map[string]int64 {
	out := map[string]int64{}
	for _, p := range w.pods("") {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable && p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
				for i := range p.Spec.Containers {
					q := p.Spec.Containers[i].Resources.Requests[lab.GPUResource]
					out[p.Namespace] += q.Value()
				}
			}
		}
	}
	maps.DeleteFunc(out, func(_ string, n int64) bool { return n == 0 })
	return out
}

// says lists what the pods of a namespace that wait say for a reason, each once.
func (w *fixture) says(namespace string) []string {
	var out []string
	for _, p := range w.pods(namespace) {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				out = append(out, c.Reason)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestAutoscaler: in a cluster without GPUs, an autoscaler sees the demand of whole and of shared GPUs, and not that of work
// that no node would help. When the node comes, scaling pods end, by running `muster scalingpod`, and all that may run runs.
func TestAutoscaler(t *testing.T) {
	w := newSharingLab(t, 0, lab.Options{
		KubeScheduler: true, Programs: map[string]string{image: os.Getenv(binaryEnv)},
		Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "cpu", Count: 1, CPU: "8"}}},
	})
	w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys.ScaleAdjustNamespace}})
	w.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: keys.ScaleAdjustNamespace, Name: keys.ScalingPodApp}})
	small := queue("small", "root")
	small.Spec.Resources.GPU.Limit = 1
	w.create(t, small)
	share := func(namespace, queue string, pods int, change func(*corev1.Pod)) { // of half a GPU each
		w.namespace(t, namespace)
		for i := range pods {
			w.sharer(t, namespace, fmt.Sprintf("share-%d", i), func(p *corev1.Pod) {
				p.Labels = map[string]string{keys.QueueLabel: queue}
				if change != nil {
					change(p)
				}
			})
		}
	}
	share("shared", "team", 4, nil)
	share("lost", "nowhere", 1, nil)
	for _, job := range []*batchv1.Job{gang("whole", "whole", 1, ""), gang("over", "over", 2, "")} {
		w.namespace(t, job.Namespace)
		if job.Namespace == "over" { // 1.4 GPUs, of 1
			job.Labels[keys.QueueLabel], job.Spec.Template.Labels[keys.QueueLabel] = "small", "small"
			job.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
			job.Spec.Template.Annotations = map[string]string{keys.GPUFractionAnnotation: "0.7"}
		}
		w.create(t, job)
	}
	p := newProcess(t, "all", w.lab.Kubeconfig(), "--nodescale", "--scaling-pod-image="+image)
	p.start()
	p.awaitReady(t)

	state := func(want map[string]any) func() string {
		return func() string {
			return cmp.Diff(want, map[string]any{
				"demand": w.demand(), "shared": w.says("shared"), "whole": w.says("whole"), "over": w.says("over"), "lost": w.says("lost"),
			})
		}
	}
	waiting := map[string]any{
		"demand": map[string]int64{"whole": 1, keys.ScaleAdjustNamespace: 2}, // four halves are two devices
		"shared": []string{"Unschedulable"}, "whole": []string{"Unschedulable"}, "over": []string{"OverLimit"}, "lost": []string{"QueueDoesNotExist"},
	}
	took := w.must(t, 20*time.Second, state(waiting))
	t.Logf("the autoscaler sees 3 GPUs after %v", took.Round(time.Millisecond))

	if err := w.lab.AddNodes(t.Context(), lab.Pool{Name: "gpu", Count: 1, GPUs: 8}); err != nil {
		t.Fatal(err)
	}
	took = w.must(t, 30*time.Second, func() string {
		if text := w.allRunning("shared", 4)() + w.allRunning("whole", 1)(); text != "" {
			return text
		}
		if n := len(w.pods(keys.ScaleAdjustNamespace)); n > 0 {
			return fmt.Sprintf("%d scaling pods are left", n)
		}
		return cmp.Diff(map[string]int64{}, w.demand())
	})
	t.Logf("all that may run runs %v after the node came", took.Round(time.Millisecond))
	if n := w.bound("over") + w.bound("lost"); n > 0 {
		t.Errorf("%d pods were bound that policy forbids", n)
	}

	// Once more room is asked for, and not wanted any more: nothing is left behind.
	share("late", "team", 4, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"somewhere": "else"} })
	scaling := func(n int) func() string {
		return func() string {
			if have := len(list(w, &corev1.PodList{}, client.InNamespace(keys.ScaleAdjustNamespace), client.MatchingLabels{keys.ScalingPodSourceNamespaceLabel: "late"}).Items); have != n {
				return fmt.Sprintf("%d scaling pods, want %d", have, n)
			}
			return ""
		}
	}
	w.must(t, 20*time.Second, scaling(2))
	w.erase(t, "late")
	w.must(t, 20*time.Second, scaling(0))
	p.stop(t)
}

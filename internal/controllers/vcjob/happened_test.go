package vcjob

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
)

// TestTaskCompletes: a task of three has completed when three pods have succeeded and nobody is ending one of them, as the answer to it may be under way: the first by name is named that is of this version of the Job.
func TestTaskCompletes(t *testing.T) {
	t.Parallel()
	for pods, want := range map[string]string{ // order: each for itself
		"done done done":                 "w-0",
		"done runs done":                 "",
		"done done":                      "",
		"done/deleted done done":         "", // it was restarted, and is not gone yet
		"done done/out-of-sync done":     "",
		"done/earlier done done":         "w-1", // what a restart of the Job left
		"done/earlier done/earlier":      "",
		"done/earlier runs done done":    "w-2",
		"done/deleted done done done":    "w-1", // another one is there in its place
		"done/earlier done/deleted done": "",
	} {
		e := &entry{job: &batch.Job{Spec: batch.JobSpec{Tasks: []batch.TaskSpec{{Name: "w", Replicas: 3}}}, Status: batch.JobStatus{Version: 1}}}
		var own []*member
		for i, word := range strings.Fields(pods) {
			is, how, _ := strings.Cut(word, "/")
			m := &member{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("w-%d", i)}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}, task: "w", version: 1}
			if is == "done" {
				m.pod.Status.Phase = corev1.PodSucceeded
			}
			switch how {
			case "deleted":
				m.pod.DeletionTimestamp = &metav1.Time{}
			case "out-of-sync":
				m.pod.Annotations = map[string]string{keys.OutOfSync: "true"}
			case "earlier":
				m.version = 0
			}
			own = append(own, m)
		}
		got := ""
		for _, r := range e.ofTask(&e.job.Spec.Tasks[0], own) {
			got += r.pod
		}
		if got != want {
			t.Errorf("%s: completed by %q, want %q", pods, got, want)
		}
	}
}

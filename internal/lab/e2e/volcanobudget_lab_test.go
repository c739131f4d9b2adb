//go:build lab

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestVolcanoWriteBudget counts the revisions of etcd that a placed pod of Volcano's face costs until it runs, everything that trails included: for Jobs of Volcano's of 8 tasks with the
// plugins env and svc, and for pods of Kubernetes' Jobs, which the controllers give PodGroups. What is counted, and what is not, is as in TestWriteBudget.
func TestVolcanoWriteBudget(t *testing.T) {
	args, audit := auditing(t)
	b := newVolcanoFixtureOn(t, lab.Options{APIServerArgs: args, Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "n", Count: 16, GPUs: 8}}}})
	b.schedule(t, nil)
	b.create(t, &vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "budget"}})
	for _, c := range []struct {
		name string
		pods int
		most float64 // what is reached
		make func(namespace string)
	}{
		{"jobs", 96, volcanoBudgetJob, func(namespace string) {
			for i := range 12 {
				b.create(t, budgetJob(namespace, fmt.Sprintf("j%02d", i)))
			}
		}},
		{"alone", 96, volcanoBudgetAlone, func(namespace string) { b.budgetJobs(t, namespace, "") }},
		{"alone-in-queue", 96, volcanoBudgetAlone, func(namespace string) { b.budgetJobs(t, namespace, "budget") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.namespace(t, c.name)
			b.sinceThen(t, b.writes(t), 6*time.Second)
			from := b.revision(t)
			audit.since(t, 0)
			then := b.writes(t)
			c.make(c.name)
			b.must(t, 2*time.Minute, b.allRunning(c.name, c.pods))
			for _, p := range b.pods(c.name) { // with its Binding, if nobody told it before
				if p.Annotations[vckeys.GroupName] == "" {
					t.Errorf("pod %s runs and names no PodGroup", p.Name)
				}
			}
			b.sinceThen(t, then, 6*time.Second)
			rows := audit.since(t, from)
			var text strings.Builder
			out := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
			for _, row := range slices.Sorted(maps.Keys(rows)) {
				mark := "(not ours) "
				if ours(row) {
					mark = ""
				}
				fmt.Fprintf(out, "%s%s\t%d\t%.2f\n", mark, row, rows[row], float64(rows[row])/float64(c.pods))
			}
			if err := out.Flush(); err != nil {
				t.Fatal(err)
			}
			cost := float64(sum(rows, ours)) / float64(c.pods)
			t.Logf("%d pods:\n%sours: %.2f a pod until it runs", c.pods, text.String(), cost)
			if cost > c.most {
				t.Errorf("a pod costs %.2f writes, more than %.1f", cost, c.most)
			}
		})
	}
}

// budgetJobs makes 96 Jobs of Kubernetes' of a pod each, which names a queue unless that is "".
func (b *volcanoFixture) budgetJobs(t *testing.T, namespace, queue string) {
	for i := range 96 {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("j%02d", i)}}
		if queue != "" {
			j.Spec.Template.Annotations = map[string]string{vckeys.QueueName: queue}
		}
		j.Spec.Template.Spec = corev1.PodSpec{SchedulerName: vckeys.SchedulerName, RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
		b.create(t, j)
	}
}

// budgetJob is a Job of Volcano's of 8 tasks of one pod with the plugins env and svc.
func budgetJob(namespace, name string) *vcbatch.Job {
	j := &vcbatch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	j.Spec.SchedulerName, j.Spec.MinAvailable, j.Spec.MaxRetry, j.Spec.Queue = vckeys.SchedulerName, 8, 3, vckeys.DefaultQueue
	j.Spec.Plugins = map[string][]string{"env": {}, "svc": {}}
	for k := range 8 {
		j.Spec.Tasks = append(j.Spec.Tasks, vcbatch.TaskSpec{
			Name: fmt.Sprintf("t%d", k), Replicas: 1, MinAvailable: ptr.To(int32(1)),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure, Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		})
	}
	return j
}

// The most that a pod costs in revisions of etcd where a machine is so slow that every gang waits long enough to be told why, with an event, its pods too, and no two changes of a status come together. Of a pod that is
// placed at once it is 3.5, 4.1 and, of pods that name their queue, 3.1 (ADR 18).
const (
	volcanoBudgetJob   = 7.5
	volcanoBudgetAlone = 10
)

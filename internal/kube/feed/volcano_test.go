package feed

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
)

// TestVolcanosNotesStay: annotations that Volcano's dialect reads are kept in memory.
func TestVolcanosNotesStay(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{Name: "one", Namespace: "d", Annotations: map[string]string{
		vckeys.SLAWaitingTime: "1h", vckeys.Hierarchy: "root/a", vckeys.HierarchyWeights: "1/2", vckeys.TaskPriority: "7", vckeys.Preemptable: "false", vckeys.GroupName: "g", vckeys.TaskSpec: "t",
		vckeys.QueueAllocationGate: "true", vckeys.CooldownTime: "10m",
		"example.com/else": "x",
	}}
	pg, q, p := &v1beta1.PodGroup{ObjectMeta: *meta.DeepCopy()}, &v1beta1.Queue{ObjectMeta: *meta.DeepCopy()}, &v1.Pod{ObjectMeta: *meta.DeepCopy()}
	p.Spec.SchedulerName, p.Spec.SchedulingGates = vckeys.SchedulerName, []v1.PodSchedulingGate{{Name: vckeys.QueueAllocationGate}}
	read := func() []any {
		queue, _ := volcano.Queue(q)
		pod := cluster.PodState{}
		volcano.Member(&pod, p)
		return []any{volcano.Gang(pg, func(string) (int32, bool) { return 0, true }, func(string) (int, bool) { return 0, false }, &volcano.Pods{}), queue, pod}
	}
	want := read()
	for _, o := range []any{pg, q} {
		if _, err := trimObject(o, 0, newAlike()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := trimPod(p, Reads{SchedulerNames: []string{vckeys.SchedulerName}}, 0, newAlike()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, read()); d != "" {
		t.Errorf("-whole +trimmed:\n%s", d)
	}
	if _, kept := p.Annotations["example.com/else"]; kept {
		t.Error("an annotation is kept that nobody reads")
	}
}

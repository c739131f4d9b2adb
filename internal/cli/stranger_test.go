package cli

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/see"
)

// seen is a view of a cluster with one node that is labelled gpu=a100, a queue and one gang of one pod.
func seen(t *testing.T, pod cluster.PodState) *view {
	t.Helper()
	store := cluster.NewStore(cluster.Options{})
	eight := []cluster.Quantity{{Name: "gpu", Value: 8000}}
	pod.UID, pod.Namespace, pod.Name, pod.Ours, pod.Gang = "p", "team", "train-0", true, kai.GangKey("team", "train")
	store.Apply(
		cluster.NodeState{Name: "n1", Labels: map[string]string{"gpu": "a100"}, Allocatable: append(eight, cluster.Quantity{Name: "pods", Value: 110})},
		cluster.QueueState{Name: "vision", Quota: eight},
		cluster.GangState{Key: pod.Gang, UID: "g", Queue: "vision", Sets: cluster.FlatTree(1)}, pod,
	)
	v, err := newView(t.Context(), see.NewCycle(store.Snapshot(now), profile.BuiltIn(), builtin.Registry()))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestListNamesTheSelector: a gang whose selector no node meets is listed with the selector and the values there are, and not with what came of
// making others give way.
func TestListNamesTheSelector(t *testing.T) {
	t.Parallel()
	v := seen(t, cluster.PodState{
		Requests: []cluster.Quantity{{Name: "gpu", Value: 1000}}, Spec: &cluster.ClassSpec{NodeSelector: map[string]string{"gpu": "h200"}},
	})
	text := drawGangs(v.gangs(), false)
	if said := strings.Join(strings.Fields(text), " "); !strings.Contains(said, "asks for gpu=h200, which no node has (there is gpu=a100 on 1)") || strings.Contains(said, "preempt") {
		t.Errorf("%s", text)
	}
}

// TestFailedBindIsNotStarting: a look at the cluster does not show that a bind failed a moment ago; the gang's own condition does, and explain
// says what it says.
func TestFailedBindIsNotStarting(t *testing.T) {
	t.Parallel()
	v := seen(t, cluster.PodState{Requests: []cluster.Quantity{{Name: "gpu", Value: 500}}, Spec: &cluster.ClassSpec{Share: cluster.Share{Devices: 1, Portion: 500_000}}})
	condition := v2alpha2.SchedulingCondition{
		Type: v2alpha2.UnschedulableOnNodePool, Status: v1.ConditionTrue, Message: "the last attempt to place team/train-0 failed",
		Reasons: v2alpha2.UnschedulableExplanations{{Reason: "BindFailedRecently"}}, LastTransitionTime: metav1.NewTime(now.Time()),
	}
	for _, failed := range []bool{false, true} {
		v.group = func(string, string) (*v2alpha2.PodGroup, error) {
			g := &v2alpha2.PodGroup{}
			if failed {
				g.Status.SchedulingConditions = []v2alpha2.SchedulingCondition{condition}
			}
			return g, nil
		}
		a, err := v.explainAny(t.Context(), "team", "train")
		if err != nil {
			t.Fatal(err)
		}
		text := a.text(200)
		if told := a.Word == explain.Blocked && strings.Contains(text, "BindFailedRecently"); told != failed {
			t.Errorf("a bind failed: %t: %s", failed, text)
		}
		if failed && strings.Contains(text, "nothing blocks it") {
			t.Errorf("%s", text)
		}
	}
}

// TestPodWithoutItsPodGroup: of a pod of any face that names a PodGroup which is not there, explain says what its scheduler wrote to it, or, before that is there, the same of one of Kubernetes' own.
func TestPodWithoutItsPodGroup(t *testing.T) {
	t.Parallel()
	v := seen(t, cluster.PodState{Requests: []cluster.Quantity{{Name: "gpu", Value: 1000}}})
	group := "away"
	for what, c := range map[string]struct {
		pod  *v1.Pod
		gang cluster.Key
		want string
	}{
		"of Volcano's": {&v1.Pod{Spec: v1.PodSpec{SchedulerName: "volcano"}, Status: v1.PodStatus{Conditions: []v1.PodCondition{{
			Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: "PodGroupDoesNotExist: PodGroup away of scheduling.volcano.sh",
		}}}}, cluster.Key{}, "pod team/p waits: PodGroup away of scheduling.volcano.sh"},
		"of Volcano's, by its owner": {
			&v1.Pod{Spec: v1.PodSpec{SchedulerName: "volcano"}},
			cluster.Key{Face: "volcano", Namespace: "team", Name: "podgroup-u"},
			"pod team/p has no gang yet: it has no annotation scheduling.k8s.io/group-name, and PodGroup podgroup-u, which would be its owner's, does not exist",
		},
		"of Kubernetes'": {
			&v1.Pod{Spec: v1.PodSpec{SchedulerName: kai.DefaultSchedulerName, SchedulingGroup: &v1.PodSchedulingGroup{PodGroupName: &group}}},
			cluster.Key{Face: "upstream", Namespace: "team", Name: group},
			"pod team/p waits: PodGroup away of scheduling.k8s.io in namespace team, which spec.schedulingGroup.podGroupName names, does not exist",
		},
	} {
		c.pod.Namespace, c.pod.Name = "team", "p"
		p := &cluster.Pod{PodState: cluster.PodState{Namespace: "team", Name: "p", Gang: c.gang, Ours: true}}
		if err := v.whyNoGang(p, c.pod); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

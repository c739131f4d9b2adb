package upstream

import (
	"encoding/json"
	"flag"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/dialecttest"
)

var _ = flag.Bool("update", false, "rewrite the want sections of the golden files")

func value(class string) (int32, bool) { return 9, class == "high" }

// TestGolden translates everything a file holds, in a cluster with the PriorityClass high, worth 9, and no default one.
func TestGolden(t *testing.T) {
	t.Parallel()
	dialecttest.Golden(t, func(t *testing.T, objects []dialecttest.Object) string {
		var out strings.Builder
		for _, o := range objects {
			var pg schedulingv1beta1.PodGroup
			o.Into(t, &pg)
			out.WriteString(dialecttest.Text(t, "gang", Gang(&pg, Queue(pg.Labels, keys.QueueLabel), value)))
		}
		return out.String()
	})
}

// TestMembership: a pod is in the group that it names, and only in that.
func TestMembership(t *testing.T) {
	t.Parallel()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	empty, name := "", "g"
	for _, c := range []struct {
		of   *corev1.PodSchedulingGroup
		want cluster.Key
	}{{nil, cluster.Key{}}, {&corev1.PodSchedulingGroup{}, cluster.Key{}}, {&corev1.PodSchedulingGroup{PodGroupName: &empty}, cluster.Key{}}, {&corev1.PodSchedulingGroup{PodGroupName: &name}, GangKey("ns", "g")}} {
		p.Spec.SchedulingGroup = c.of
		if got := Membership(p); got != c.want {
			t.Errorf("%+v: %v, want %v", c.of, got, c.want)
		}
	}
}

// TestConditions: the scheduler's condition changes and no other; one that was true stays true; what says the same is not written again.
func TestConditions(t *testing.T) {
	t.Parallel()
	now, before := metav1.Unix(100, 0), metav1.Unix(50, 0)
	others := metav1.Condition{Type: schedulingv1beta1.DisruptionTarget, Status: metav1.ConditionTrue, Reason: "PreemptionByScheduler", LastTransitionTime: before}
	of := func(status metav1.ConditionStatus, reason, message string, at metav1.Time) metav1.Condition {
		return metav1.Condition{Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: status, Reason: reason, Message: message, ObservedGeneration: 2, LastTransitionTime: at}
	}
	waits, started := of(metav1.ConditionFalse, "Unschedulable", "no room", before), of(metav1.ConditionTrue, "Scheduled", "", before)
	for _, c := range []struct {
		what string
		have []metav1.Condition
		says Status
		want []metav1.Condition // nil for no change
	}{
		{"nothing to say", nil, Status{}, nil},
		{"waits", nil, Status{Message: "no room"}, []metav1.Condition{of(metav1.ConditionFalse, "Unschedulable", "no room", now)}},
		{"waits as before", []metav1.Condition{others, waits}, Status{Message: "no room"}, nil},
		{"waits for something else", []metav1.Condition{others, waits}, Status{Message: "no queue"}, []metav1.Condition{others, of(metav1.ConditionFalse, "Unschedulable", "no queue", before)}},
		{"starts", []metav1.Condition{waits, others}, Status{Started: true}, []metav1.Condition{of(metav1.ConditionTrue, "Scheduled", "", now), others}},
		{"has started", []metav1.Condition{started}, Status{Started: true}, nil},
		{"waits again", []metav1.Condition{started}, Status{Message: "no room"}, nil},
	} {
		was, _ := json.Marshal(c.have)
		got, changed := c.says.Over(c.have, 2, now)
		if !changed {
			got = nil
		}
		if d := cmp.Diff(c.want, got); d != "" || changed != (c.want != nil) {
			t.Errorf("%s: changed %v (-want +got):\n%s", c.what, changed, d)
		}
		if is, _ := json.Marshal(c.have); string(is) != string(was) {
			t.Errorf("%s: the object's own conditions became %s", c.what, is)
		}
	}
	if !meta.IsStatusConditionTrue([]metav1.Condition{started}, schedulingv1beta1.PodGroupInitiallyScheduled) {
		t.Error("the condition is not named as upstream's")
	}
}

// FuzzPodGroup hands in whatever an API server may store. Nothing panics, the answer depends on the object alone, what is said of it is short, and the tree is one in which each set is
// reached once from the root.
func FuzzPodGroup(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"namespace":"n","name":"g","labels":{"kai.scheduler/queue":"volcano:q"},"annotations":{"muster.dev/subgroups":"a=1,b=2"}},"spec":{"schedulingPolicy":{"gang":{"minCount":3}}}}`,
		`{"metadata":{"annotations":{"muster.dev/subgroups":"default=2147483647,default-=2147483647,=,"}},"spec":{"schedulingPolicy":{"basic":{}},"priority":-2147483648}}`,
		`{"spec":{"schedulingPolicy":{"gang":{"minCount":-1}},"schedulingConstraints":{"topology":[{"key":""}]},"disruptionMode":{"all":{}}}}`,
		`{"spec":{"parentCompositePodGroupName":"","resourceClaims":[{}],"preemptionPolicy":"Never"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		pg := &schedulingv1beta1.PodGroup{}
		if json.Unmarshal(text, pg) != nil {
			return
		}
		queue := Queue(pg.Labels, keys.QueueLabel)
		g := Gang(pg, queue, value)
		if d := cmp.Diff(g, Gang(pg.DeepCopy(), queue, value)); d != "" {
			t.Fatalf("the same group reads differently: %s", d)
		}
		if face, _ := cluster.SplitQueue(queue); face != "" && face != Face || queue == "" {
			t.Fatalf("queue %q", queue)
		}
		if most := 300 + len(pg.Namespace) + len(pg.Name); len(g.Invalid) > most {
			t.Fatalf("%d bytes are said of it: %s", len(g.Invalid), g.Invalid)
		}
		seen := make([]bool, len(g.Sets))
		for i := range g.Sets {
			for _, c := range g.Sets[i].Children {
				if c <= 0 || int(c) >= len(g.Sets) || seen[c] || g.Sets[c].Parent != int32(i) {
					t.Fatalf("set %d is a child of %d: %+v", c, i, g.Sets)
				}
				seen[c] = true
			}
			if s := &g.Sets[i]; s.Min < 0 || s.Pods < 0 || g.Invalid == "" && i > 0 && !seen[i] {
				t.Fatalf("set %d: %+v", i, g.Sets)
			}
		}
	})
}

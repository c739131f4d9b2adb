package volcano_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
)

// TestPath: the hierarchy that a queue's annotations say, root left out; a weight below 1, or none, is 1.
func TestPath(t *testing.T) {
	t.Parallel()
	const one = 1_000_000
	for _, c := range []struct {
		path, weights string
		want          []cluster.Step
	}{
		{"", "1/2", nil},
		{"root", "1", nil},
		{"root/a/b", "1/2/4.5", []cluster.Step{{Name: "a", Weight: 2 * one}, {Name: "b", Weight: 4_500_000}}},
		{"root/a/b", "1/0.5", []cluster.Step{{Name: "a", Weight: one}, {Name: "b", Weight: one}}},
		{"root/a", "1/much", []cluster.Step{{Name: "a", Weight: one}}},
		{"root/a", "1/NaN", []cluster.Step{{Name: "a", Weight: one}}},
		{"root/a", "1/-3", []cluster.Step{{Name: "a", Weight: one}}},
		{"root/a", "1/1e300", []cluster.Step{{Name: "a", Weight: (1<<31 - 1) * one}}},
		{"a/root", "3/2", []cluster.Step{{Name: "a", Weight: 3 * one}, {Name: "root", Weight: 2 * one}}},
		{strings.Repeat("x", 5000), "1", nil},
	} {
		q := &v1beta1.Queue{}
		q.Annotations = map[string]string{keys.Hierarchy: c.path, keys.HierarchyWeights: c.weights}
		st, problem := volcano.Queue(q)
		if d := cmp.Diff(c.want, st.Path); d != "" || problem != "" {
			t.Errorf("%.40q, %q: %s\n-want +got:\n%s", c.path, c.weights, problem, d)
		}
	}
	q := &v1beta1.Queue{}
	q.Annotations = map[string]string{keys.Hierarchy: "root" + strings.Repeat("/a", 2000)}
	if st, _ := volcano.Queue(q); len(st.Path) != 31 {
		t.Errorf("%d steps", len(st.Path))
	}
}

// TestPodPriority: a pod's own priority is what its annotation says, if that is a number, or its spec; without either it is 1.
func TestPodPriority(t *testing.T) {
	t.Parallel()
	five := int32(5)
	for _, c := range []struct {
		spec *int32
		text string
		want int32
	}{{nil, "", 1}, {&five, "", 5}, {&five, "-7", -7}, {nil, "9", 9}, {&five, "high", 5}, {nil, "99999999999", 1}} {
		p := &corev1.Pod{}
		p.Spec.Priority = c.spec
		if c.text != "" {
			p.Annotations = map[string]string{keys.TaskPriority: c.text}
		}
		var st cluster.PodState
		if volcano.Member(&st, p); st.Priority != c.want {
			t.Errorf("%v, %q: %d, want %d", c.spec, c.text, st.Priority, c.want)
		}
	}
}

// TestQueueGate: a pod asks its queue to let it in by its annotation; the queue may once no other gate is left.
func TestQueueGate(t *testing.T) {
	t.Parallel()
	const other = "example.com/wait"
	for _, c := range []struct {
		text  string
		gates []string
		want  cluster.Entry
	}{
		{"", []string{keys.QueueAllocationGate}, cluster.EntryFree},
		{"false", []string{keys.QueueAllocationGate}, cluster.EntryFree},
		{"true", []string{keys.QueueAllocationGate}, cluster.EntryAsked},
		{"true", []string{other, keys.QueueAllocationGate}, cluster.EntryFree},
		{"true", []string{other}, cluster.EntryFree},
		{"true", nil, cluster.EntryGiven},
		{"", nil, cluster.EntryFree},
	} {
		p := &corev1.Pod{}
		p.Annotations = map[string]string{keys.QueueAllocationGate: c.text}
		for _, name := range c.gates {
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
		}
		var st cluster.PodState
		if volcano.Member(&st, p); st.Entry != c.want {
			t.Errorf("%q, %v: %v, want %v", c.text, c.gates, st.Entry, c.want)
		}
	}
}

// TestCooldown: a pod says by label, or else by annotation, how long after it got its node it is left alone; what is no duration above 0 counts for nothing.
func TestCooldown(t *testing.T) {
	t.Parallel()
	at := metav1.Unix(1000, 0)
	for _, c := range []struct {
		label, annotation string
		given             corev1.ConditionStatus
		cooldown          time.Duration
		scheduled         int64
	}{
		{"", "", corev1.ConditionTrue, 0, 0},
		{"10m", "", corev1.ConditionTrue, 10 * time.Minute, 1000},
		{"", "90s", corev1.ConditionTrue, 90 * time.Second, 1000},
		{"1h", "90s", corev1.ConditionTrue, time.Hour, 1000},
		{"1h", "", corev1.ConditionFalse, time.Hour, 0},
		{"long", "90s", corev1.ConditionTrue, 0, 0},
		{"", "-90s", corev1.ConditionTrue, 0, 0},
		{"", "600", corev1.ConditionTrue, 0, 0},
		{"", "99999999999h", corev1.ConditionTrue, 0, 0},
	} {
		p := &corev1.Pod{}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.PodScheduled, Status: c.given, LastTransitionTime: at}}
		if c.label != "" {
			p.Labels = map[string]string{keys.CooldownTime: c.label}
		}
		if c.annotation != "" {
			p.Annotations = map[string]string{keys.CooldownTime: c.annotation}
		}
		var st cluster.PodState
		if volcano.Member(&st, p); st.Cooldown != c.cooldown || st.Scheduled != cluster.UnixNano(c.scheduled*1e9) {
			t.Errorf("%q, %q, %s: %v after %v", c.label, c.annotation, c.given, st.Cooldown, st.Scheduled)
		}
	}
}

// TestKept: a pod says by annotation, or else by label, whether it may be evicted for others; what says nothing of it may, and what says no clear yes may not.
func TestKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		annotation, label string
		want              bool
	}{{"", "", false}, {"true", "", false}, {"false", "", true}, {"", "false", true}, {"", "true", false}, {"true", "false", false}, {"false", "true", true}, {"perhaps", "true", true}} {
		p := &corev1.Pod{}
		if c.annotation != "" {
			p.Annotations = map[string]string{keys.Preemptable: c.annotation}
		}
		if c.label != "" {
			p.Labels = map[string]string{keys.Preemptable: c.label}
		}
		var st cluster.PodState
		if volcano.Member(&st, p); st.Kept != c.want {
			t.Errorf("%q, %q: %v, want %v", c.annotation, c.label, st.Kept, c.want)
		}
	}
}

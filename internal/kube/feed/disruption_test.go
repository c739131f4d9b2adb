package feed

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// TestBudgetsAreCarried: a budget is in the snapshot as far as it decides anything, and what else happens to it is no news.
func TestBudgetsAreCarried(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "1", Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: 2, CurrentHealthy: 4},
	}
	allowed := func() int32 {
		got, ok := s.store.Snapshot(cluster.Instant{}).Object(cluster.PodDisruptionBudgets, "a/web").(*policyv1.PodDisruptionBudget)
		if !ok {
			return -1
		}
		if diff := cmp.Diff(b.Spec.Selector, got.Spec.Selector); diff != "" {
			t.Errorf("selector (-want +got):\n%s", diff)
		}
		return got.Status.DisruptionsAllowed
	}
	s.say(b)
	if s.drain() != 1 || allowed() != 2 {
		t.Errorf("%d disruptions allowed, want 2", allowed())
	}
	b.Status.CurrentHealthy, b.Labels = 5, map[string]string{"x": "y"}
	s.say(b)
	if n := s.drain(); n != 0 {
		t.Errorf("%d changes of nothing that matters", n)
	}
	b.Status.DisruptionsAllowed = 1
	s.say(b)
	if s.drain() != 1 || allowed() != 1 {
		t.Errorf("%d disruptions allowed, want 1", allowed())
	}
	b.Generation = 2
	s.say(b)
	if s.drain() != 1 || allowed() != 0 {
		t.Errorf("%d disruptions allowed by a budget that was edited just now, want 0", allowed())
	}
	s.end(b)
	if s.drain() != 1 || allowed() != -1 {
		t.Error("the budget outlives its object")
	}
}

// TestDisruptionReachesTheModel: what objects say about being disturbed is in the snapshot, and each change of it is news.
func TestDisruptionReachesTheModel(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	q := &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
	g, p := gang("g", ""), pod("p", "u", 1)
	s.say(q, g, p)
	s.drain()
	news := func(what string, change func()) {
		t.Helper()
		change()
		s.say(q, g, p)
		if n := s.drain(); n != 1 {
			t.Errorf("%s: %d changes, want 1", what, n)
		}
	}
	note := func(key, at string) func() {
		return func() {
			notes := map[string]string{key: at}
			for k, v := range g.Annotations {
				notes[k] = v
			}
			g.Annotations = notes
		}
	}
	news("controller", func() {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "j", Controller: ptr.To(true)}}
	})
	news("last start", note(kai.LastStartAnnotation, "2026-01-01T00:00:01Z"))
	news("last eviction", note(kai.LastEvictionAnnotation, "2026-01-01T00:00:02Z"))
	news("stale since", note(kai.StaleSinceAnnotation, "2026-01-01T00:00:03Z"))
	news("delay", func() { g.Spec.PreemptionDelay = &metav1.Duration{Duration: time.Minute} })
	news("grace", func() { g.Spec.StalenessGracePeriod = &metav1.Duration{} })
	news("preempt", func() { q.Spec.PreemptMinRuntime = &metav1.Duration{Duration: time.Hour} })
	news("reclaim", func() { q.Spec.ReclaimMinRuntime = &metav1.Duration{Duration: 2 * time.Hour} })
	news("budgets", func() { q.Annotations = map[string]string{kai.BudgetsAnnotation: kai.BudgetsBlock} })
	snap := s.store.Snapshot(cluster.Instant{})
	m, queue := snap.GangByKey(kai.GangKey("a", "g")), snap.QueueByName("q")
	start := cluster.InstantOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	got := []any{m.LastStart.Sub(start), m.LastEviction.Sub(start), m.StaleSince.Sub(start), m.PreemptionDelay, m.StaleGrace, queue.PreemptMinRuntime, queue.ReclaimMinRuntime, queue.BudgetsBlock, snap.Pod(m.Pods[0]).Recreated}
	stated := func(d time.Duration) cluster.Maybe[time.Duration] {
		return cluster.Maybe[time.Duration]{Set: true, Value: d}
	}
	want := []any{time.Second, 2 * time.Second, 3 * time.Second, time.Minute, stated(0), stated(time.Hour), stated(2 * time.Hour), true, true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestAuditOfAnEviction: an eviction that the API server does not show yet is no difference.
func TestAuditOfAnEviction(t *testing.T) {
	t.Parallel()
	p := pod("p", "u", 1)
	p.Spec.NodeName = "n1"
	s, fresh := newStage(t, Options{}), newStage(t, Options{})
	for _, x := range []*stage{s, fresh} {
		x.say(node("n1"), gang("g", ""), p)
		x.drain()
	}
	if !s.store.AssumeEvicted("u", cluster.Key{}, cluster.Forever) {
		t.Fatal("the pod cannot be evicted")
	}
	if got := Compare(s.store.Snapshot(cluster.Instant{}), fresh.store.Snapshot(cluster.Instant{})); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

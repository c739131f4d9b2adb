package apply

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/upstream"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/kube/write"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// upstreamsObject is a group of that name.
func upstreamsObject(name string) *schedulingv1beta1.PodGroup {
	return &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name)}}
}

// TestUpstreamsCrash: the condition of a group comes to the same, wherever the process dies: it says why the group waits, what others wrote beside it stays, nothing is written of a
// group without pods of ours, and at rest nothing is written. Once it has started, that stands.
func TestUpstreamsCrash(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what    string
		started bool
		tree    bool
		status  metav1.ConditionStatus
		reason  string
	}{
		{"waits", false, false, metav1.ConditionFalse, schedulingv1beta1.PodGroupReasonUnschedulable},
		{"has started", true, false, metav1.ConditionTrue, upstream.Scheduled},
		{"waits in a tree", false, true, metav1.ConditionFalse, schedulingv1beta1.PodGroupReasonUnschedulable},
		{"has started in a tree", true, true, metav1.ConditionTrue, upstream.Scheduled},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			kind := kubetest.Kind{GroupVersionKind: schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup"), Plural: "podgroups", Namespaced: true, Status: true, Generation: true}
			others := metav1.Condition{Type: schedulingv1beta1.DisruptionTarget, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Unix(1, 0)}
			kubetest.Story{
				Options: kubetest.Options{Kinds: append(kubetest.Builtin(), kind)},
				Set: func(s *kubetest.Server) {
					for _, name := range []string{"g", "empty"} {
						pg := upstreamsObject(name)
						pg.Status.Conditions = []metav1.Condition{others}
						s.Put(pg)
					}
				},
				Run: func(t *testing.T, p *kubetest.Process) func() {
					return p.Run(t, func(_ cache.Cache, c2 client.Client) (func(context.Context) error, error) {
						kit, err := write.New(c2, "scheduler", nil)
						return func(ctx context.Context) error { return tellUpstreams(ctx, c2, kit, c.started, c.tree) }, err
					})
				},
				Settle: 20 * time.Second,
				Check: func(t *testing.T, s *kubetest.Server) {
					pg := upstreamsObject("g")
					s.Get(pg)
					is := meta.FindStatusCondition(pg.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled)
					if is == nil || is.Status != c.status || is.Reason != c.reason || len(pg.Status.Conditions) != 2 || pg.Status.Conditions[0] != others {
						t.Errorf("in the end %+v", pg.Status.Conditions)
					}
					empty := upstreamsObject("empty")
					s.Get(empty)
					if len(empty.Status.Conditions) != 1 {
						t.Errorf("the group without pods says %+v", empty.Status.Conditions)
					}
					s.Writes()
					<-time.After(time.Hour)
					if w := s.Writes(); len(w) > 0 {
						t.Errorf("at rest: %v", w)
					}
				},
			}.Crashes(t)
		})
	}
}

// TestUpstreamsTree: of a tree each PodGroup that pods of ours are in says by itself whether it has started: its own minimum counts, with its subgroups, and not the others'.
func TestUpstreamsTree(t *testing.T) {
	t.Parallel()
	store, key := cluster.NewStore(cluster.Options{}), upstream.CompositeKey("a", "root")
	store.Apply(cluster.NodeState{Name: "n"}, cluster.QueueState{Name: "q"}, cluster.GangState{Key: key, UID: "root", Queue: "q", Sets: []cluster.Set{
		{Parent: cluster.None, Children: []int32{1, 2, 5, 6}, Min: 1},
		{Name: "whole", Leaf: true, Min: 2, UID: "u-whole"},
		{Name: "sets", Children: []int32{3, 4}, Min: 2, Pods: 3, UID: "u-sets"},
		{Name: "sets/a", Parent: 2, Leaf: true, Min: 1},
		{Name: "sets/b", Parent: 2, Leaf: true},
		{Name: "half", Leaf: true, Min: 2, UID: "u-half"},
		{Name: "none", Leaf: true, Min: 1, UID: "u-none"},
	}})
	pods := 0
	put := func(set string, phase cluster.Phase) {
		pods++
		name := string(rune('a' + pods))
		p := cluster.PodState{UID: name, Namespace: "a", Name: name, Phase: phase, Gang: key, SetName: set, Ours: true}
		if phase == cluster.Running {
			p.NodeName = "n"
		}
		store.Apply(p)
	}
	for _, set := range []string{"whole", "whole", "sets/a", "sets/b", "half"} {
		put(set, cluster.Running)
	}
	put("half", cluster.Pending)
	put("gone", cluster.Pending)
	snap := store.Snapshot(cluster.UnixNano(1))
	want := []part{{upstream.GangKey("a", "whole"), "u-whole", true}, {upstream.GangKey("a", "sets"), "u-sets", false}, {upstream.GangKey("a", "half"), "u-half", false}}
	if got := partsOf(snap, snap.GangByKey(key)); !slices.Equal(got, want) {
		t.Errorf("the groups are %+v, want %+v", got, want)
	}
	put("sets/b", cluster.Running)
	snap = store.Snapshot(cluster.UnixNano(1))
	if got := partsOf(snap, snap.GangByKey(key)); !got[1].started {
		t.Errorf("with a third pod the subgroups have not started: %+v", got)
	}
}

// tellUpstreams publishes, each second, that a gang waits for room, or has started, and that there is one without pods.
func tellUpstreams(ctx context.Context, c client.Client, kit *write.Kit, started, tree bool) error {
	pool := NewPool(nil)
	groups := NewUpstreams(pool, kit, c, 0)
	var writers sync.WaitGroup
	writers.Go(func() { _ = pool.Run(ctx) }) // it returns nil
	defer writers.Wait()
	store, key, uid := cluster.NewStore(cluster.Options{}), upstream.GangKey("a", "g"), "g"
	store.Apply(cluster.NodeState{Name: "n"}, cluster.QueueState{Name: "q"}, cluster.GangState{Key: key, UID: uid, Queue: "q", Sets: cluster.FlatTree(1)},
		cluster.GangState{Key: upstream.GangKey("a", "empty"), UID: "empty", Queue: "q", Sets: cluster.FlatTree(0)})
	set := ""
	if tree {
		key, uid, set = upstream.CompositeKey("a", "root"), "root", "g"
		store.Apply(cluster.GangState{Key: key, UID: uid, Queue: "q", Sets: []cluster.Set{
			{Parent: cluster.None, Children: []int32{1, 2}, Min: 1}, {Name: "g", Leaf: true, Min: 1, UID: "g"}, {Name: "empty", Leaf: true, UID: "empty"},
		}})
	}
	pod := cluster.PodState{SetName: set, UID: "p", Namespace: "a", Name: "p", Phase: cluster.Pending, Gang: key, Ours: true}
	trace := &engine.Trace{Gangs: []engine.GangTrace{{Gang: key, UID: uid, Diagnosis: &engine.Diagnosis{Verdict: engine.Verdict{Code: policy.No, Reason: policy.ReasonGangNoRoom, Need: 1}}}}}
	if started {
		pod.Phase, pod.NodeName, trace = cluster.Running, "n", &engine.Trace{}
	}
	store.Apply(pod)
	snap := store.Snapshot(cluster.UnixNano(1))
	for {
		groups.Publish(snap, trace)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

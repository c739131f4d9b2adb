package apply

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/kube/write"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// TestGroupsTrail: that a gang without its pods is admitted, has lost its places, or waits for a reason that has settled is written at once. That it is placed and how many of its pods run comes later, in one write for what changes within a second, and
// while pods are being bound not before there is a pause, ten seconds at most; nothing is lost.
func TestGroupsTrail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)})
		s.Put(&v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "g", UID: "g"}, Spec: v1beta1.PodGroupSpec{MinMember: 8}})
		c, err := s.Process("scheduler").Client(kubetest.Scheme())
		if err != nil {
			t.Fatal(err)
		}
		kit, err := write.New(c, "scheduler", nil)
		if err != nil {
			t.Fatal(err)
		}
		var bound time.Time
		var mu sync.Mutex
		pool := NewPool(nil)
		groups := NewGroups(pool, kit, c, StatusOptions{Bound: func() time.Time { mu.Lock(); defer mu.Unlock(); return bound }})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = pool.Run(ctx) })
		defer running.Wait()
		defer cancel()
		store, key := cluster.NewStore(cluster.Options{}), volcano.GangKey("a", "g")
		store.Apply(cluster.NodeState{Name: "n"}, cluster.QueueState{Name: "q"}, cluster.GangState{Key: key, UID: "g", Queue: "q", BeforePods: true, Sets: cluster.FlatTree(8)})
		pods := func(from, to int, phase cluster.Phase) {
			for i := from; i < to; i++ {
				p := cluster.PodState{UID: fmt.Sprint(i), Namespace: "a", Name: fmt.Sprint(i), Phase: phase, Gang: key, Ours: true}
				if phase != cluster.Pending {
					p.NodeName = "n"
				}
				store.Apply(p)
			}
		}
		publish := func(reason *policy.Reason) {
			trace := &engine.Trace{}
			if reason != nil {
				trace.Gangs = []engine.GangTrace{{Gang: key, UID: "g", Diagnosis: &engine.Diagnosis{Verdict: engine.Verdict{Code: policy.No, Reason: reason, Need: 8}}}}
			}
			groups.Publish(store.Snapshot(cluster.InstantOf(time.Now())), trace)
			synctest.Wait()
		}
		expect := func(what string, writes int, phase v1beta1.PodGroupPhase, runs int32) {
			t.Helper()
			synctest.Wait()
			pg := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "g"}}
			s.Get(pg)
			if w := s.Writes(); len(w) != writes || pg.Status.Phase != phase || pg.Status.Running != runs {
				t.Errorf("%s: %d writes, want %d; %s with %d running, want %s with %d", what, len(w), writes, pg.Status.Phase, pg.Status.Running, phase, runs)
			}
		}
		pass := func(d time.Duration) { <-time.After(d); synctest.Wait() }

		publish(policy.ReasonGangNotReady)
		expect("no pods yet", 1, v1beta1.PodGroupInqueue, 0)
		pods(0, 8, cluster.Pending)
		publish(nil)
		pods(0, 8, cluster.Bound)
		publish(nil)
		expect("placed just now", 0, v1beta1.PodGroupInqueue, 0)
		for i := range 8 {
			pass(100 * time.Millisecond)
			pods(i, i+1, cluster.Running)
			publish(nil)
		}
		pass(time.Second)
		expect("all run", 1, v1beta1.PodGroupRunning, 8)
		pass(time.Hour)
		expect("at rest", 0, v1beta1.PodGroupRunning, 8)

		// Pods of others are bound all the time.
		until := time.Now().Add(time.Minute)
		bind := func() { mu.Lock(); bound = time.Now(); mu.Unlock() }
		pods(7, 8, cluster.Succeeded)
		bind()
		publish(nil)
		for i := 0; time.Now().Before(until); i++ {
			pass(100 * time.Millisecond)
			if bind(); i == 50 {
				expect("others are bound", 0, v1beta1.PodGroupRunning, 8)
			}
		}
		expect("ten seconds are over", 1, v1beta1.PodGroupRunning, 7)
		pods(6, 7, cluster.Succeeded)
		publish(nil)
		pass(3 * time.Second)
		expect("nobody is bound any more", 1, v1beta1.PodGroupRunning, 6)

		bind()
		pods(0, 8, cluster.Pending)
		publish(policy.ReasonGangNoRoom)
		expect("it has lost its places", 1, v1beta1.PodGroupPending, 0)
		pass(time.Second)
		publish(policy.ReasonGangNoRoom)
		expect("it waits", 1, v1beta1.PodGroupInqueue, 0)
		pass(time.Hour)
		expect("at rest again", 0, v1beta1.PodGroupInqueue, 0)
	})
}

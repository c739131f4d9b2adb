package apply

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/plugins/proportion"
	"github.com/muster-scheduler/muster/internal/engine/plugins/votes"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/kube/write"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// TestPhases: the phase and the counts of a gang of three by where its pods are and why it waits.
func TestPhases(t *testing.T) {
	t.Parallel()
	room := policy.ReasonGangNoRoom
	for _, c := range []struct {
		what    string
		pods    []cluster.Phase
		reason  *policy.Reason
		settled bool
		phase   v1beta1.PodGroupPhase
		word    string
	}{
		{"without pods, waiting for them", nil, policy.ReasonGangNotReady, true, v1beta1.PodGroupInqueue, v1beta1.NotEnoughPodsReason},
		{"just made", nil, policy.ReasonGangNotReady, false, v1beta1.PodGroupInqueue, ""},
		{"its queue is closed", nil, policy.ReasonQueueClosed, true, v1beta1.PodGroupPending, "QueueClosed"},
		{"its queue was closed just now", nil, policy.ReasonQueueClosed, false, v1beta1.PodGroupPending, ""},
		{"not let in", nil, votes.ReasonOvercommitted, true, v1beta1.PodGroupPending, "Overcommitted"},
		{"its queue is full", []cluster.Phase{cluster.Pending}, votes.ReasonQueueFull, true, v1beta1.PodGroupPending, "QueueFull"},
		{"wrong", nil, policy.ReasonGangInvalid, true, v1beta1.PodGroupPending, "InvalidGang"},
		{"without room", []cluster.Phase{cluster.Pending, cluster.Pending, cluster.Pending}, room, true, v1beta1.PodGroupInqueue, v1beta1.NotEnoughResourcesReason},
		{"over a limit", []cluster.Phase{cluster.Pending, cluster.Pending, cluster.Pending}, proportion.ReasonOverLimit, true, v1beta1.PodGroupInqueue, v1beta1.NotEnoughResourcesReason},
		{"decided", []cluster.Phase{cluster.Binding, cluster.Binding, cluster.Binding}, nil, true, v1beta1.PodGroupInqueue, ""},
		{"half bound", []cluster.Phase{cluster.Running, cluster.Binding, cluster.Binding}, nil, true, v1beta1.PodGroupInqueue, ""},
		{"bound", []cluster.Phase{cluster.Running, cluster.Bound, cluster.Bound}, nil, true, v1beta1.PodGroupRunning, ""},
		{"one is leaving", []cluster.Phase{cluster.Running, cluster.Running, cluster.Releasing}, nil, true, v1beta1.PodGroupRunning, ""},
		{"one more waits", []cluster.Phase{cluster.Running, cluster.Running, cluster.Running, cluster.Pending}, room, true, v1beta1.PodGroupRunning, ""},
		{"one has lost its place", []cluster.Phase{cluster.Running, cluster.Running, cluster.Pending}, room, true, v1beta1.PodGroupUnknown, v1beta1.NotEnoughResourcesReason},
		{"one has just lost its place", []cluster.Phase{cluster.Running, cluster.Running, cluster.Pending}, room, false, v1beta1.PodGroupInqueue, ""},
		{"some have ended", []cluster.Phase{cluster.Running, cluster.Succeeded, cluster.Failed}, nil, true, v1beta1.PodGroupRunning, ""},
		{"all have ended", []cluster.Phase{cluster.Succeeded, cluster.Succeeded, cluster.Failed}, nil, true, v1beta1.PodGroupCompleted, ""},
	} {
		s := cluster.NewStore(cluster.Options{})
		key := volcano.GangKey("ns", "g")
		s.Apply(cluster.NodeState{Name: "n"}, cluster.QueueState{Name: "q"}, cluster.GangState{Key: key, UID: "g", Queue: "q", Sets: cluster.FlatTree(3)})
		var running, succeeded, failed int32
		for i, phase := range c.pods {
			p := cluster.PodState{UID: string(rune('a' + i)), Namespace: "ns", Name: string(rune('a' + i)), Phase: phase, Gang: key, Ours: true}
			if phase != cluster.Pending {
				p.NodeName = "n"
			}
			s.Apply(p)
			switch phase {
			case cluster.Running:
				running++
			case cluster.Succeeded:
				succeeded++
			case cluster.Failed:
				failed++
			}
		}
		snap := s.Snapshot(cluster.UnixNano(1))
		is, _ := statusOf(snap, snap.GangByKey(key), c.reason, "text", c.settled)
		if is.Phase != c.phase || is.Reason != c.word || is.Running != running || is.Succeeded != succeeded || is.Failed != failed {
			t.Errorf("%s: %+v, want %s, %q, %d running, %d succeeded, %d failed", c.what, is, c.phase, c.word, running, succeeded, failed)
		}
	}
}

// TestStatusOver: a patch has what differs, and nothing if nothing does; a condition that says the same keeps its time, one of its type that is there twice goes.
func TestStatusOver(t *testing.T) {
	t.Parallel()
	then, now := metav1.Unix(1, 0), metav1.Unix(2, 0)
	waits := volcano.Status{Phase: v1beta1.PodGroupInqueue, Reason: v1beta1.NotEnoughResourcesReason, Message: "GangNoRoom: …", Settled: true}
	patch, changed := waits.Over(&v1beta1.PodGroupStatus{}, then)
	conditions, _ := patch["conditions"].([]v1beta1.PodGroupCondition)
	if !changed || patch["phase"] != v1beta1.PodGroupInqueue || len(conditions) != 1 || conditions[0].Status != corev1.ConditionTrue || conditions[0].LastTransitionTime != then {
		t.Errorf("at first: %v", patch)
	}
	have := &v1beta1.PodGroupStatus{Phase: v1beta1.PodGroupInqueue, Conditions: conditions}
	if patch, changed := waits.Over(have, now); changed {
		t.Errorf("the same: %v", patch)
	}
	waits.Message = "GangNoRoom: other numbers"
	patch, _ = waits.Over(have, now)
	if c, _ := patch["conditions"].([]v1beta1.PodGroupCondition); len(c) != 1 || c[0].LastTransitionTime != then || c[0].Message != waits.Message || patch["phase"] != nil {
		t.Errorf("other numbers: %v", patch)
	}
	runs := volcano.Status{Phase: v1beta1.PodGroupRunning, Placed: true, Running: 3}
	have.Conditions = append(have.Conditions, v1beta1.PodGroupCondition{Type: v1beta1.PodGroupUnschedulableType, Status: corev1.ConditionTrue})
	patch, _ = runs.Over(have, now)
	c, _ := patch["conditions"].([]v1beta1.PodGroupCondition)
	if len(c) != 2 || c[0].Type != v1beta1.PodGroupUnschedulableType || c[0].Status != corev1.ConditionFalse || c[1].Type != v1beta1.PodGroupScheduled || c[1].Status != corev1.ConditionTrue || c[1].Reason != volcano.Scheduled {
		t.Errorf("running: %v", patch)
	}
	if patch["running"] != int32(3) || patch["succeeded"] != nil {
		t.Errorf("running: %v", patch)
	}
}

// TestFallen: a gang that ran and has lost every place is Pending for a second, and then Inqueue; one that keeps some is not. Why it waits is told by an event once, with the
// counts in Volcano's words, and again when it has run in between.
func TestFallen(t *testing.T) {
	t.Parallel()
	var told []string
	// Its queue goes on to wait, so it is none of the bubble's.
	groups := NewGroups(NewPool(nil), nil, nil, StatusOptions{Event: func(_ client.Object, kind, reason, message string) { told = append(told, kind+" "+reason+" "+message) }})
	synctest.Test(t, func(t *testing.T) {
		store, key := cluster.NewStore(cluster.Options{}), volcano.GangKey("ns", "g")
		store.Apply(cluster.NodeState{Name: "n"}, cluster.QueueState{Name: "q"}, cluster.GangState{Key: key, UID: "g", Queue: "q", Sets: cluster.FlatTree(2)})
		publish := func(want v1beta1.PodGroupPhase, waits bool, phases ...cluster.Phase) {
			t.Helper()
			for i, phase := range phases {
				p := cluster.PodState{UID: string(rune('a' + i)), Namespace: "ns", Name: string(rune('a' + i)), Phase: phase, Gang: key, Ours: true}
				if phase != cluster.Pending {
					p.NodeName = "n"
				}
				store.Apply(p)
			}
			trace := &engine.Trace{}
			if waits {
				trace.Gangs = []engine.GangTrace{{Gang: key, UID: "g", Diagnosis: &engine.Diagnosis{Verdict: engine.Verdict{Code: policy.No, Reason: policy.ReasonGangNoRoom, Need: 2}}}}
			}
			groups.Publish(store.Snapshot(cluster.InstantOf(time.Now())), trace)
			of := groups.gangs["g"]
			if of.want.Phase != want {
				t.Errorf("it is %s, want %s", of.want.Phase, want)
			}
			groups.tell("g", volcano.PodGroup(key, "g"), of.want, of.says)
		}
		publish(v1beta1.PodGroupRunning, false, cluster.Running, cluster.Running)
		publish(v1beta1.PodGroupInqueue, true, cluster.Running, cluster.Pending)
		publish(v1beta1.PodGroupPending, true, cluster.Pending, cluster.Pending)
		<-time.After(time.Second / 2)
		publish(v1beta1.PodGroupPending, true)
		<-time.After(time.Second / 2)
		publish(v1beta1.PodGroupInqueue, true)
		publish(v1beta1.PodGroupRunning, false, cluster.Running, cluster.Running)
		publish(v1beta1.PodGroupPending, true, cluster.Pending, cluster.Pending)
		<-time.After(time.Second)
		publish(v1beta1.PodGroupInqueue, true)
		if want := "Warning Unschedulable 2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable; GangNoRoom: "; len(told) != 2 || !strings.HasPrefix(told[0], want) {
			t.Errorf("told %q, want two, the first of which begins with %q", told, want)
		}
		publish(v1beta1.PodGroupRunning, false, cluster.Running, cluster.Running)
		publish(v1beta1.PodGroupInqueue, true, cluster.Running, cluster.Pending)
		<-time.After(time.Second)
		publish(v1beta1.PodGroupUnknown, true)
		if len(told) != 3 || !strings.Contains(told[2], "1/2 tasks in gang unschedulable: pod group is not ready, 1 Pending, 1 Running, 2 minAvailable; ") {
			t.Errorf("told %q", told)
		}
	})
}

// TestGroupsCrash: the status of a PodGroup comes to the same, wherever the process dies: what a tenant wrote there is put right, the spec stays as it is, and at rest nothing
// is written.
func TestGroupsCrash(t *testing.T) {
	t.Parallel()
	object := func() *v1beta1.PodGroup {
		return &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "g", UID: "g"}}
	}
	kubetest.Story{
		Options: kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)},
		Set: func(s *kubetest.Server) {
			pg := object()
			pg.Spec.MinMember, pg.Status.Phase, pg.Status.Running = 2, v1beta1.PodGroupRunning, 7
			s.Put(pg)
		},
		Run: func(t *testing.T, p *kubetest.Process) func() {
			return p.Run(t, func(_ cache.Cache, c client.Client) (func(context.Context) error, error) {
				kit, err := write.New(c, "scheduler", nil)
				return func(ctx context.Context) error { return tellGroups(ctx, c, kit) }, err
			})
		},
		Settle: 20 * time.Second,
		Check: func(t *testing.T, s *kubetest.Server) {
			pg := object()
			s.Get(pg)
			if is := &pg.Status; is.Phase != v1beta1.PodGroupInqueue || is.Running != 0 || len(is.Conditions) != 1 || is.Conditions[0].Reason != v1beta1.NotEnoughResourcesReason || pg.Spec.MinMember != 2 {
				t.Errorf("in the end %+v", pg)
			}
			s.Writes()
			<-time.After(time.Hour)
			if w := s.Writes(); len(w) > 0 {
				t.Errorf("at rest: %v", w)
			}
		},
	}.Crashes(t)
}

// tellGroups publishes, each second, that a gang waits for room.
func tellGroups(ctx context.Context, c client.Client, kit *write.Kit) error {
	pool := NewPool(nil)
	groups := NewGroups(pool, kit, c, StatusOptions{})
	var writers sync.WaitGroup
	writers.Go(func() { _ = pool.Run(ctx) }) // it returns nil
	defer writers.Wait()
	store, key := cluster.NewStore(cluster.Options{}), volcano.GangKey("a", "g")
	store.Apply(cluster.QueueState{Name: "q"}, cluster.GangState{Key: key, UID: "g", Queue: "q", Sets: cluster.FlatTree(2)})
	snap := store.Snapshot(cluster.UnixNano(1))
	trace := &engine.Trace{Gangs: []engine.GangTrace{{Gang: key, UID: "g", Diagnosis: &engine.Diagnosis{Verdict: engine.Verdict{Code: policy.No, Reason: policy.ReasonGangNoRoom, Need: 2}}}}}
	for {
		groups.Publish(snap, trace)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

package apply

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kubebatch"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/kube/write"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// TestKubeBatchGroupsCrash: the status of a PodGroup of kube-batch's is written by the API group that it came from, as a subresource, and comes to the same wherever the process dies: what a tenant wrote there is put right, the spec
// stays; of an object of the same name in the other API group, and of a gang without a PodGroup, nothing is written, nor at rest of any. An API group that is not served hinders nobody.
func TestKubeBatchGroupsCrash(t *testing.T) {
	t.Parallel()
	first := func() *v1alpha1.PodGroup {
		return &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "g", UID: "g1"}, Spec: v1alpha1.PodGroupSpec{MinMember: 2}, Status: v1alpha1.PodGroupStatus{Phase: v1alpha1.PodGroupRunning, Running: 7}}
	}
	second := func() *v1alpha2.PodGroup {
		o := first()
		return &v1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "g", UID: "g2"}, Spec: o.Spec, Status: o.Status}
	}
	for what, c := range map[string]struct {
		uid     string
		served  func(kubetest.Kind) bool
		objects []client.Object
	}{
		"of the first group":                    {"g1", func(kubetest.Kind) bool { return true }, []client.Object{first(), second()}},
		"of the second group":                   {"g2", func(kubetest.Kind) bool { return true }, []client.Object{first(), second()}},
		"the first group alone is there":        {"g1", func(k kubetest.Kind) bool { return k.Group == v1alpha1.GroupVersion.Group }, []client.Object{first()}},
		"the second group alone is there":       {"g2", func(k kubetest.Kind) bool { return k.Group == v1alpha2.GroupVersion.Group }, []client.Object{second()}},
		"the other group's of this name is not": {"g2", func(kubetest.Kind) bool { return true }, []client.Object{second()}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			kinds := append(kubetest.Builtin(), slices.DeleteFunc(kubetest.KubeBatch(), func(k kubetest.Kind) bool { return !c.served(k) })...)
			kubetest.Story{
				Options: kubetest.Options{Kinds: kinds},
				Set: func(s *kubetest.Server) {
					for _, o := range c.objects {
						s.Put(o.DeepCopyObject().(client.Object))
					}
				},
				Run: func(t *testing.T, p *kubetest.Process) func() {
					return p.Run(t, func(_ cache.Cache, client client.Client) (func(context.Context) error, error) {
						kit, err := write.New(client, "scheduler", nil)
						return func(ctx context.Context) error { return tellKubeBatch(ctx, client, kit, c.uid) }, err
					})
				},
				Settle: 20 * time.Second,
				Check: func(t *testing.T, s *kubetest.Server) {
					for _, o := range c.objects {
						var spec v1alpha1.PodGroupSpec
						var is v1alpha1.PodGroupStatus
						switch o.(type) {
						case *v1alpha1.PodGroup:
							got := first()
							s.Get(got)
							spec, is = got.Spec, got.Status
						case *v1alpha2.PodGroup:
							got := second()
							s.Get(got)
							spec, is = got.Spec, got.Status
						}
						said := is.Phase == v1alpha1.PodGroupPending && is.Running == 0 && len(is.Conditions) == 1 && is.Conditions[0].Reason == v1beta1.NotEnoughResourcesReason && strings.Contains(is.Conditions[0].Message, "; GangNoRoom: ")
						untouched := is.Phase == v1alpha1.PodGroupRunning && is.Running == 7 && len(is.Conditions) == 0
						if ours := string(o.GetUID()) == c.uid; spec.MinMember != 2 || ours != said || ours == untouched {
							t.Errorf("in the end %s has %+v %+v", o.GetUID(), spec, is)
						}
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

// tellKubeBatch publishes, each second, that a gang of that UID, and one without a PodGroup, wait for room.
func tellKubeBatch(ctx context.Context, c client.Client, kit *write.Kit, uid string) error {
	pool := NewPool(nil)
	groups := NewKubeBatchGroups(pool, kit, c, StatusOptions{})
	var writers sync.WaitGroup
	writers.Go(func() { _ = pool.Run(ctx) }) // it returns nil
	defer writers.Wait()
	store, trace := cluster.NewStore(cluster.Options{}), &engine.Trace{}
	store.Apply(cluster.QueueState{Name: "q"})
	for key, uid := range map[cluster.Key]string{kubebatch.GangKey("a", "g"): uid, kubebatch.ShadowKey("a", "g"): "g"} { // order: one snapshot of both
		store.Apply(cluster.GangState{Key: key, UID: uid, Queue: "q", Sets: cluster.FlatTree(2)})
		trace.Gangs = append(trace.Gangs, engine.GangTrace{Gang: key, UID: uid, Diagnosis: &engine.Diagnosis{Verdict: engine.Verdict{Code: policy.No, Reason: policy.ReasonGangNoRoom, Need: 2}}})
	}
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

// TestForAGangOfKubeBatchs: what a gang of kube-batch's goes for is looked up in both API groups; one without a PodGroup is its pods.
func TestForAGangOfKubeBatchs(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{Namespace: "a", Name: "taker", UID: "taker"}
	for name, c := range map[string]struct {
		group      client.Object
		shadow     bool
		went, want string
	}{
		"of the first group":      {&v1alpha1.PodGroup{ObjectMeta: meta}, false, "v1 v2", ""},
		"of the second group":     {&v1alpha2.PodGroup{ObjectMeta: meta}, false, "v1 v2", ""},
		"it is another":           {&v1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "taker", UID: "x"}}, false, "", "gang a/taker"},
		"it is gone":              {nil, false, "", "gang a/taker"},
		"it never had a PodGroup": {nil, true, "v1 v2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "v1", "v2")
			if c.group != nil {
				if err := a.client.Create(t.Context(), c.group); err != nil {
					t.Fatal(err)
				}
			}
			o := a.run(one, a.plan(func(b *engine.Bundle) {
				if b.Gang.Face = kubebatch.Face; c.shadow {
					b.Gang = kubebatch.ShadowKey("a", "taker")
				}
			}, "v1", "v2"))
			var calls []string
			for v := range strings.FieldsSeq(c.went) {
				calls = append(calls, "evict "+v)
			}
			a.expect(o, c.went, c.want, calls...)
		})
	}
}

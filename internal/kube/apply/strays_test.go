package apply

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kbkeys "github.com/muster-scheduler/muster/api/kubebatch/keys"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/kube/write"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// strayFixture is Strays at work, fed by a translator as the scheduler's is.
type strayFixture struct {
	t          *testing.T
	server     *kubetest.Server
	strays     *Strays
	store      *cluster.Store
	translator *dialect.Translator
	next       time.Time
}

// newStrayFixture starts Strays for all faces.
func newStrayFixture(t *testing.T, s *kubetest.Server, o StatusOptions) (f *strayFixture, end func()) {
	t.Helper()
	c, err := s.Process("scheduler").Client(kubetest.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	kit, err := write.New(c, "scheduler", nil)
	if err != nil {
		t.Fatal(err)
	}
	pool := NewPool(nil)
	f = &strayFixture{
		t: t, server: s, strays: NewStrays(pool, kit, c, o), store: cluster.NewStore(cluster.Options{}),
		translator: dialect.NewTranslator(dialect.Options{Volcano: []string{"volcano"}, KubeBatch: dialect.KubeBatch{Schedulers: []string{"kube-batch"}}}),
	}
	if err := f.strays.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = pool.Run(ctx) })
	return f, func() { cancel(); running.Wait() }
}

// tell has the scheduler see an object; gone says that it is deleted.
func (f *strayFixture) tell(k dialect.Kind, o client.Object, gone bool) {
	seen := dialect.Object(nil)
	if !gone {
		seen = o
	}
	f.translator.Take(k, client.ObjectKeyFromObject(o), seen, func(e cluster.Event) { f.store.Apply(e) })
}

// pass lets time pass, and publishes when that was asked for, as the loop does.
func (f *strayFixture) pass(d time.Duration) {
	end := time.Now().Add(d)
	for {
		f.next = f.strays.Publish(f.store.Snapshot(cluster.InstantOf(time.Now())), &engine.Trace{})
		synctest.Wait()
		if f.next.IsZero() || f.next.After(end) {
			break
		}
		<-time.After(max(time.Until(f.next), time.Millisecond))
	}
	<-time.After(time.Until(end))
	synctest.Wait()
}

// says is the pod's condition: "reason: message", "" for none.
func (f *strayFixture) says(name string) string {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	f.server.Get(p)
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// wrote fails unless there were so many writes since the last call.
func (f *strayFixture) wrote(what string, want int) {
	f.t.Helper()
	if w := f.server.Writes(); len(w) != want {
		f.t.Errorf("%s: %d writes, want %d: %v", what, len(w), want, w)
	}
}

// stray is a pod that waits, of a scheduler, with an annotation.
func strayPod(name, scheduler, annotation, value string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("u-" + name)}, Spec: v1.PodSpec{SchedulerName: scheduler}, Status: v1.PodStatus{Phase: v1.PodPending}}
	if annotation != "" {
		p.Annotations = map[string]string{annotation: value}
	}
	return p
}

// TestStrays: a pod of whichever face that names a PodGroup which is not there says so, names the object to make and where, and is written once; when the PodGroup has come the condition is taken back,
// once; when it has gone again it is told again. A pod that names none, or one that is there, is not written.
func TestStrays(t *testing.T) {
	t.Parallel()
	group := "lost"
	upstreams := strayPod("upstream", kai.DefaultSchedulerName, "", "")
	upstreams.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
	for face, c := range map[string]struct {
		pod   *v1.Pod
		kind  dialect.Kind
		group client.Object
		field string
		of    string
	}{
		"volcano":    {strayPod("volcano", "volcano", vckeys.GroupName, group), dialect.VolcanoPodGroups, dialect.Group(cluster.Key{Face: "volcano", Namespace: "team", Name: group}, "g"), "metadata.annotations[scheduling.k8s.io/group-name]", "scheduling.volcano.sh"},
		"kube-batch": {strayPod("kubebatch", "kube-batch", kbkeys.GroupName, group), dialect.KubeBatchPodGroups, dialect.Group(cluster.Key{Face: "kubebatch", Namespace: "team", Name: group}, "g"), "metadata.annotations[scheduling.k8s.io/group-name]", "scheduling.incubator.k8s.io or scheduling.sigs.dev"},
		"kai":        {strayPod("kai", kai.DefaultSchedulerName, kai.PodGroupAnnotation, group), dialect.PodGroups, dialect.Group(cluster.Key{Face: "kai", Namespace: "team", Name: group}, "g"), "metadata.annotations[pod-group-name]", "scheduling.run.ai"},
		"upstream":   {upstreams, dialect.UpstreamPodGroups, dialect.Group(cluster.Key{Face: "upstream", Namespace: "team", Name: group}, "g"), "spec.schedulingGroup.podGroupName", "scheduling.k8s.io"},
	} {
		t.Run(face, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := kubetest.New(kubetest.Options{})
				s.Put(c.pod.DeepCopy())
				s.Put(strayPod("none", c.pod.Spec.SchedulerName, "", ""))
				f, end := newStrayFixture(t, s, StatusOptions{Unschedulable: UnschedulableAlways})
				defer end()
				f.tell(dialect.Pods, c.pod, false)
				f.tell(dialect.Pods, strayPod("none", c.pod.Spec.SchedulerName, "", ""), false)
				f.pass(time.Second)
				f.wrote("at once", 0)
				f.pass(time.Minute)
				f.wrote("told", 1)
				want := v1.PodReasonUnschedulable + ": " + policy.ReasonGroupMissing.Key + ": PodGroup lost of " + c.of + " in namespace team, which " + c.field +
					" names, does not exist: create it in the pod's namespace, or make the pod anew with the name of one that is there"
				if got := f.says(c.pod.Name); got != want {
					t.Errorf("it says %q, want %q", got, want)
				}
				f.pass(time.Hour)
				f.wrote("at rest", 0)
				f.tell(c.kind, c.group, false)
				f.pass(time.Minute)
				f.wrote("the group has come", 1)
				if got := f.says(c.pod.Name); got != "" {
					t.Errorf("its group is there, and it says %q", got)
				}
				f.pass(time.Hour)
				f.wrote("at rest", 0)
				f.tell(c.kind, c.group, true)
				f.pass(time.Minute)
				f.wrote("the group has gone", 1)
				f.tell(dialect.Pods, c.pod, true)
				f.tell(dialect.Pods, strayPod("none", c.pod.Spec.SchedulerName, "", ""), true)
				f.pass(time.Minute)
				f.wrote("the pods have gone", 0)
				if len(f.strays.pods) > 0 {
					t.Errorf("%d pods are remembered", len(f.strays.pods))
				}
			})
		})
	}
}

// TestStraysSayNothing: what comes within a moment is not told; what else is said meanwhile stays; a pod that has a node, or its gang from its owner, is not written; a text that no PodGroup can be called, such as one of
// another namespace, is told as such.
func TestStraysSayNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(kubetest.Options{})
		soon, elsewhere, bound := strayPod("soon", "volcano", vckeys.GroupName, "soon"), strayPod("elsewhere", "volcano", vckeys.GroupName, "other/train"), strayPod("bound", "volcano", vckeys.GroupName, "lost")
		bound.Spec.NodeName = "n"
		long := strayPod("long", "volcano", vckeys.GroupName, strings.Repeat("é", 1<<16))
		yes := true
		owned := strayPod("owned", kai.DefaultSchedulerName, "", "")
		bare := strayPod("bare", "volcano", "", "")
		owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "j", Controller: &yes}}
		f, end := newStrayFixture(t, s, StatusOptions{Unschedulable: UnschedulableIfNodesHelp})
		defer end()
		for _, p := range []*v1.Pod{soon, elsewhere, bound, owned, bare, long} {
			s.Put(p.DeepCopy())
			f.tell(dialect.Pods, p, false)
		}
		f.pass(2 * time.Second)
		f.tell(dialect.VolcanoPodGroups, dialect.Group(cluster.Key{Face: "volcano", Namespace: "team", Name: "soon"}, "g"), false)
		f.pass(time.Hour)
		f.wrote("told", 2)
		if got := f.says("long"); len(got) > 1000 || !strings.Contains(got, policy.ReasonGroupNoName.Key) {
			t.Errorf("of a long text %d bytes are told", len(got))
		}
		if got := f.says("elsewhere"); !strings.HasPrefix(got, policy.ReasonGroupNoName.Key+`: metadata.annotations[scheduling.k8s.io/group-name] is "other/train", which no PodGroup can be called`) {
			t.Errorf("it says %q", got)
		}
		// Somebody says something else, and then the pod's gang is there.
		p := elsewhere.DeepCopy()
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: "GangNoRoom: …"}}
		s.Put(p)
		f.tell(dialect.VolcanoPodGroups, dialect.Group(cluster.Key{Face: "volcano", Namespace: "team", Name: "other/train"}, "g"), false)
		f.pass(time.Hour)
		f.wrote("somebody else's word", 0)
	})
}

// TestStraysCrash: wherever the process dies, in the end the pod whose PodGroup is missing says so, the one whose PodGroup has come does not, and nothing is written at rest.
func TestStraysCrash(t *testing.T) {
	t.Parallel()
	lost, found := strayPod("lost", "volcano", vckeys.GroupName, "lost"), strayPod("found", "volcano", vckeys.GroupName, "found")
	found.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: policy.ReasonGroupMissing.Key + ": …"}}
	kubetest.Story{
		Set: func(s *kubetest.Server) { s.Put(lost.DeepCopy()); s.Put(found.DeepCopy()) },
		Run: func(t *testing.T, p *kubetest.Process) func() {
			return p.Run(t, func(_ cache.Cache, c client.Client) (func(context.Context) error, error) {
				kit, err := write.New(c, "scheduler", nil)
				return func(ctx context.Context) error { return tellStrays(ctx, c, kit, lost, found) }, err
			})
		},
		Settle: time.Minute,
		Check: func(t *testing.T, s *kubetest.Server) {
			for name, missing := range map[string]bool{"lost": true, "found": false} {
				p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
				if s.Get(p); (Missing(p) != "") != missing {
					t.Errorf("%s: %+v", name, p.Status.Conditions)
				}
			}
			s.Writes()
			<-time.After(time.Hour)
			if w := s.Writes(); len(w) > 0 {
				t.Errorf("at rest: %v", w)
			}
		},
	}.Crashes(t)
}

// tellStrays publishes, each second, a cluster with a pod whose PodGroup is not there, and one whose is.
func tellStrays(ctx context.Context, c client.Client, kit *write.Kit, lost, found *v1.Pod) error {
	pool := NewPool(nil)
	strays := NewStrays(pool, kit, c, StatusOptions{Unschedulable: UnschedulableAlways})
	if err := strays.Restore(ctx); err != nil {
		return err
	}
	store, tr := cluster.NewStore(cluster.Options{}), dialect.NewTranslator(dialect.Options{Volcano: []string{"volcano"}})
	take := func(k dialect.Kind, o client.Object) {
		tr.Take(k, client.ObjectKeyFromObject(o), o, func(e cluster.Event) { store.Apply(e) })
	}
	take(dialect.VolcanoPodGroups, dialect.Group(cluster.Key{Face: "volcano", Namespace: "team", Name: "found"}, "g"))
	take(dialect.Pods, lost)
	take(dialect.Pods, found)
	var writers sync.WaitGroup
	defer writers.Wait()
	writers.Go(func() { _ = pool.Run(ctx) })
	for {
		strays.Publish(store.Snapshot(cluster.InstantOf(time.Now())), &engine.Trace{})
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil
		}
	}
}

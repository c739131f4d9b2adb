package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// arena is an API server in memory with a gang that waits and pods that are in its way.
type arena struct {
	t      *testing.T
	client client.WithWatch

	mu     sync.Mutex
	log    []string                                // "evict v1", "delete v1", "mark v1"
	answer func(verb, pod string, nth int) error   // of the nth such call
	before func(verb, pod string, c client.Client) // of each call
	calls  map[string]int
}

func newArena(t *testing.T, victims ...string) *arena {
	t.Helper()
	a := &arena{t: t, calls: map[string]int{}}
	ready := v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}
	objects := []client.Object{
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: ready}, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Status: ready},
		&v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "taker", UID: "taker"}},
		&v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "giver", UID: "giver"}},
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "p"}},
	}
	for _, v := range victims {
		objects = append(objects, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: v, UID: types.UID(v)},
			Spec:       v1.PodSpec{NodeName: "n1"}, Status: v1.PodStatus{Phase: v1.PodRunning},
		})
	}
	call := func(verb, pod string, do func() error) error {
		a.mu.Lock()
		a.calls[verb+" "+pod]++
		nth, before := a.calls[verb+" "+pod], a.before
		var err error
		if a.answer != nil {
			err = a.answer(verb, pod, nth)
		}
		if err == nil {
			a.log = append(a.log, verb+" "+pod)
		}
		a.mu.Unlock()
		if before != nil {
			before(verb, pod, a.client)
		}
		if err != nil {
			return err
		}
		return do()
	}
	remove := func(ctx context.Context, c client.Client, obj client.Object, uid *types.UID) error {
		if uid == nil {
			t.Errorf("%s is to go without its UID", obj.GetName())
			return nil
		}
		have := &v1.Pod{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), have); err != nil {
			return err
		}
		if have.UID != *uid {
			return apierrors.NewConflict(resource, obj.GetName(), errors.New("UID"))
		}
		return c.Delete(ctx, have)
	}
	a.client = fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).WithStatusSubresource(&v1.Pod{}, &v2alpha2.PodGroup{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, body client.Object, _ ...client.SubResourceCreateOption) error {
				e, ok := body.(*policyv1.Eviction)
				if !ok || sub != "eviction" {
					t.Errorf("created %s of %T", sub, obj)
				}
				return call("evict", obj.GetName(), func() error { return remove(ctx, a.bare(), obj, e.DeleteOptions.Preconditions.UID) })
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.DeleteOption) error {
				p := (&client.DeleteOptions{}).ApplyOptions(o).Preconditions
				if p == nil {
					return c.Delete(ctx, obj) // the test's own
				}
				return call("delete", obj.GetName(), func() error { return remove(ctx, a.bare(), obj, p.UID) })
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
				return call("mark", obj.GetName(), func() error { return c.SubResource(sub).Patch(ctx, obj, p, o...) })
			},
		}).Build()
	return a
}

// bare is the client as a test uses it.
func (a *arena) bare() client.Client { return a.client }

// change changes the world.
func (a *arena) change(obj client.Object, change func()) {
	a.t.Helper()
	ctx := context.Background()
	if err := a.client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
		a.t.Error(err)
		return
	}
	change()
	status := obj.DeepCopyObject().(client.Object)
	if err := a.client.Update(ctx, obj); err != nil {
		a.t.Error(err)
	}
	status.SetResourceVersion(obj.GetResourceVersion())
	if err := client.IgnoreNotFound(a.client.Status().Update(ctx, status)); err != nil {
		a.t.Error(err)
	}
}

func podNamed(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
}

// plan evicts the victims for p.
func (a *arena) plan(change func(*engine.Bundle), victims ...string) engine.Plan {
	b := engine.Bundle{ID: "b", Gang: kai.GangKey("a", "taker"), UID: "taker", Eviction: &engine.EvictionRecord{Cause: engine.Reclaim}}
	for _, v := range victims {
		b.Intents = append(b.Intents, engine.Intent{Verb: engine.Evict, Namespace: "a", Pod: v, UID: v, Node: "n1", Gang: kai.GangKey("a", "giver")})
	}
	b.Intents = append(b.Intents, engine.Intent{Verb: engine.Nominate, Namespace: "a", Pod: "p", UID: "p", Node: "n1"})
	if change != nil {
		change(&b)
	}
	return engine.Plan{Action: "reclaim", Bundles: []engine.Bundle{b}}
}

// run carries a plan out and returns what became of it.
func (a *arena) run(o EvictionOptions, p engine.Plan) Outcome {
	a.t.Helper()
	kit, err := write.New(a.client, "scheduler", nil)
	if err != nil {
		a.t.Fatal(err)
	}
	pool := NewPool(nil)
	var written atomic.Int32
	o.Written = func() { written.Add(1) }
	e := NewEvictions(pool, kit, a.client, o)
	ctx, stop := context.WithCancel(a.t.Context())
	done := make(chan error, 1)
	go func() { done <- pool.Run(ctx) }()
	e.Submit(p)
	select {
	case <-e.Settled():
	case <-time.After(30 * time.Second):
		a.t.Fatal("nothing came of it")
	}
	stop()
	if err := <-done; err != nil {
		a.t.Error(err)
	}
	got := e.Outcomes()
	if len(got) != 1 {
		a.t.Fatalf("%d outcomes", len(got))
	}
	if told := int(written.Load()); told > len(got[0].Evicted) || got[0].Err == nil && told == 0 && len(got[0].Evicted) > 0 && len(a.log) > 0 {
		a.t.Errorf("%d evictions were told of as written, %d pods go", told, len(got[0].Evicted))
	}
	return got[0]
}

func (a *arena) expect(o Outcome, evicted, problem string, calls ...string) {
	a.t.Helper()
	var uids []string
	for uid := range o.Evicted { // order: sorted below
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	if got := strings.Join(uids, " "); got != evicted {
		a.t.Errorf("evicted %q, want %q", got, evicted)
	}
	if (o.Err != nil) != (problem != "") || o.Err != nil && !strings.Contains(o.Err.Error(), problem) {
		a.t.Errorf("problem %v, want %q", o.Err, problem)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if d := cmp.Diff(calls, a.log); d != "" {
		a.t.Error(d)
	}
}

// one is a worker that evicts one after the other.
var one = EvictionOptions{Lanes: 1}

// TestLanes: of a bundle a sixteenth goes at once, at least eight, and at most half of what may be under way.
func TestLanes(t *testing.T) {
	t.Parallel()
	for victims, want := range map[int]int{3: 3, 16: 8, 80: 8, 160: 10, 1000: 48} {
		t.Run(fmt.Sprint(victims), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				names := make([]string, victims)
				for i := range names {
					names[i] = fmt.Sprintf("v%03d", i)
				}
				a := newArena(t, names...)
				var mu sync.Mutex
				now, most := 0, 0
				a.before = func(string, string, client.Client) {
					mu.Lock()
					now++
					most = max(most, now)
					mu.Unlock()
					time.Sleep(100 * time.Millisecond) // of the bubble's time
					mu.Lock()
					now--
					mu.Unlock()
				}
				if out := a.run(EvictionOptions{}, a.plan(nil, names...)); out.Err != nil || len(out.Evicted) != victims || most != want {
					t.Errorf("%d were evicted, %d at once, want %d: %v", len(out.Evicted), most, want, out.Err)
				}
			})
		})
	}
}

// TestFewBeginABundle: where the first eviction to be answered fails, three have gone beside it, whatever the size of the bundle; and where a later one does, as many as
// went well before, and four.
func TestFewBeginABundle(t *testing.T) {
	t.Parallel()
	for _, victims := range []int{1, 4, 7, 16, 40} {
		for fails := range victims {
			synctest.Test(t, func(t *testing.T) {
				names := make([]string, victims)
				for i := range names {
					names[i] = fmt.Sprintf("v%03d", i)
				}
				a := newArena(t, names...)
				a.before = func(_, pod string, _ client.Client) {
					if pod != names[fails] { // the one that fails is answered first of those that are asked with it
						time.Sleep(time.Second)
					}
				}
				a.answer = func(_, pod string, _ int) error {
					if pod == names[fails] {
						return blocked("a budget")
					}
					return nil
				}
				out := a.run(EvictionOptions{}, a.plan(nil, names...))
				if beside := len(out.Evicted) - fails; out.Err == nil || beside > fails+4 {
					t.Errorf("of %d, %d went when that of %d failed", victims, len(out.Evicted), fails)
				}
			})
		}
	}
}

// TestBundlesInOrder: of many bundles the first is done with first, and each is worked on in its turn.
func TestBundlesInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const bundles, victims = 40, 16
		var names []string
		for i := range bundles * victims {
			names = append(names, fmt.Sprintf("v%03d", i))
		}
		a := newArena(t, names...)
		var mu sync.Mutex
		now, most := 0, 0
		a.before = func(string, string, client.Client) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
		}
		kit, err := write.New(a.client, "scheduler", nil)
		if err != nil {
			t.Fatal(err)
		}
		pool := NewPool(nil)
		e := NewEvictions(pool, kit, a.client, EvictionOptions{})
		var p engine.Plan
		for i := range bundles {
			p.Bundles = append(p.Bundles, a.plan(func(b *engine.Bundle) { b.ID = fmt.Sprint(i) }, names[i*victims:][:victims]...).Bundles...)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- pool.Run(ctx) }()
		began := time.Now()
		e.Submit(p)
		var ids []string
		for len(ids) < bundles {
			<-e.Settled()
			for _, o := range e.Outcomes() {
				if o.Err != nil || len(o.Evicted) != victims {
					t.Errorf("bundle %s: %d evicted: %v", o.Bundle.ID, len(o.Evicted), o.Err)
				}
				ids = append(ids, o.Bundle.ID)
			}
			if len(ids) < bundles/4 && time.Since(began) > 3*time.Second {
				t.Errorf("after %v %d bundles are done with", time.Since(began), len(ids))
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		// Of 96 at once, 640 take seven seconds.
		if took := time.Since(began); most > 96 || took > 12*time.Second {
			t.Errorf("%v, and up to %d at once", took, most)
		}
	})
}

func TestEvictions(t *testing.T) {
	t.Parallel()
	a := newArena(t, "v1", "v2", "v3")
	a.expect(a.run(one, a.plan(nil, "v1", "v2", "v3")), "v1 v2 v3", "", "evict v1", "evict v2", "evict v3")
	a = newArena(t, "v1", "v2", "v3", "v4", "v5", "v6", "v7")
	o := a.run(EvictionOptions{}, a.plan(nil, "v1", "v2", "v3", "v4", "v5", "v6", "v7"))
	if len(o.Evicted) != 7 || o.Err != nil {
		t.Errorf("side by side: %+v", o)
	}
}

// TestDeleteMode: KAI's way, with and without the condition.
func TestDeleteMode(t *testing.T) {
	t.Parallel()
	a := newArena(t, "v1", "v2")
	a.expect(a.run(EvictionOptions{Mode: ByDelete, Lanes: 1}, a.plan(nil, "v1", "v2")), "v1 v2", "", "delete v1", "delete v2")

	a = newArena(t, "v1")
	a.before = func(verb, _ string, c client.Client) {
		if verb != "delete" {
			return
		}
		p := podNamed("v1")
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			t.Error(err)
			return
		}
		if n := len(p.Status.Conditions); n != 1 || p.Status.Conditions[0].Type != v1.DisruptionTarget || p.Status.Conditions[0].Status != v1.ConditionTrue ||
			p.Status.Conditions[0].Reason != v1.PodReasonPreemptionByScheduler || p.Status.Conditions[0].Message != "reclaim for a/taker" {
			t.Errorf("when it was deleted it said %+v", p.Status.Conditions)
		}
	}
	a.expect(a.run(EvictionOptions{Mode: ByDelete, Mark: true, Lanes: 1}, a.plan(nil, "v1")), "v1", "", "mark v1", "delete v1")
}

// TestVictimsThatAreGone are no failure, whoever made them go.
func TestVictimsThatAreGone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(a *arena, p *v1.Pod){
		"gone":  func(a *arena, p *v1.Pod) { _ = a.client.Delete(t.Context(), p) },
		"ended": func(a *arena, p *v1.Pod) { a.change(p, func() { p.Status.Phase = v1.PodSucceeded }) },
		"going": func(a *arena, p *v1.Pod) {
			a.change(p, func() { p.Finalizers = []string{"example.com/slow"} })
			_ = a.client.Delete(t.Context(), p)
		},
		"another of its name": func(a *arena, p *v1.Pod) {
			_ = a.client.Delete(t.Context(), p)
			_ = a.client.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "v1", UID: "later"}, Spec: v1.PodSpec{NodeName: "n1"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "v1", "v2")
			change(a, podNamed("v1"))
			a.expect(a.run(one, a.plan(nil, "v1", "v2")), "v1 v2", "", "evict v2")
		})
	}
	t.Run("in the moment of the call", func(t *testing.T) {
		t.Parallel()
		a := newArena(t, "v1", "v2")
		a.answer = func(_, pod string, _ int) error {
			switch pod {
			case "v1":
				return apierrors.NewNotFound(resource, pod)
			}
			return apierrors.NewConflict(resource, pod, errors.New("the UID in the precondition"))
		}
		a.expect(a.run(one, a.plan(nil, "v1", "v2")), "v1 v2", "")
	})
}

// TestTheRestIsSpared: when what the pods go for does not stand any more after the first has gone, the others stay.
func TestTheRestIsSpared(t *testing.T) {
	t.Parallel()
	node := func(name string) *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	group := func() *v2alpha2.PodGroup {
		return &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "taker"}}
	}
	for name, c := range map[string]struct {
		change func(a *arena)
		want   string
	}{
		"the pod is gone":            {func(a *arena) { _ = a.client.Delete(t.Context(), podNamed("p")) }, "a/p: the pod changed since it was decided on: it is gone"},
		"the pod is another":         {func(a *arena) { p := podNamed("p"); a.change(p, func() { p.UID = "x" }) }, "another pod has its name"},
		"the pod has a node":         {func(a *arena) { p := podNamed("p"); a.change(p, func() { p.Spec.NodeName = "n2" }) }, "it is on node n2"},
		"the gang is gone":           {func(a *arena) { _ = a.client.Delete(t.Context(), group()) }, "gang a/taker"},
		"the gang is another":        {func(a *arena) { g := group(); a.change(g, func() { g.UID = "x" }) }, "gang a/taker"},
		"the gang is of another":     {func(a *arena) { g := group(); a.change(g, func() { g.UID, g.OwnerReferences = "x", ownedBy("other") }) }, "gang a/taker"},
		"the node is gone":           {func(a *arena) { _ = a.client.Delete(t.Context(), node("n1")) }, "node n1"},
		"the node is not ready":      {func(a *arena) { n := node("n1"); a.change(n, func() { n.Status.Conditions = nil }) }, "NotReady"},
		"the other node is cordoned": {func(a *arena) { n := node("n2"); a.change(n, func() { n.Spec.Unschedulable = true }) }, "Unschedulable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "v1", "v2", "v3")
			a.before = func(verb, pod string, _ client.Client) {
				c.change(a)
				<-time.After(2 * freshLook) // what was seen before does not count any more
			}
			o := a.run(one, a.plan(func(b *engine.Bundle) { b.Intents[2].To = "n2" }, "v1", "v2", "v3"))
			a.expect(o, "v1", c.want, "evict v1")
			if !errors.Is(o.Err, ErrMoved) {
				t.Error("it is nobody's fault")
			}
		})
	}
}

// ownedBy is what a PodGroup says that is for the object of that UID.
func ownedBy(uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: uid}}
}

// TestAPodGroupInBetween: a pod that is its gang by itself gets a PodGroup while the room for it is being cleared, for that takes longer than it may wait
// without one. The work is the same, and those that are still to go go.
func TestAPodGroupInBetween(t *testing.T) {
	t.Parallel()
	a := newArena(t, "v1", "v2", "v3")
	a.before = func(string, string, client.Client) {
		g := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "taker"}}
		a.change(g, func() { g.UID, g.OwnerReferences = "x", ownedBy("taker") })
		<-time.After(2 * freshLook) // what was seen before does not count any more
	}
	a.expect(a.run(one, a.plan(nil, "v1", "v2", "v3")), "v1 v2 v3", "", "evict v1", "evict v2", "evict v3")
}

// TestForAPodThatIsItsGang: what a pod that is a gang by itself goes for needs no PodGroup, as long as the pod says that it is that gang.
func TestForAPodThatIsItsGang(t *testing.T) {
	t.Parallel()
	wanted := func(name string, uid types.UID) *v2alpha2.PodGroup {
		return &v2alpha2.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{UID: uid}}}, Spec: v2alpha2.PodGroupSpec{Queue: "q"},
		}
	}
	for name, c := range map[string]struct {
		text func(p *v1.Pod) string
		went string
		want string
	}{
		"it says so":           {func(p *v1.Pod) string { return kai.WriteOwnGang(p, wanted("taker", "taker"), "pool") }, "v1 v2", ""},
		"it is another gang":   {func(p *v1.Pod) string { return kai.WriteOwnGang(p, wanted("other", "taker"), "pool") }, "", "gang a/taker"},
		"the gang was another": {func(p *v1.Pod) string { return kai.WriteOwnGang(p, wanted("taker", "former"), "pool") }, "", "gang a/taker"},
		"another pod said so": {func(p *v1.Pod) string {
			return kai.WriteOwnGang(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "x"}}, wanted("taker", "taker"), "pool")
		}, "", "gang a/taker"},
		"it says nothing": {func(*v1.Pod) string { return "" }, "", "gang a/taker"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "v1", "v2")
			_ = a.client.Delete(t.Context(), &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "taker"}})
			p := podNamed("p")
			a.change(p, func() { p.Annotations = map[string]string{keys.OwnGangAnnotation: c.text(p)} })
			o := a.run(one, a.plan(nil, "v1", "v2"))
			var calls []string
			for v := range strings.FieldsSeq(c.went) {
				calls = append(calls, "evict "+v)
			}
			a.expect(o, c.went, c.want, calls...)
		})
	}
}

// TestForAGangOfVolcanos: what a gang of Volcano's goes for is looked up where that gang is said, not among KAI's.
func TestForAGangOfVolcanos(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		group      *v1beta1.PodGroup
		went, want string
	}{
		"it is there":   {&v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "taker", UID: "taker"}}, "v1 v2", ""},
		"it is another": {&v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "taker", UID: "x"}}, "", "gang a/taker"},
		"it is gone":    {nil, "", "gang a/taker"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "v1", "v2")
			if c.group != nil {
				if err := a.client.Create(t.Context(), c.group); err != nil {
					t.Fatal(err)
				}
			}
			o := a.run(one, a.plan(func(b *engine.Bundle) { b.Gang.Face = volcano.Face }, "v1", "v2"))
			var calls []string
			for v := range strings.FieldsSeq(c.went) {
				calls = append(calls, "evict "+v)
			}
			a.expect(o, c.went, c.want, calls...)
		})
	}
}

func blocked(budget string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: budget})
	return err
}

// TestATornGangGoesWhole: when what the pods go for does not stand any more, a gang that cannot stay without the one that
// has gone does not keep the others, and a gang that has lost nobody keeps all.
func TestATornGangGoesWhole(t *testing.T) {
	t.Parallel()
	a := newArena(t, "v1", "v2", "v3")
	a.before = func(verb, pod string, _ client.Client) {
		_ = a.client.Delete(t.Context(), podNamed("p"))
		<-time.After(2 * freshLook)
	}
	o := a.run(one, a.plan(func(b *engine.Bundle) {
		for i, gang := range []string{"torn", "torn", "whole"} {
			b.Intents[i].Gang, b.Intents[i].BelowMinimum = cluster.Key{Face: "kai", Namespace: "a", Name: gang}, true
		}
	}, "v1", "v2", "v3"))
	a.expect(o, "v1 v2", "it is gone", "evict v1", "evict v2")
}

// TestBudgets: a budget stops what the decision did not mean to violate, and nothing else.
func TestBudgets(t *testing.T) {
	t.Parallel()
	refuse := func(verb, pod string, _ int) error {
		if verb == "evict" && pod == "v2" {
			return blocked("b")
		}
		return nil
	}
	a := newArena(t, "v1", "v2", "v3")
	a.answer = refuse
	o := a.run(one, a.plan(nil, "v1", "v2", "v3"))
	a.expect(o, "v1", "a/v2: a PodDisruptionBudget allows no eviction now", "evict v1")
	if !errors.Is(o.Err, ErrBlocked) {
		t.Error(o.Err)
	}

	a = newArena(t, "v1", "v2", "v3")
	a.answer = refuse
	o = a.run(one, a.plan(func(b *engine.Bundle) { b.Intents[1].Budget = "a/b" }, "v1", "v2", "v3"))
	a.expect(o, "v1 v2 v3", "", "evict v1", "mark v2", "delete v2", "evict v3")

	a = newArena(t, "v1")
	a.answer = func(verb, _ string, _ int) error {
		if verb != "evict" {
			return nil
		}
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}}
	}
	a.expect(a.run(one, a.plan(nil, "v1")), "v1", "", "mark v1", "delete v1")
}

// TestEvictionsAreTriedAgain: what may pass does not stop a bundle; what does not pass does.
func TestEvictionsAreTriedAgain(t *testing.T) {
	t.Parallel()
	a := newArena(t, "v1", "v2")
	a.answer = func(_, pod string, nth int) error {
		if pod == "v1" && nth <= 2 {
			return apierrors.NewTooManyRequests("later", 0) // flow control
		}
		return nil
	}
	a.expect(a.run(one, a.plan(nil, "v1", "v2")), "v1 v2", "", "evict v1", "evict v2")

	a = newArena(t, "v1", "v2")
	a.answer = func(_, pod string, _ int) error { return apierrors.NewForbidden(resource, pod, errors.New("no")) }
	a.expect(a.run(one, a.plan(nil, "v1", "v2")), "", "evict Pod a/v1: ")
}

// TestRoomWillNotDo: when, by what is known by now, the promised room will not be enough, the rest is spared.
func TestRoomWillNotDo(t *testing.T) {
	t.Parallel()
	gpus := func(n int64) []cluster.Quantity {
		return []cluster.Quantity{{Name: "gpu", Value: n * 1000}, {Name: "pods", Value: 10}}
	}
	for name, c := range map[string]struct {
		event cluster.Event
		want  string
	}{
		"nothing new":         {nil, ""},
		"it is on its way":    {cluster.PodGone{UID: "v1"}, ""},
		"a stranger":          {cluster.PodState{UID: "s", Namespace: "a", Name: "s", Phase: cluster.Running, NodeName: "n1", Requests: gpus(1)[:1]}, "1 gpu are missing"},
		"a GPU has failed":    {cluster.NodeState{Name: "n1", UID: "n1", Allocatable: gpus(1)}, "1 gpu are missing"},
		"the node is drained": {cluster.NodeState{Name: "n1", UID: "n1", Allocatable: gpus(2), Problem: "Unschedulable"}, "Unschedulable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := cluster.NewStore(cluster.Options{})
			taker := kai.GangKey("a", "taker")
			s.Apply(cluster.NodeState{Name: "n1", UID: "n1", Allocatable: gpus(2)}, cluster.GangState{Key: taker, UID: "taker"},
				cluster.PodState{UID: "p", Namespace: "a", Name: "p", Gang: taker, Ours: true, Requests: gpus(2)})
			for _, v := range []string{"v1", "v2"} {
				s.Apply(cluster.PodState{UID: v, Namespace: "a", Name: v, Phase: cluster.Running, NodeName: "n1", Ours: true, Requests: gpus(1)})
			}
			decided := s.Snapshot(cluster.UnixNano(1)).Generation
			hold := cluster.Hold{HoldState: cluster.HoldState{Gang: taker, Pod: "p", Node: "n1", Until: cluster.Forever, Bundle: "b"}}
			hold.Requests.Set(cluster.GPU, 2000)
			s.Hold(hold)
			s.AssumeEvicted("v1", taker, cluster.Forever)
			s.AssumeEvicted("v2", taker, cluster.Forever)
			if c.event != nil {
				s.Apply(c.event)
			}
			snap := s.Snapshot(cluster.UnixNano(2))
			a := newArena(t, "v1", "v2")
			p := a.plan(nil, "v1", "v2")
			p.Generation = decided
			out := a.run(EvictionOptions{Workers: 1, Lanes: 1, Latest: func() *cluster.Snapshot { return snap }}, p)
			if c.want == "" {
				a.expect(out, "v1 v2", "", "evict v1", "evict v2")
				return
			}
			a.expect(out, "", c.want)
			if !errors.Is(out.Err, ErrNoRoom) {
				t.Error(out.Err)
			}
		})
	}
}

// TestCountsOn: what counts on an earlier decision waits until that is settled, and comes to nothing with it.
func TestCountsOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		blocked bool
		want    []string
	}{
		"carried out": {false, []string{"evict v1", "evict v2"}},
		"spared":      {true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := newArena(t, "v1", "v2")
				first := make(chan struct{})
				a.before = func(_, pod string, _ client.Client) {
					if pod == "v1" {
						<-first
					}
				}
				a.answer = func(_, pod string, _ int) error {
					if pod == "v1" && c.blocked {
						return blocked("a budget")
					}
					return nil
				}
				kit, err := write.New(a.client, "scheduler", nil)
				if err != nil {
					t.Fatal(err)
				}
				fates := &Fates{}
				pool := NewPool(nil)
				e := NewEvictions(pool, kit, a.client, EvictionOptions{Workers: 2, Fates: fates})
				p := a.plan(nil, "v1")
				p.Bundles = append(p.Bundles, a.plan(func(b *engine.Bundle) { b.ID, b.DependsOn = "later", []string{"b", "long settled"} }, "v2").Bundles...)
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- pool.Run(ctx) }()
				e.Submit(p)
				synctest.Wait()
				if d := cmp.Diff([]string{"evict v1"}, a.log); d != "" && !c.blocked {
					t.Errorf("before the first is settled: %s", d)
				}
				close(first)
				var out []Outcome
				for len(out) < 2 {
					<-e.Settled()
					out = append(out, e.Outcomes()...)
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
				if out[0].Bundle.ID != "b" || (out[0].Err != nil) != c.blocked || errors.Is(out[1].Err, ErrUndone) != c.blocked || out[1].Evicted["v2"] == c.blocked {
					t.Errorf("%+v", out)
				}
				if d := cmp.Diff(c.want, a.log); d != "" {
					t.Error(d)
				}
				if err := fates.check([]string{"later"}); errors.Is(err, ErrUndone) != c.blocked {
					t.Errorf("what counts on the later one: %v", err)
				}
			})
		})
	}
}

// TestRepair has no beneficiary, but a gang that is still there.
func TestRepair(t *testing.T) {
	t.Parallel()
	repair := func(b *engine.Bundle) {
		b.Gang, b.UID, b.Eviction.Cause = kai.GangKey("a", "giver"), "giver", engine.Repair
		b.Intents = b.Intents[:2]
	}
	a := newArena(t, "v1", "v2")
	a.expect(a.run(one, a.plan(repair, "v1", "v2")), "v1 v2", "", "evict v1", "evict v2")
}

// TestEvictionsAreFull: when as many bundles are queued as may be, and more are taken all the same.
func TestEvictionsAreFull(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	e := NewEvictions(NewPool(nil), nil, a.client, EvictionOptions{Workers: 1})
	for n := range backlog + 10 {
		if full := n >= backlog; e.Full() != full {
			t.Fatalf("%d are queued: full %v", n, !full)
		}
		e.Submit(a.plan(nil, fmt.Sprint("v", n)))
	}
	if n := e.Open(); n != backlog+10 {
		t.Errorf("%d are queued", n)
	}
}

// TestEvictionGrace: a pod that is evicted goes on for as long as it says itself, within the bound.
func TestEvictionGrace(t *testing.T) {
	t.Parallel()
	const hour, year = int64(3600), int64(365 * 24 * 3600)
	for name, c := range map[string]struct {
		own, want *int64
		bound     time.Duration
		mode      Mode
	}{
		"a year":              {ptr.To(year), ptr.To(hour), time.Hour, ByEviction},
		"a year, deleted":     {ptr.To(year), ptr.To(hour), time.Hour, ByDelete},
		"its own":             {ptr.To[int64](600), nil, time.Hour, ByEviction},
		"as much as may be":   {ptr.To(hour), nil, time.Hour, ByDelete},
		"nothing said":        {nil, nil, time.Hour, ByEviction},
		"no bound":            {ptr.To(year), nil, 0, ByEviction},
		"less than a second":  {ptr.To(year), nil, time.Millisecond, ByDelete},
		"a bound of a second": {ptr.To(year), ptr.To[int64](1), 1500 * time.Millisecond, ByDelete},
	} {
		a := newArena(t, "v1")
		victim := podNamed("v1")
		a.change(victim, func() { victim.Spec.TerminationGracePeriodSeconds = c.own })
		var got *int64
		watched := interceptor.NewClient(a.client, interceptor.Funcs{
			SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, body client.Object, o ...client.SubResourceCreateOption) error {
				got = body.(*policyv1.Eviction).DeleteOptions.GracePeriodSeconds
				return c.SubResource(sub).Create(ctx, obj, body, o...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.DeleteOption) error {
				if d := (&client.DeleteOptions{}).ApplyOptions(o); d.Preconditions != nil { // else it is the arena's own
					got = d.GracePeriodSeconds
				}
				return c.Delete(ctx, obj, o...)
			},
		})
		a.client = watched
		out := a.run(EvictionOptions{Mode: c.mode, MaxGrace: c.bound}, a.plan(nil, "v1"))
		if !out.Evicted["v1"] || out.Err != nil {
			t.Errorf("%s: %+v", name, out)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

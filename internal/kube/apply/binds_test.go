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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-scheduler/muster/api/kubebatch"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
)

// server is an API server in memory that gives UIDs, honours preconditions, and fails when it is told to.
type server struct {
	t      *testing.T
	client client.WithWatch
	calls  atomic.Int64

	mu   sync.Mutex
	log  []string                                     // "create a/p", "delete a/p", "patch a/p", in order
	fail func(call string, n int) error               // of the n-th such call, before it takes effect
	lose func(call string, n int) error               // of the n-th such call, after it took effect
	seen map[string]int                               // calls so far
	hold func(ctx context.Context, call string) error // before anything else
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha2.AddToScheme, v2alpha2.AddToScheme, v1beta1.AddToScheme, kubebatch.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func newServer(t *testing.T, objects ...client.Object) *server {
	t.Helper()
	s := &server{t: t, seen: map[string]int{}}
	serial := atomic.Int64{}
	around := func(ctx context.Context, verb string, obj client.Object, do func() error) error {
		s.calls.Add(1)
		call := verb + " " + obj.GetNamespace() + "/" + obj.GetName()
		if s.hold != nil {
			if err := s.hold(ctx, call); err != nil {
				return err
			}
		}
		s.mu.Lock()
		s.seen[call]++
		n := s.seen[call]
		var err error
		if s.fail != nil {
			err = s.fail(call, n)
		}
		if err == nil {
			s.log = append(s.log, call)
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
		if s.lose != nil {
			return s.lose(call, n)
		}
		return nil
	}
	s.client = fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).WithStatusSubresource(&v2alpha2.PodGroup{}, &v1.Pod{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
				return around(ctx, "create", obj, func() error {
					obj.SetUID(types.UID(fmt.Sprintf("uid-%d", serial.Add(1))))
					return c.Create(ctx, obj, o...)
				})
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.DeleteOption) error {
				return around(ctx, "delete", obj, func() error {
					opts := (&client.DeleteOptions{}).ApplyOptions(o)
					if opts.Preconditions == nil || opts.Preconditions.UID == nil {
						t.Errorf("delete %s without the UID", obj.GetName())
						return nil
					}
					have := &v1alpha2.BindRequest{}
					if err := c.Get(ctx, client.ObjectKeyFromObject(obj), have); err != nil {
						return err
					}
					if have.UID != *opts.Preconditions.UID {
						return apierrors.NewConflict(resource, obj.GetName(), errors.New("UID"))
					}
					return c.Delete(ctx, have)
				})
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
				return around(ctx, "patch", obj, func() error { return c.SubResource(sub).Patch(ctx, obj, p, o...) })
			},
		}).Build()
	return s
}

var resource = schema.GroupResource{Group: "scheduling.run.ai", Resource: "bindrequests"}

// story is what happened to the API server, in the order of names: writes of one bundle run side by side.
func (s *server) story() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.log)
	s.log = nil
	return out
}

func (s *server) requests() map[string]string {
	var list v1alpha2.BindRequestList
	if err := s.client.List(s.t.Context(), &list); err != nil {
		s.t.Fatal(err)
	}
	out := map[string]string{}
	for i := range list.Items {
		br := &list.Items[i]
		out[br.Name] = string(kai.PodUID(br)) + "→" + br.Spec.SelectedNode + " " + br.Labels[kai.BundleLabel] + "/" + br.Labels[kai.BundleSizeLabel]
	}
	return out
}

func aPod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("u-" + name)}}
}

func bundle(id string, pods ...string) engine.Bundle {
	b := engine.Bundle{ID: id, Gang: kai.GangKey("a", "g"), UID: "g"}
	for _, p := range pods {
		b.Intents = append(b.Intents, engine.Intent{Verb: engine.Bind, Namespace: "a", Pod: p, UID: "u-" + p, Node: "n1", GPU: 1000})
	}
	return b
}

func existing(pod, uid, bundle string, failed bool) *v1alpha2.BindRequest {
	in := kai.Intent{Namespace: "a", Pod: pod, PodUID: types.UID(uid), Node: "n9", Bundle: bundle, Size: 1}
	br := in.BindRequest()
	br.UID = "old"
	if failed {
		br.Status.Phase = v1alpha2.BindRequestFailed
	}
	return br
}

// carry runs Binds over one plan in fake time and returns the failures.
func carry(t *testing.T, s *server, p engine.Plan, latest ...*cluster.Snapshot) (failures []Failure, took time.Duration) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o := BindOptions{Workers: 4, Partition: kai.Partition{Key: "pool", Value: "gold"}}
	if len(latest) > 0 {
		o.Latest = func() *cluster.Snapshot { return latest[0] }
	}
	pool := NewPool(nil)
	b := NewBinds(pool, s.client, s.client, o)
	done := make(chan error, 1)
	go func() { done <- pool.Run(ctx) }()
	start := time.Now()
	b.Submit(p)
	select {
	case <-b.Failed():
		took = time.Since(start)
		synctest.Wait()
		failures = b.Failures()
	case <-time.After(time.Minute):
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if again := b.Failures(); len(again) > 0 {
		t.Errorf("reported twice: %v", again)
	}
	return failures, took
}

func TestBundleIsWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, aPod("p"), aPod("q"), aPod("r"))
		b := bundle("b1", "p", "q")
		b.Intents = append(b.Intents, engine.Intent{Verb: engine.Nominate, Namespace: "a", Pod: "r", UID: "u-r", Node: "n1"})
		if failures, _ := carry(t, s, engine.Plan{Bundles: []engine.Bundle{b}}); len(failures) > 0 {
			t.Error(failures)
		}
		if d := cmp.Diff(map[string]string{"p": "u-p→n1 b1/2", "q": "u-q→n1 b1/2"}, s.requests()); d != "" {
			t.Error(d)
		}
		var br v1alpha2.BindRequest
		if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "p"}, &br); err != nil || br.Labels["pool"] != "gold" || br.Spec.ReceivedGPU.Count != 1 {
			t.Errorf("%+v, %v", br, err)
		}
	})
}

// TestBindRequestInTheWay: what has the name of a BindRequest that is to be made.
func TestBindRequestInTheWay(t *testing.T) {
	t.Parallel()
	live := existing("p", "u-p", "b1", false)
	live.Spec.SelectedNode = "n1"
	for name, tc := range map[string]struct {
		there *v1alpha2.BindRequest
		want  string
		moved bool
	}{
		"the very same":             {live, "u-p→n1 b1/1", false},
		"an earlier pod's":          {existing("p", "u-before", "b0", false), "u-p→n1 b1/1", false},
		"a failed one":              {existing("p", "u-p", "b0", true), "u-p→n1 b1/1", false},
		"a live one of another day": {existing("p", "u-p", "b0", false), "u-p→n9 b0/1", true},
		"the same to another node":  {existing("p", "u-p", "b1", false), "u-p→n9 b1/1", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, aPod("p"), tc.there.DeepCopy())
				failures, _ := carry(t, s, engine.Plan{Bundles: []engine.Bundle{bundle("b1", "p")}})
				if tc.moved != (len(failures) == 1 && errors.Is(failures[0].Err, ErrMoved)) || !tc.moved && len(failures) > 0 {
					t.Errorf("failures %v", failures)
				}
				if d := cmp.Diff(map[string]string{"p": tc.want}, s.requests()); d != "" {
					t.Error(d)
				}
			})
		})
	}
}

func TestPodMovedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1.Pod){
		"gone":        nil,
		"another pod": func(p *v1.Pod) { p.UID = "other" },
		"on a node":   func(p *v1.Pod) { p.Spec.NodeName = "n7" },
		"being deleted": func(p *v1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"x/y"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				objects := []client.Object{aPod("q")}
				if change != nil {
					p := aPod("p")
					change(p)
					objects = append(objects, p)
				}
				s := newServer(t, objects...)
				failures, _ := carry(t, s, engine.Plan{Bundles: []engine.Bundle{bundle("b1", "q", "p")}})
				if len(failures) != 1 || failures[0].Bundle.ID != "b1" || !errors.Is(failures[0].Err, ErrMoved) {
					t.Errorf("failures %v", failures)
				}
				if left := s.requests(); len(left) > 0 {
					t.Errorf("left over: %v", left)
				}
			})
		})
	}
}

// decided is a Store with a node of two GPUs, on which p and q were decided to go, and the generation of what that was decided on.
func decided() (s *cluster.Store, generation uint64) {
	s = cluster.NewStore(cluster.Options{})
	s.Apply(cluster.NodeState{Name: "n1", UID: "n1", Allocatable: []cluster.Quantity{{Name: "gpu", Value: 2000}, {Name: "cpu", Value: 1000}, {Name: "pods", Value: 10}}})
	for _, p := range []string{"p", "q"} {
		s.Apply(cluster.PodState{UID: "u-" + p, Namespace: "a", Name: p, Ours: true, Requests: []cluster.Quantity{{Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}}})
	}
	generation = s.Snapshot(cluster.UnixNano(1)).Generation
	s.Assume("u-p", "n1", nil, cluster.Forever)
	s.Assume("u-q", "n1", nil, cluster.Forever)
	return s, generation
}

// stranger is a pod of another scheduler.
func stranger(of string, amount int64) cluster.PodState {
	return cluster.PodState{UID: "u-s", Namespace: "a", Name: "s", Phase: cluster.Running, NodeName: "n1", Requests: []cluster.Quantity{{Name: of, Value: amount}}}
}

// TestRoomIsGone: what was decided is not written when, by what is known at the moment of the write, its room has gone; then none of
// the bundle is.
func TestRoomIsGone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event cluster.Event
		want  string
	}{
		"nothing new":            {nil, ""},
		"room for more":          {cluster.NodeState{Name: "n2", UID: "n2"}, ""},
		"of another kind":        {stranger("cpu", 4000), ""},
		"taken by a stranger":    {stranger("gpu", 1000), "node n1: the room is not there any more: 1 gpu are missing"},
		"a GPU has failed":       {cluster.NodeState{Name: "n1", UID: "n1", Allocatable: []cluster.Quantity{{Name: "gpu", Value: 1000}, {Name: "pods", Value: 10}}}, "missing"},
		"the node is gone":       {cluster.NodeGone{Name: "n1"}, "the node is gone"},
		"the node takes no pods": {cluster.NodeState{Name: "n1", UID: "n1", Problem: "NotReady", Allocatable: []cluster.Quantity{{Name: "gpu", Value: 2000}, {Name: "pods", Value: 10}}}, "NotReady"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, generation := decided()
				if c.event != nil {
					store.Apply(c.event)
				}
				s := newServer(t, aPod("p"), aPod("q"))
				b := bundle("b1", "p", "q")
				for i := range b.Intents {
					b.Intents[i].Requests.Set(cluster.GPU, 1000)
				}
				failures, _ := carry(t, s, engine.Plan{Bundles: []engine.Bundle{b}, Generation: generation}, store.Snapshot(cluster.UnixNano(2)))
				if c.want == "" {
					if len(failures) > 0 || len(s.requests()) != 2 {
						t.Errorf("failures %v, requests %v", failures, s.requests())
					}
					return
				}
				if len(failures) != 1 || !errors.Is(failures[0].Err, ErrNoRoom) || !strings.Contains(failures[0].Err.Error(), c.want) {
					t.Errorf("failures %v", failures)
				}
				if left := s.requests(); len(left) > 0 {
					t.Errorf("left over: %v", left)
				}
			})
		})
	}
}

// TestBindCountsOn: binds that count on a decision that came to nothing are not written.
func TestBindCountsOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, aPod("q"), aPod("r"))
		first, second := bundle("b1", "gone"), bundle("b2", "q", "r")
		second.DependsOn = []string{"b1"}
		ctx, stop := context.WithCancel(t.Context())
		pool := NewPool(nil)
		b := NewBinds(pool, s.client, s.client, BindOptions{Workers: 1})
		done := make(chan error, 1)
		go func() { done <- pool.Run(ctx) }()
		b.Submit(engine.Plan{Bundles: []engine.Bundle{first, second}})
		synctest.Wait()
		failures := b.Failures()
		if len(failures) != 2 || !errors.Is(failures[0].Err, ErrMoved) || !errors.Is(failures[1].Err, ErrUndone) || len(s.requests()) > 0 {
			t.Errorf("failures %v, requests %v", failures, s.requests())
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestSharedDeviceIsFull: others hold so much of a shared device that the decision does not fit any more.
func TestSharedDeviceIsFull(t *testing.T) {
	t.Parallel()
	s := cluster.NewStore(cluster.Options{})
	half := cluster.Share{Devices: 1, Portion: cluster.WholePortion / 2}
	s.Apply(cluster.NodeState{Name: "n1", UID: "n1", Allocatable: []cluster.Quantity{{Name: "gpu", Value: 1000}, {Name: "pods", Value: 10}}},
		cluster.PodState{UID: "u-p", Namespace: "a", Name: "p", Ours: true, Spec: &cluster.ClassSpec{Share: half}})
	decided := s.Snapshot(cluster.UnixNano(1)).Generation
	s.Assume("u-p", "n1", []string{"g"}, cluster.Forever)
	in := &engine.Intent{Verb: engine.Bind, UID: "u-p", Node: "n1", Groups: []string{"g"}, Share: half}
	check := func() error {
		snap := s.Snapshot(cluster.UnixNano(2))
		return Latest(func() *cluster.Snapshot { return snap }).checkBind(decided, in)
	}
	for i := range 2 {
		if err := check(); (err != nil) != (i == 1) || err != nil && !errors.Is(err, ErrNoRoom) {
			t.Errorf("beside %d others: %v", i, err)
		}
		for k := range 2 {
			uid := fmt.Sprint("other", i, k)
			s.Apply(cluster.PodState{UID: uid, Namespace: "a", Name: uid, Phase: cluster.Running, NodeName: "n1", Groups: []string{"g"}, Ours: true, Spec: &cluster.ClassSpec{Share: half}})
		}
	}
}

// TestFailuresOfTheAPIServer: what may pass is tried again for about six seconds, what will not fails at once, and a bundle
// that fails is withdrawn whole and reported once.
func TestFailuresOfTheAPIServer(t *testing.T) {
	t.Parallel()
	busy := apierrors.NewTooManyRequests("busy", 1)
	for name, tc := range map[string]struct {
		answer  error
		times   int
		fails   bool
		between [2]time.Duration
	}{
		"busy twice":         {busy, 2, false, [2]time.Duration{}},
		"busy for long":      {busy, 99, true, [2]time.Duration{6 * time.Second, 7 * time.Second}},
		"not reached":        {errors.New("connection refused"), 3, false, [2]time.Duration{}},
		"an internal error":  {apierrors.NewInternalError(errors.New("etcd")), 3, false, [2]time.Duration{}},
		"forbidden":          {apierrors.NewForbidden(resource, "p", errors.New("no")), 99, true, [2]time.Duration{0, 0}},
		"refused by a rule":  {apierrors.NewInvalid(schema.GroupKind{Kind: "BindRequest"}, "p", nil), 99, true, [2]time.Duration{0, 0}},
		"namespace is going": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "a"), 99, true, [2]time.Duration{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, aPod("p"), aPod("q"), aPod("r"))
				s.fail = func(call string, n int) error {
					if call == "create a/q" && n <= tc.times {
						return tc.answer
					}
					return nil
				}
				failures, took := carry(t, s, engine.Plan{Bundles: []engine.Bundle{bundle("b1", "p", "q", "r")}})
				if !tc.fails {
					if len(failures) > 0 || len(s.requests()) != 3 {
						t.Errorf("failures %v, left %v", failures, s.requests())
					}
					return
				}
				if len(failures) != 1 || len(failures[0].Bundle.Intents) != 3 || !errors.Is(failures[0].Err, tc.answer) || !strings.Contains(failures[0].Err.Error(), "a/q") {
					t.Errorf("failures %v", failures)
				}
				if took < tc.between[0] || took > tc.between[1] {
					t.Errorf("it took %v", took)
				}
				if left := s.requests(); len(left) > 0 {
					t.Errorf("left over: %v", left)
				}
			})
		})
	}
}

// TestLostAnswers: the API server does what it was asked to, and its answer is lost.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection reset")
	t.Run("once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, aPod("p"))
			s.lose = func(call string, n int) error {
				if call == "create a/p" && n == 1 {
					return lost
				}
				return nil
			}
			if failures, _ := carry(t, s, engine.Plan{Bundles: []engine.Bundle{bundle("b1", "p")}}); len(failures) > 0 || len(s.requests()) != 1 {
				t.Errorf("failures %v, requests %v", failures, s.requests())
			}
		})
	})
	t.Run("and the bundle fails", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, aPod("p"), aPod("q"))
			s.lose = func(call string, _ int) error {
				if call == "create a/p" {
					return lost
				}
				return nil
			}
			s.fail = func(call string, n int) error {
				if call == "create a/p" && n > 1 {
					return lost
				}
				if call == "create a/q" && n > 0 {
					return apierrors.NewForbidden(resource, "q", errors.New("no"))
				}
				return nil
			}
			if failures, _ := carry(t, s, engine.Plan{Bundles: []engine.Bundle{bundle("b1", "p", "q")}}); len(failures) != 1 || len(s.requests()) != 0 {
				t.Errorf("failures %v, left over %v", failures, s.requests())
			}
		})
	})
}

// TestStopInTheMiddle: the end of the context ends Run soon, with no bundle reported as failed.
func TestStopInTheMiddle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, aPod("p"))
		s.hold = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
		ctx, stop := context.WithCancel(t.Context())
		pool := NewPool(nil)
		b := NewBinds(pool, s.client, s.client, BindOptions{Workers: 2})
		ended := make(chan error, 1)
		go func() { ended <- pool.Run(ctx) }()
		var p engine.Plan
		for i := range 100 {
			p.Bundles = append(p.Bundles, bundle(fmt.Sprint(i), "p"))
		}
		b.Submit(p)
		synctest.Wait()
		if n := s.calls.Load(); n != 2 {
			t.Errorf("%d requests in flight, want 2", n)
		}
		if b.Remove("a", "x", "u") {
			t.Error("a delete was queued although the queue is full")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if f := b.Failures(); len(f) > 0 {
			t.Errorf("failures after the end: %v", f)
		}
	})
}

// TestSubmitNeverWaits: a plan of any size is queued at once, while nothing is written; it is told that too much is queued, and when
// that is over.
func TestSubmitNeverWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pods, bound = 100, 8
		var p engine.Plan
		var objects []client.Object
		for i := range pods {
			name := fmt.Sprint("p", i)
			p.Bundles, objects = append(p.Bundles, bundle(fmt.Sprint(i), name)), append(objects, aPod(name))
		}
		s := newServer(t, objects...)
		pool := NewPool(nil)
		b := NewBinds(pool, s.client, s.client, BindOptions{Workers: bound / 4})
		if b.Full() {
			t.Error("it is full of nothing")
		}
		b.Submit(p)
		if !b.Full() {
			t.Errorf("%d are queued, and it is not full", pods)
		}
		let := make(chan struct{})
		s.hold = func(ctx context.Context, call string) error {
			select {
			case <-let:
			case <-ctx.Done():
			}
			return nil
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- pool.Run(ctx) }()
		for range pods - bound - bound/4 { // as many are in flight as there are workers
			let <- struct{}{}
		}
		synctest.Wait()
		select {
		case <-b.Room():
			t.Error("there is room too early")
		default:
		}
		let <- struct{}{}
		<-b.Room()
		if b.Full() {
			t.Error("it is full, and there is room")
		}
		close(let)
		synctest.Wait()
		if n := len(s.requests()); n != pods {
			t.Errorf("%d of %d are written", n, pods)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestRemove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, existing("p", "u-p", "b", true), existing("q", "u-q", "b", true))
		ctx, stop := context.WithCancel(t.Context())
		pool := NewPool(nil)
		b := NewBinds(pool, s.client, s.client, BindOptions{})
		done := make(chan error, 1)
		go func() { done <- pool.Run(ctx) }()
		for name, uid := range map[string]types.UID{"p": "old", "q": "older", "gone": "old"} {
			if !b.Remove("a", name, uid) {
				t.Error("not queued")
			}
		}
		synctest.Wait()
		if d := cmp.Diff(map[string]string{"q": "u-q→n9 b/1"}, s.requests()); d != "" {
			t.Error(d)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestManyBundles: many at once, some of which fail; each is there whole or not at all, and told once.
func TestManyBundles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p engine.Plan
		var objects []client.Object
		for i := range 60 {
			var names []string
			for j := range 1 + i%7 {
				names = append(names, fmt.Sprintf("p%d-%d", i, j))
				objects = append(objects, aPod(names[j]))
			}
			p.Bundles = append(p.Bundles, bundle(fmt.Sprintf("b%d", i), names...))
		}
		s := newServer(t, objects...)
		s.fail = func(call string, n int) error {
			switch {
			case strings.HasPrefix(call, "create") && strings.HasSuffix(call, "3-2"): // of every bundle …3 that has a third pod
				return apierrors.NewForbidden(resource, "p", errors.New("no"))
			case strings.HasPrefix(call, "create") && n == 1 && strings.HasSuffix(call, "-1"):
				return apierrors.NewServerTimeout(resource, "create", 1)
			}
			return nil
		}
		ctx, stop := context.WithCancel(t.Context())
		var written atomic.Int64
		pool := NewPool(nil)
		b := NewBinds(pool, s.client, s.client, BindOptions{Workers: 8, Written: func(time.Duration) { written.Add(1) }, Complete: func(b *engine.Bundle, asked bool) {
			if !asked {
				t.Errorf("%s: the binder is said not to have been asked", b.ID)
			}
		}})
		done := make(chan error, 1)
		go func() { done <- pool.Run(ctx) }()
		b.Submit(p)
		<-time.After(time.Minute)
		synctest.Wait()
		failed := map[string]int{}
		for _, f := range b.Failures() {
			failed[f.Bundle.ID]++
		}
		left := map[string]int{}
		var list v1alpha2.BindRequestList
		if err := s.client.List(ctx, &list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			left[list.Items[i].Labels[kai.BundleLabel]]++
		}
		fails := 0
		for i := range p.Bundles {
			b := &p.Bundles[i]
			want, told := len(b.Intents), 0
			if strings.HasSuffix(b.ID, "3") && len(b.Intents) > 2 {
				want, told = 0, 1
				fails++
			}
			if left[b.ID] != want || failed[b.ID] != told {
				t.Errorf("bundle %s of %d: %d there, told %d times", b.ID, len(b.Intents), left[b.ID], failed[b.ID])
			}
		}
		if fails == 0 || written.Load() < int64(len(list.Items)) {
			t.Errorf("%d bundles failed, %d writes counted, %d requests", fails, written.Load(), len(list.Items))
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

package podgrouper

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// world is an API server in memory that counts what the role does to it.
type world struct {
	t      *testing.T
	client client.WithWatch
	cache  *testCache
	clock  *testclock.FakeClock
	role   *Controller

	mu     sync.Mutex
	writes []string
	reads  int
	events []string
	// fail, if set, decides on the error of a call: verb and object, such as "create PodGroup team/x".
	fail func(call string) error
	// wrote gets each write, if it is not nil.
	wrote chan string
}

// testCache is a cache that is always in sync, except for objects that stale hides.
type testCache struct {
	*informertest.FakeInformers
	reader client.Reader
	stale  func(client.Object) bool
	// handlers counts the handlers on pods and PodGroups.
	handlers atomic.Int32

	mu        sync.Mutex
	unwatched bool
	metadata  map[schema.GroupVersionKind]*controllertest.FakeInformer
}

func (c *testCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if c.stale != nil && c.stale(obj) {
		return notFound(obj, key)
	}
	return c.reader.Get(ctx, key, obj, opts...)
}

func (c *testCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.reader.List(ctx, list, opts...)
}

// listening says whether somebody listens to pods and PodGroups.
func (c *testCache) listening() bool { return c.handlers.Load() == 2 }

// counted counts the handlers that are added to an informer.
type counted struct {
	*controllertest.FakeInformer
	handlers *atomic.Int32
}

func (c counted) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	r, err := c.FakeInformer.AddEventHandlerWithOptions(h, o)
	c.handlers.Add(1)
	return r, err
}

func (c *testCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		informer, err := c.FakeInformers.FakeInformerFor(ctx, obj)
		return counted{informer, &c.handlers}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unwatched {
		return nil, fmt.Errorf("no watch of %s", m.GroupVersionKind())
	}
	if c.metadata[m.GroupVersionKind()] == nil {
		c.metadata[m.GroupVersionKind()] = controllertest.NewFakeInformer(controllertest.Synced)
	}
	return c.metadata[m.GroupVersionKind()], nil
}

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v2alpha2.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"PyTorchJob"} {
		gvk := schema.GroupVersionKind{Group: "kubeflow.org", Version: "v1", Kind: kind}
		s.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
	}
	for _, gvk := range []schema.GroupVersionKind{
		{Group: "example.org", Version: "v1", Kind: "Fleet"},
		{Group: "run.ai", Version: "v1alpha1", Kind: "Karta"},
		{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"},
		{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"},
		{Group: "grove.io", Version: "v1alpha1", Kind: "PodCliqueSet"},
		{Group: "scheduler.grove.io", Version: "v1alpha1", Kind: "PodGang"},
	} {
		s.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
		s.AddKnownTypeWithName(gvk.GroupVersion().WithKind(gvk.Kind+"List"), &unstructured.UnstructuredList{})
	}
	return s
}

func newWorld(t *testing.T, change func(*Options), objects ...client.Object) *world {
	t.Helper()
	w := &world{t: t, clock: testclock.NewFakeClock(time.Unix(1_700_000_000, 0))}
	for _, class := range []string{"train", "build", "inference"} {
		objects = append(objects, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: class}})
	}
	s := scheme(t)
	o := DefaultOptions()
	if change != nil {
		change(&o)
	}
	plain := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, OwnerIndex, firstOwner(o.SchedulerNames)).Build()
	w.client = plain
	call := func(verb string, obj client.Object) error {
		kind := obj.GetObjectKind().GroupVersionKind().Kind
		if kind == "" {
			kind = strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v2alpha2.")
		}
		text := fmt.Sprintf("%s %s %s/%s", verb, kind, obj.GetNamespace(), obj.GetName())
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.fail != nil {
			if err := w.fail(text); err != nil {
				return err
			}
		}
		if verb == "get" {
			w.reads++
			return nil
		}
		w.writes = append(w.writes, text)
		if w.wrote != nil {
			w.wrote <- text
		}
		return nil
	}
	counting := interceptor.NewClient(plain, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if obj.GetObjectKind().GroupVersionKind().Kind == "Namespace" {
				key.Namespace = "" // as a real client leaves it out where a kind has none
			}
			named := obj.DeepCopyObject().(client.Object)
			named.SetNamespace(key.Namespace)
			named.SetName(key.Name)
			if err := call("get", named); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := call("create", obj); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := call("patch", obj); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	w.cache = &testCache{
		FakeInformers: &informertest.FakeInformers{Scheme: s}, reader: plain,
		metadata: map[schema.GroupVersionKind]*controllertest.FakeInformer{},
	}
	role, err := New(Deps{
		Cache: w.cache, Client: counting, Reader: counting, Clock: w.clock,
		Event: func(obj client.Object, eventType, reason, message string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, fmt.Sprintf("%s %s %s: %s", eventType, reason, obj.GetName(), message))
		},
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	w.role = role
	return w
}

// take returns the writes since the last call.
func (w *world) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.writes
	w.writes = nil
	return out
}

func (w *world) reconcile(pod string) (reconcile.Result, error) {
	return w.role.grouper.reconcile(w.t.Context(), request(pod))
}

func (w *world) mustReconcile(pods ...string) {
	w.t.Helper()
	for _, p := range pods {
		if _, err := w.reconcile(p); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	out := &corev1.Pod{}
	if err := w.client.Get(w.t.Context(), key(name), out); err != nil {
		w.t.Fatal(err)
	}
	return out
}

func (w *world) podGroup(name string) *v2alpha2.PodGroup {
	w.t.Helper()
	out := &v2alpha2.PodGroup{}
	if err := w.client.Get(w.t.Context(), key(name), out); err != nil {
		w.t.Fatal(err)
	}
	return out
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "team", Name: name}
}

func request(pod string) reconcile.Request { return reconcile.Request{NamespacedName: key(pod)} }

// podOf makes a pod of ours, owned by an object.
func podOf(name string, owner *metav1.OwnerReference) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("u-" + name)},
		Spec:       corev1.PodSpec{SchedulerName: keys.SchedulerName},
	}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return p
}

func ref(apiVersion, kind, name string) *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID("u-" + name)}
}

func job(name string, annotations map[string]string, owners ...metav1.OwnerReference) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: name, UID: types.UID("u-" + name), Annotations: annotations, OwnerReferences: owners,
	}}
}

func pytorch(name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": spec}}
	u.SetNamespace("team")
	u.SetName(name)
	u.SetUID(types.UID("u-" + name))
	return u
}

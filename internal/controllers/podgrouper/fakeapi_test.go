package podgrouper

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/kube/links"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// fakeAPI is an API server in memory, with the role in steps (newWorld) or running (run). It lives in a synctest bubble.
type fakeAPI struct {
	*kubetest.Server
	t     *testing.T
	role  *Controller
	links *links.Links // that the role is made with

	options func(*Options) // of run

	mu     sync.Mutex
	events []string
	reads  int // of the role, from the API server
}

// kinds are those of others that workloads are of here.
func foreign() (out []kubetest.Kind) {
	for _, gvk := range []schema.GroupVersionKind{
		{Group: "kubeflow.org", Version: "v1", Kind: "PyTorchJob"},
		{Group: "example.org", Version: "v1", Kind: "Fleet"},
		{Group: "run.ai", Version: "v1alpha1", Kind: "Karta"},
		{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"},
		{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"},
		{Group: "grove.io", Version: "v1alpha1", Kind: "PodCliqueSet"},
		{Group: "scheduler.grove.io", Version: "v1alpha1", Kind: "PodGang"},
	} {
		out = append(out, kubetest.NewKind(gvk, gvk.Kind != "Karta"))
	}
	return out
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// server returns a fake API in which the role is not there yet.
func server(t *testing.T, objects ...client.Object) *fakeAPI {
	t.Helper()
	w := &fakeAPI{Server: kubetest.New(kubetest.Options{More: foreign()}), t: t}
	for _, class := range []string{"train", "build", "inference"} {
		w.Put(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: class}})
	}
	w.Put(namespace("team"), namespace("other"))
	w.Put(objects...)
	w.Fault(func(c kubetest.Call) kubetest.Outcome {
		if c.Verb == "get" {
			w.reads++
		}
		return kubetest.Outcome{}
	})
	return w
}

// newFakeAPI returns a fake API in which the test has the role reconcile one pod at a time.
func newFakeAPI(t *testing.T, change func(*Options), objects ...client.Object) *fakeAPI {
	t.Helper()
	w := server(t, objects...)
	w.runInSteps(change)
	return w
}

// runInSteps has the test have the role reconcile one pod at a time.
func (w *fakeAPI) runInSteps(change func(*Options)) {
	t := w.t
	t.Helper()
	o := DefaultOptions()
	if change != nil {
		change(&o)
	}
	w.Process("podgrouper").Run(t, func(shared cache.Cache, c client.Client) (func(context.Context) error, error) {
		if err := w.build(shared, c, o); err != nil {
			return nil, err
		}
		for _, kind := range []client.Object{&corev1.Pod{}, &v2alpha2.PodGroup{}} {
			informer, err := shared.GetInformer(t.Context(), kind, cache.BlockUntilSynced(false))
			if err != nil {
				return nil, err
			}
			if _, isPod := kind.(*corev1.Pod); !isPod {
				continue
			}
			pods, saw := func(o any) *corev1.Pod { p, _ := o.(*corev1.Pod); return p }, w.role.grouper.pods.saw
			if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc: func(o any) { saw(nil, pods(o)) }, UpdateFunc: func(was, is any) { saw(pods(was), pods(is)) }, DeleteFunc: func(o any) { saw(pods(o), nil) },
			}); err != nil {
				return nil, err
			}
		}
		return func(context.Context) error { return nil }, nil
	})
}

// run runs the role in a process until the test ends, or what it returns is called.
func (w *fakeAPI) run(p *kubetest.Process) (stop func()) {
	return p.Run(w.t, func(shared cache.Cache, c client.Client) (func(context.Context) error, error) {
		o := DefaultOptions()
		if w.options != nil {
			w.options(&o)
		}
		err := w.build(shared, c, o)
		return w.role.Run, err
	})
}

func (w *fakeAPI) build(shared cache.Cache, c client.Client, o Options) (err error) {
	w.role, err = New(Deps{
		Cache: shared, Client: c, Reader: c, Links: w.links,
		Event: func(obj client.Object, eventType, reason, message string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, fmt.Sprintf("%s %s %s: %s", eventType, reason, obj.GetName(), message))
		},
	}, o)
	return err
}

// fail has calls that begin so fail.
func (w *fakeAPI) fail(call string, err error) (remove func()) {
	return w.Fault(func(c kubetest.Call) kubetest.Outcome {
		if kubetest.Is(call)(c) {
			return kubetest.Outcome{Err: err}
		}
		return kubetest.Outcome{}
	})
}

// unwatched keeps the role from watching a kind.
func (w *fakeAPI) unwatched(kind string) {
	w.fail("list "+kind, forbidden(kind))
	w.fail("watch "+kind, forbidden(kind))
}

// sleep lets time pass, and what it brings be done.
func (w *fakeAPI) sleep(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// take returns the writes since the last call.
func (w *fakeAPI) take() (out []string) {
	for _, c := range w.Writes() {
		out = append(out, c.String())
	}
	return out
}

func (w *fakeAPI) reconcile(pod string) (reconcile.Result, error) {
	return w.role.grouper.reconcile(w.t.Context(), request(pod))
}

func (w *fakeAPI) mustReconcile(pods ...string) {
	w.t.Helper()
	for _, p := range pods {
		synctest.Wait() // the watches tell of what was written
		if _, err := w.reconcile(p); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *fakeAPI) pod(name string) *corev1.Pod {
	w.t.Helper()
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	if !w.Get(out) {
		w.t.Fatalf("no %T %s", out, name)
	}
	return out
}

// pods returns the pod, nil if there is none.
func (w *fakeAPI) pods(name string) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	if !w.Get(out) {
		return nil
	}
	return out
}

func (w *fakeAPI) podGroup(name string) *v2alpha2.PodGroup {
	w.t.Helper()
	out := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	if !w.Get(out) {
		w.t.Fatalf("no %T %s", out, name)
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
	return &metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID("u-" + name), Controller: ptr.To(true)}
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

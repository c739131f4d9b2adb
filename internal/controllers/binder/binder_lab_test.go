//go:build lab

package binder_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/crds"
	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/controllers/binder"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestBinder is the truth over HTTP: a real API server, a binder, and a scheduler played by the test.
func TestBinder(t *testing.T) {
	crd, err := crds.YAML("scheduling.run.ai", "bindrequests")
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Start(t.Context(), lab.Options{
		Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "n", Count: 10, CPU: "1000"}}},
		CRDs:  [][]byte{crd}, Logf: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, schedulingv1alpha2.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	x := &suite{lab: l, scheme: s}
	if x.client, err = client.New(quick(l.Config()), client.Options{Scheme: s}); err != nil {
		t.Fatal(err)
	}
	t.Run("a plain request", x.plain)
	t.Run("a bundle waits for its last request", x.whole)
	t.Run("a replaced pod", x.replaced)
	t.Run("a missing node", x.missing)
	t.Run("killed in the middle", x.killed)
	t.Run("a gang of 500", x.large)
}

type suite struct {
	lab    *lab.Lab
	scheme *runtime.Scheme
	client client.Client
}

// quick takes the limit of rate off a configuration.
func quick(c *rest.Config) *rest.Config {
	c.QPS = -1
	return c
}

// start runs a binder with the API server at cfg until stop is called, which returns when it has ended.
func (x *suite) start(t *testing.T, cfg *rest.Config, event binder.EventFunc) (stop func()) {
	t.Helper()
	return x.startUntil(t.Context(), t, cfg, event)
}

// startUntil is start with an end that stop only waits for.
func (x *suite) startUntil(ctx context.Context, t *testing.T, cfg *rest.Config, event binder.EventFunc) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	c, err := cache.New(quick(cfg), cache.Options{Scheme: x.scheme})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.New(cfg, client.Options{Scheme: x.scheme})
	if err != nil {
		t.Fatal(err)
	}
	b, err := binder.New(binder.Deps{Cache: c, Client: cl, Reader: cl, Event: event, Log: testr.New(t)}, binder.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- c.Start(ctx) }()
	go func() { ended <- b.Run(ctx) }()
	var once atomic.Bool
	stop = func() {
		if once.Swap(true) {
			return
		}
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

func (x *suite) pod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"gang": strings.SplitN(name, "-", 2)[0]}},
		Spec:       corev1.PodSpec{SchedulerName: "kai-scheduler", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if err := x.client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func (x *suite) request(t *testing.T, pod *corev1.Pod, node, bundle string, size int) {
	t.Helper()
	r := &schedulingv1alpha2.BindRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: schedulingv1alpha2.BindRequestSpec{PodName: pod.Name, SelectedNode: node},
	}
	if bundle != "" {
		r.Labels = map[string]string{keys.BundleLabel: bundle, keys.BundleSizeLabel: strconv.Itoa(size)}
	}
	if err := x.client.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// await reads the request and its pod until they are as wanted.
func (x *suite) await(t *testing.T, name string, want func(*schedulingv1alpha2.BindRequest, *corev1.Pod) bool) {
	t.Helper()
	var r schedulingv1alpha2.BindRequest
	var pod corev1.Pod
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		r, pod = schedulingv1alpha2.BindRequest{}, corev1.Pod{}
		key := types.NamespacedName{Namespace: "default", Name: name}
		if err := client.IgnoreNotFound(x.client.Get(ctx, key, &r)); err != nil {
			return false, err
		}
		if err := client.IgnoreNotFound(x.client.Get(ctx, key, &pod)); err != nil {
			return false, err
		}
		return want(&r, &pod), nil
	})
	if err != nil {
		t.Fatalf("%s: %v\n%+v\n%+v", name, err, r, pod)
	}
}

func succeeded(r *schedulingv1alpha2.BindRequest, _ *corev1.Pod) bool {
	return r.Status.Phase == schedulingv1alpha2.BindRequestSucceeded
}

// bound counts the bound pods of a gang.
func (x *suite) bound(t *testing.T, gang string) int {
	t.Helper()
	var pods corev1.PodList
	if err := x.client.List(t.Context(), &pods, client.InNamespace("default"), client.MatchingLabels{"gang": gang}); err != nil {
		t.Fatal(err)
	}
	n := 0
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != "" {
			n++
		}
	}
	return n
}

// gang makes pods gang-0, gang-1, ... and the first n of their requests.
func (x *suite) gang(t *testing.T, gang string, size, n int) []*corev1.Pod {
	t.Helper()
	pods := make([]*corev1.Pod, size)
	for i := range pods {
		pods[i] = x.pod(t, fmt.Sprintf("%s-%d", gang, i))
	}
	for i := range n {
		x.request(t, pods[i], fmt.Sprintf("n-%d", i%10), gang, size)
	}
	return pods
}

func (x *suite) plain(t *testing.T) {
	events := make(chan string, 10)
	defer x.start(t, x.lab.Config(), func(pod *corev1.Pod, kind, reason, message string) {
		events <- strings.Join([]string{pod.Name, kind, reason, message}, " ")
	})()
	x.request(t, x.pod(t, "plain"), "n-3", "", 0)
	x.await(t, "plain", succeeded)
	var pod corev1.Pod
	if err := x.client.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "plain"}, &pod); err != nil {
		t.Fatal(err)
	}
	if pod.Spec.NodeName != "n-3" || pod.Annotations[keys.ReceivedResourceTypeAnnotation] != "Regular" {
		t.Errorf("node %q, annotations %v", pod.Spec.NodeName, pod.Annotations)
	}
	found := false
	for _, c := range pod.Status.Conditions {
		found = found || c.Type == keys.PodBoundCondition && c.Status == corev1.ConditionTrue && c.Reason == "Bound" && !c.LastTransitionTime.IsZero()
	}
	if !found {
		t.Errorf("conditions %+v", pod.Status.Conditions)
	}
	if got, want := <-events, "plain Normal Bound Bound to node n-3"; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
}

func (x *suite) whole(t *testing.T) {
	defer x.start(t, x.lab.Config(), nil)()
	pods := x.gang(t, "whole", 20, 19)
	// A plain request that comes later and is served says that the bundle was looked at.
	x.request(t, x.pod(t, "later"), "n-1", "", 0)
	x.await(t, "later", succeeded)
	if n := x.bound(t, "whole"); n > 0 {
		t.Errorf("%d pods are bound before the last request is there", n)
	}
	x.request(t, pods[19], "n-1", "whole", 20)
	for i := range 20 {
		x.await(t, fmt.Sprintf("whole-%d", i), succeeded)
	}
	if n := x.bound(t, "whole"); n != 20 {
		t.Errorf("%d pods are bound", n)
	}
}

func (x *suite) replaced(t *testing.T) {
	old := x.pod(t, "replaced")
	if err := x.client.Delete(t.Context(), old, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	x.pod(t, "replaced")
	x.request(t, old, "n-1", "", 0)
	defer x.start(t, x.lab.Config(), nil)()
	x.await(t, "replaced", func(r *schedulingv1alpha2.BindRequest, _ *corev1.Pod) bool { return r.Name == "" })
	if n := x.bound(t, "replaced"); n > 0 {
		t.Error("another pod of the name was bound")
	}
}

func (x *suite) missing(t *testing.T) {
	defer x.start(t, x.lab.Config(), nil)()
	pods := x.gang(t, "missing", 3, 2)
	x.request(t, pods[2], "nowhere", "missing", 3)
	for i := range 3 {
		x.await(t, fmt.Sprintf("missing-%d", i), func(r *schedulingv1alpha2.BindRequest, pod *corev1.Pod) bool {
			for _, c := range pod.Status.Conditions {
				if c.Type == keys.PodBoundCondition && c.Status == corev1.ConditionFalse && c.Reason == "BindingError" {
					return r.Status.Phase == schedulingv1alpha2.BindRequestFailed && strings.Contains(r.Status.Reason, "node nowhere is gone")
				}
			}
			return false
		})
	}
	if n := x.bound(t, "missing"); n > 0 {
		t.Errorf("%d pods are bound", n)
	}
}

// killed ends the binder when the API server has answered the k-th Binding, before it gets to know the answer; the next
// binder has only what is in the cluster.
func (x *suite) killed(t *testing.T) {
	for _, k := range []int{1, 10, 19} {
		gang := fmt.Sprintf("killed%d", k)
		proxy, err := x.lab.NewProxy()
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := proxy.Config()
		if err != nil {
			t.Fatal(err)
		}
		ctx, kill := context.WithCancel(t.Context())
		dead := proxy.On(lab.Match{Method: "POST", Resource: "pods", Subresource: "binding"}, k, lab.BeforeForward, func(lab.Request) { kill() })
		stop := x.startUntil(ctx, t, cfg, nil)
		x.gang(t, gang, 20, 20)
		<-dead
		stop()
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
		t.Logf("killed at bind %d: %d of 20 are bound", k, x.bound(t, gang))
		stop = x.start(t, x.lab.Config(), nil)
		for i := range 20 {
			x.await(t, fmt.Sprintf("%s-%d", gang, i), succeeded)
		}
		stop()
	}
}

func (x *suite) large(t *testing.T) {
	defer x.start(t, x.lab.Config(), nil)()
	pods := x.gang(t, "large", 500, 499)
	begun := time.Now()
	x.request(t, pods[499], "n-1", "large", 500)
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return x.bound(t, "large") == 500, nil
	})
	t.Logf("bound after %v", time.Since(begun))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		x.await(t, fmt.Sprintf("large-%d", i), succeeded)
	}
	t.Logf("reported after %v", time.Since(begun))
}

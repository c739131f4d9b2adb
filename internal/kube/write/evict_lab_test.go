//go:build lab

package write

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/lab"
)

// TestEvictOnTheWire: what the API server answers to evictions is understood, and at once.
func TestEvictOnTheWire(t *testing.T) {
	l, err := lab.Start(t.Context(), lab.Options{Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "n", Count: 1, GPUs: 8}}}, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(Impatient(l.Config()), client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	kit, err := New(c, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	create := func(o client.Object) {
		t.Helper()
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	budget := func(name, of string) {
		one := intstr.FromInt32(1)
		create(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": of}},
		}})
	}
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"free", "guarded", "twice"} {
		pods[name] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{NodeName: "n-0", Containers: []corev1.Container{{Name: "main", Image: "registry.example/x"}}, TerminationGracePeriodSeconds: ptr.To[int64](0)},
		}
		create(pods[name])
	}
	budget("guard", "guarded")
	budget("first", "twice")
	budget("second", "twice")
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		for name, p := range pods { // order: all must be ready
			if err := c.Get(ctx, client.ObjectKeyFromObject(p), pods[name]); err != nil || p.Status.Phase != corev1.PodRunning {
				return false, err
			}
		}
		var b policyv1.PodDisruptionBudget
		err := c.Get(ctx, types.NamespacedName{Namespace: "default", Name: "guard"}, &b)
		return b.Status.ObservedGeneration > 0 && b.Status.CurrentHealthy == 1, err
	}); err != nil {
		t.Fatalf("the pods do not run: %v", err)
	}
	for _, step := range []struct {
		what string
		do   func() (Result, error)
		want Result
	}{
		{"a budget allows none", func() (Result, error) { return kit.Evict(t.Context(), pods["guarded"].DeepCopy()) }, Blocked},
		{"two budgets", func() (Result, error) { return kit.Evict(t.Context(), pods["twice"].DeepCopy()) }, Unjudged},
		{"an earlier pod of the name", func() (Result, error) {
			p := pods["free"].DeepCopy()
			p.UID = "earlier"
			return kit.Evict(t.Context(), p)
		}, Changed},
		{"nothing is in the way", func() (Result, error) { return kit.Evict(t.Context(), pods["free"].DeepCopy()) }, Written},
		{"a pod that never was", func() (Result, error) {
			return kit.Evict(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "nobody", UID: "x"}})
		}, Gone},
		{"delete, an earlier one", func() (Result, error) {
			p := pods["guarded"].DeepCopy()
			p.UID = "earlier"
			return kit.Delete(t.Context(), p)
		}, Changed},
		{"delete", func() (Result, error) { return kit.Delete(t.Context(), pods["guarded"].DeepCopy()) }, Written},
	} {
		since := time.Now()
		got, err := step.do()
		if err != nil || got != step.want {
			t.Errorf("%s: %v, %v; want %v", step.what, got, err, step.want)
		}
		if took := time.Since(since); took > 3*time.Second {
			t.Errorf("%s: answered after %v", step.what, took)
		}
	}
}

//go:build lab

package queue

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2/ktesting"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/crds"
	"github.com/muster-scheduler/muster/api/kai/keys"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestLimitsOutliveKAIsDefinition takes the field off the served definition of the Queue, as applying KAI's does: the API
// server then drops it from the objects it hands out and from those it is given. The limit holds all the same, through
// writes of others too.
func TestLimitsOutliveKAIsDefinition(t *testing.T) {
	var definitions [][]byte
	for _, plural := range []string{"queues", "podgroups"} {
		crd, err := crds.YAML("scheduling.run.ai", plural)
		if err != nil {
			t.Fatal(err)
		}
		definitions = append(definitions, crd)
	}
	l, err := lab.Start(t.Context(), lab.Options{CRDs: definitions, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v2.AddToScheme, v2alpha2.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(l.Config(), client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	shared, err := cache.New(l.Config(), cache.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	log, _ := ktesting.NewTestContext(t)
	role, err := New(control.Shell{Cache: shared, Client: c, Log: log}, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- shared.Start(ctx) }()
	go func() { ended <- role.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})

	q := makeQueue("team", "", func(q *v2.Queue) {
		q.Spec.Resources.Extended = map[string]v2.QueueResource{"rdma/hca": {Quota: 4, OverQuotaWeight: 1, Limit: 8}}
	})
	if err := c.Create(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	await := func(what string, ok func(*v2.Queue) bool) {
		t.Helper()
		got := &v2.Queue{}
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
			got = &v2.Queue{}
			err := c.Get(ctx, client.ObjectKey{Name: "team"}, got)
			return err == nil && ok(got), err
		})
		if err != nil {
			t.Fatalf("%s: %v; the queue is %+v, annotations %v", what, err, got.Spec.Resources, got.Annotations)
		}
	}
	limit := func(q *v2.Queue) int64 {
		st, problem := kai.Queue(q)
		if problem != "" {
			t.Error(problem)
		}
		for _, l := range st.Limit {
			if l.Name == "rdma/hca" {
				return l.Value
			}
		}
		return v2.Unlimited
	}
	await("the copy is made", func(q *v2.Queue) bool { return q.Annotations[keys.ExtendedResourcesAnnotation] != "" })

	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := c.Get(t.Context(), client.ObjectKey{Name: "queues.scheduling.run.ai"}, crd); err != nil {
		t.Fatal(err)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		unstructured.RemoveNestedField(v.(map[string]any),
			"schema", "openAPIV3Schema", "properties", "spec", "properties", "resources", "properties", "extended")
	}
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if err := c.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	await("the field is dropped, the limit holds", func(q *v2.Queue) bool { return q.Spec.Resources.Extended == nil && limit(q) == 8 })

	// Somebody writes the object: from here on the field is gone from storage, too.
	if err := c.Patch(t.Context(), &v2.Queue{ObjectMeta: q.ObjectMeta}, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"displayName":"Team"}}`))); err != nil {
		t.Fatal(err)
	}
	child := makeQueue("child", "team")
	if err := c.Create(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	await("the role wrote the status, and the limit holds", func(q *v2.Queue) bool { return len(q.Status.ChildQueues) == 1 && limit(q) == 8 })
}

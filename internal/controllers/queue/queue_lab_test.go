//go:build lab

package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2/ktesting"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/crds"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestOnARealAPIServer is about what a fake one cannot prove: that the API server takes the patches, stores what they
// say, and that its watch events then lead to no further write.
func TestOnARealAPIServer(t *testing.T) {
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
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v2.AddToScheme, v2alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.NewWithWatch(l.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	shared, err := cache.New(l.Config(), cache.Options{Scheme: scheme})
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

	create := func(obj client.Object) {
		t.Helper()
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	// await follows one queue until it is as wanted: GPUs allocated, children, conditions.
	await := func(what, name, want string) *v2.Queue {
		t.Helper()
		deadline, stop := context.WithTimeout(t.Context(), 15*time.Second)
		defer stop()
		queues, err := c.Watch(deadline, &v2.QueueList{}, client.MatchingFields{"metadata.name": name})
		if err != nil {
			t.Fatal(err)
		}
		defer queues.Stop()
		var d string
		for e := range queues.ResultChan() {
			q, ok := e.Object.(*v2.Queue)
			if !ok {
				t.Fatalf("%s: event %+v", what, e)
			}
			gpus := q.Status.Allocated["nvidia.com/gpu"]
			got := fmt.Sprintf("%s GPUs, children %v", gpus.String(), q.Status.ChildQueues)
			for _, cond := range q.Status.Conditions {
				got += fmt.Sprintf(", %s=%s", cond.Reason, cond.Status)
			}
			if d = cmp.Diff(want, got); d == "" {
				return q
			}
		}
		t.Fatalf("%s: %s", what, d)
		return nil
	}

	create(makeQueue("team", "dept", func(q *v2.Queue) { q.Spec.Resources.GPU.Quota = 2 }))
	pg := makeGroup("gang", "team", 4)
	pg.Namespace = "default"
	status := pg.Status
	create(pg)
	pg.Status = status
	if err := c.Status().Update(t.Context(), pg); err != nil {
		t.Fatal(err)
	}
	await("no parent yet", "team", "4 GPUs, children [], ParentNotFound=True, AllocatedAboveQuota=True")
	create(makeQueue("dept", ""))
	await("the parent comes", "team", "4 GPUs, children [], ParentFound=False, AllocatedAboveQuota=True")
	dept := await("and sums up", "dept", "4 GPUs, children [team]")
	if err := c.Patch(t.Context(), dept.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"parentQueue":"team"}}`))); err != nil {
		t.Fatal(err)
	}
	await("a circle", "dept", "0 GPUs, children [team], ParentCycle=True")
	await("seen from the other side", "team", "4 GPUs, children [dept], ParentCycle=True, AllocatedAboveQuota=True")
	if err := c.Delete(t.Context(), pg); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), dept); err != nil {
		t.Fatal(err)
	}
	team := await("all gone", "team", "0 GPUs, children [], ParentNotFound=True, AllocatedWithinQuota=False")
	if len(team.Status.Allocated)+len(team.Status.Requested)+len(team.Status.AllocatedNonPreemptible) > 0 {
		t.Errorf("left over: %+v", team.Status)
	}
}

package queue

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// fixture runs the role in a bubble of fake time.
type fixture struct {
	*kubetest.Server
	t        *testing.T
	registry *prometheus.Registry
	stop     func()
}

// startFixture starts the role with the given objects; the caller is in a synctest bubble.
func startFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	r := &fixture{Server: kubetest.New(kubetest.Options{}), t: t, registry: prometheus.NewRegistry()}
	r.Put(objects...)
	r.stop = r.run(r.Process("queue"))
	return r
}

// run runs the role in a process until the test ends, or what it returns is called.
func (r *fixture) run(p *kubetest.Process) (stop func()) {
	return p.Run(r.t, func(objects cache.Cache, writer client.Client) (func(context.Context) error, error) {
		c, err := New(control.Shell{Cache: objects, Client: writer, Log: logr.Discard(), Registry: r.registry}, DefaultOptions())
		if err != nil {
			return nil, err
		}
		return c.Run, nil
	})
}

func (r *fixture) get(name string) *v2.Queue {
	q := makeQueue(name, "")
	if !r.Get(q) {
		r.t.Errorf("no queue %s", name)
	}
	return q
}

// sleep lets the bubble's clock run.
func (r *fixture) sleep(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// wrote counts the writes of statuses since the last call, by queue.
func (r *fixture) wrote() map[string]int {
	out := map[string]int{}
	for _, w := range r.Writes() {
		if w.Subresource == "status" {
			out[w.Name]++
		}
	}
	return out
}

// expect compares the writes since the last call.
func (r *fixture) expect(what string, want map[string]int) {
	r.t.Helper()
	if d := cmp.Diff(want, r.wrote()); d != "" {
		r.t.Errorf("%s: %s", what, d)
	}
}

func TestFillWritesEachQueueOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startFixture(t, makeQueue("dept", ""), makeQueue("team", "dept"), makeQueue("idle", "dept"))
		r.sleep(4500 * time.Millisecond)
		r.expect("children are found", map[string]int{"dept": 1})

		const n = 4000
		for i := range n {
			r.Put(makeGroup(fmt.Sprint(i), "team", 1))
			r.sleep(2500 * time.Microsecond) // ten seconds in all
		}
		r.sleep(1100 * time.Millisecond)
		writes := r.wrote()
		for _, name := range []string{"dept", "team"} {
			if w := writes[name]; w < 8 || w > 11 {
				t.Errorf("queue %s: %d writes in eleven seconds", name, w)
			}
		}
		if len(writes) != 2 {
			t.Errorf("others: %v", writes)
		}
		for _, name := range []string{"dept", "team"} {
			s := r.get(name).Status
			if got, want := s.Allocated["nvidia.com/gpu"], int64(n); got.Value() != want {
				t.Errorf("queue %s: %s GPUs", name, got.String())
			}
		}
		r.sleep(10 * time.Second)
		r.expect("a quiet cluster", map[string]int{})
	})
}

func TestRestartWritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, child := makeQueue("dept", ""), makeQueue("team", "dept")
		g := makeGroup("g", "team", 1)
		for _, q := range []*v2.Queue{parent, child} {
			s := g.Status.ResourcesStatus
			q.Status = v2.QueueStatus{Requested: s.Requested, Allocated: s.Allocated, AllocatedNonPreemptible: s.AllocatedNonPreemptible}
		}
		parent.Status.ChildQueues = []string{"team"}
		r := startFixture(t, child, parent, g)
		r.sleep(10 * time.Second)
		r.expect("nothing had changed", map[string]int{})
	})
}

// The field is repeated in the annotation once, and the annotation is still there when the field is not.
func TestExtendedResourcesOutliveTheirField(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const copied = `{"rdma/hca":{"quota":4,"overQuotaWeight":0,"limit":8}}`
		q := makeQueue("q", "", func(q *v2.Queue) {
			q.Spec.Resources.Extended = map[string]v2.QueueResource{"rdma/hca": {Quota: 4, Limit: 8}}
		})
		r := startFixture(t, q)
		r.sleep(5 * time.Second)
		got := r.get("q")
		if a := got.Annotations[keys.ExtendedResourcesAnnotation]; a != copied {
			t.Fatalf("annotation %q", a)
		}
		kubetest.Edit(r.Server, got, func(q *v2.Queue) { q.Spec.Resources.Extended = nil })
		r.sleep(5 * time.Second)
		if a := r.get("q").Annotations[keys.ExtendedResourcesAnnotation]; a != copied {
			t.Errorf("annotation %q after the field went", a)
		}
		r.expect("the status is as it was", map[string]int{})
	})
}

func TestMetricsEndWithTheRole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startFixture(t, makeQueue("dept", ""))
		served := func() int {
			families, err := r.registry.Gather()
			if err != nil {
				t.Error(err)
			}
			n := 0
			for _, f := range families {
				if f.GetName() == "kai_queue_info" {
					n += len(f.GetMetric())
				}
			}
			return n
		}
		if n := served(); n != 1 {
			t.Errorf("%d queues while running", n)
		}
		r.stop()
		if n := served(); n != 0 {
			t.Errorf("%d queues after the end", n)
		}
	})
}

// TestCrashes: the role dies at each of its writes, before or after it, and the next one writes what is missing.
func TestCrashes(t *testing.T) {
	t.Parallel()
	kubetest.Story{
		Set: func(s *kubetest.Server) {
			s.Put(makeGroup("g", "q", 1), makeQueue("q", "", func(q *v2.Queue) {
				q.Spec.Resources.Extended = map[string]v2.QueueResource{"rdma/hca": {Quota: 4, Limit: 8}}
			}))
		},
		Run: func(t *testing.T, p *kubetest.Process) func() {
			return (&fixture{t: t, registry: prometheus.NewRegistry()}).run(p)
		}, Settle: 10 * time.Second,
		Check: func(t *testing.T, s *kubetest.Server) {
			q := (&fixture{Server: s, t: t}).get("q")
			if got := q.Status.Allocated["nvidia.com/gpu"]; got.Value() != 1 || q.Annotations[keys.ExtendedResourcesAnnotation] == "" {
				t.Errorf("%s GPUs, annotations %v", got.String(), q.Annotations)
			}
			if got := s.Writes(); len(got) != 2 {
				t.Errorf("writes %v, want each once", got)
			}
		},
	}.Crashes(t)
}

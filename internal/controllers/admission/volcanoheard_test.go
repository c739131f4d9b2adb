package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/kube/filters/podtemplate"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// hearing is what a process hears, until the test ends, once it has heard all that is there.
func hearing(t testing.TB, p *kubetest.Process) *heard {
	t.Helper()
	o := bothFaces()
	watched := o.Watched()
	watched.Scheme = kubetest.Scheme()
	objects, err := p.Cache(watched)
	if err != nil {
		t.Fatal(err)
	}
	h, done := &heard{}, make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	deaf, err := h.listen(ctx, objects)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() { done <- objects.Start(ctx) }()
	t.Cleanup(func() {
		deaf()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if !toolscache.WaitForCacheSync(ctx.Done(), h.queuesSynced, h.runningSynced) {
		t.Fatal("nothing is heard")
	}
	return h
}

// TestVolcanoHeard: once queues and PodGroups are watched, what may be is said without a list; what may not, and what was not heard yet, after a look at what is so now. What was let through because the
// watch was behind is refused when it is not any more.
func TestVolcanoHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)})
		queue := func(name, parent string, state v1beta1.QueueState) *v1beta1.Queue {
			return &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"much": "text"}}, Spec: v1beta1.QueueSpec{Parent: parent}, Status: v1beta1.QueueStatus{State: state}}
		}
		group := func(name, queue string, running int32) *v1beta1.PodGroup {
			return &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: v1beta1.PodGroupSpec{Queue: queue, MinMember: 2}, Status: v1beta1.PodGroupStatus{Running: running}}
		}
		s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, queue("root", "", "Open"), queue("team", "root", "Open"), group("g", "team", 0))
		lists, away := 0, false
		s.Fault(func(c kubetest.Call) kubetest.Outcome {
			if c.Verb != "list" {
				return kubetest.Outcome{}
			}
			if lists++; away {
				return kubetest.Broken("no store")
			}
			return kubetest.Outcome{}
		})
		p := s.Process("admission")
		c, err := p.Client(kubetest.Scheme())
		if err != nil {
			t.Fatal(err)
		}
		reviews := func(known *heard) *Handler {
			h, err := NewHandler(bothFaces().Rules, Sources{Volcano: readVolcano(c, known, podtemplate.Validate)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		h := reviews(&heard{})
		expect := func(what, path, object, want string, most int) {
			t.Helper()
			synctest.Wait()
			lists = 0
			if got := answers(t, h, path, object, ""); got != "allowed" && want == "" || !strings.Contains(got, want) || lists != most {
				t.Errorf("%s: %s after %d lists, want %q after %d", what, got, lists, want, most)
			}
		}
		job := func(what, queue, want string, lists int) {
			t.Helper()
			expect(what, ValidateJobPath, "{metadata: {name: j}, spec: {queue: "+queue+", minAvailable: 1, tasks: [{name: a, replicas: 1, template: {spec: {containers: [{name: c, image: i}]}}}]}}", want, lists)
		}
		below := func(what, parent, want string, lists int) {
			t.Helper()
			expect(what, ValidateVCQueuePath, "{metadata: {name: q}, spec: {parent: "+parent+"}}", want, lists)
		}
		job("a Job before anything is heard", "team", "", 1)
		below("a queue before anything is heard", "team", "", 2)
		known := hearing(t, p)
		h = reviews(known)
		job("a Job", "team", "", 0)
		expect("a PodGroup", ValidateVCGroupPath, "{metadata: {name: g}, spec: {queue: team}}", "", 0)
		job("a Job in no queue", "gone", "spec.queue: Not found", 1)
		below("a queue", "team", "", 1)
		if q := known.queues["team"]; q.Annotations != nil {
			t.Errorf("more of a queue is kept than is read: %v", q)
		}

		s.Hold("Queue")
		s.Put(queue("new", "root", ""), queue("team", "root", "Closed"))
		job("a queue that was not heard of", "new", "", 1)
		job("one that was not heard to be closed", "team", "", 0)
		s.Release("Queue")
		job("and was heard of", "new", "", 0)
		job("and was heard to be", "team", "its state is Closed", 1)
		s.Put(queue("child", "new", ""))
		job("above another", "new", "has queues below it, such as child", 1)
		s.Remove(queue("child", "new", ""))
		job("above none any more", "new", "", 0)

		s.Put(group("g", "new", 2), group("h", "new", 1))
		below("pods run above", "new", "pods run in it", 2)
		s.Hold("PodGroup")
		s.Put(group("g", "new", 0), group("h", "new", 0))
		below("they were not heard to have ended", "new", "", 3)
		s.Release("PodGroup")
		below("and were", "new", "", 1)
		s.Hold("PodGroup")
		s.Put(group("g", "new", 1))
		below("they were not heard to run", "new", "", 1)
		s.Release("PodGroup")
		below("and were", "new", "pods run in it", 2)
		s.Put(group("g", "team", 1))
		below("they run elsewhere", "new", "", 1)
		s.Remove(group("g", "team", 1))
		s.Put(queue("team", "root", "Open"))
		below("they are gone", "team", "", 1)
		s.Put(group("g", "team", 1))
		below("and back", "team", "pods run in it", 2)

		s.Hold("PodGroup")
		s.Hold("Queue")
		s.Remove(group("g", "team", 1), queue("new", "root", ""))
		for _, kind := range []string{"PodGroup", "Queue"} {
			s.Expire(kind)
			s.Release(kind)
		}
		<-time.After(time.Minute) // until it lists anew
		below("they went while nothing was told", "team", "", 1)
		job("and so did a queue", "new", "spec.queue: Not found", 1)
		if len(known.running) != 0 || len(known.queues) != 2 {
			t.Errorf("what is gone is kept: %v, %v", known.running, known.queues)
		}
		away = true
		job("what is known of a server that cannot be read", "team", "", 0)
		job("what is not", "gone", "500 ", 1)
	})
}

// TestHeardOnceServed: a role that comes before Volcano's kinds hears of them when they are there, whatever its cache keeps of them; without the face it hears nothing.
func TestHeardOnceServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)})
		s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}},
			&v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "g"}, Spec: v1beta1.PodGroupSpec{Queue: "q"}, Status: v1beta1.PodGroupStatus{Running: 1}})
		s.Serve("PodGroup", false)
		role := func(o Options) (of *Controller) {
			s.Process("admission").Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
				var err error
				of, err = New(Deps{Cache: objects, Client: c, Log: logr.Discard()}, o)
				return of.Hear, err
			})
			return of
		}
		on, off := role(bothFaces()), role(DefaultOptions())
		<-time.After(time.Minute)
		if _, known := on.heard.runs("q"); known {
			t.Error("PodGroups are known that are not served")
		}
		s.Serve("PodGroup", true)
		<-time.After(time.Minute)
		if one, known := on.heard.runs("q"); !known || one.Name != "g" {
			t.Errorf("in the queue runs %s, known %v", one, known)
		}
		if _, known := off.heard.forest(); known {
			t.Error("without the face queues are watched")
		}
	})
}

// BenchmarkHeard is what the role keeps of 10,000 PodGroups, in half of which pods run.
func BenchmarkHeard(b *testing.B) {
	const n = 10_000
	s := kubetest.New(kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)})
	s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
	all := make([]client.Object, n)
	for i := range all {
		all[i] = &v1beta1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("train-%d-5d5c9f7e-0a2b-4c3d-8e9f-aabbccddeeff", i), Annotations: map[string]string{"much": strings.Repeat("text", 100)}},
			Spec:       v1beta1.PodGroupSpec{Queue: fmt.Sprintf("q%02d", i%100), MinMember: 8}, Status: v1beta1.PodGroupStatus{Phase: "Running", Running: int32(8 * (i % 2))},
		}
	}
	s.Put(all...)
	for b.Loop() {
		before := kubetest.Held()
		known := hearing(b, s.Process("admission"))
		b.ReportMetric((kubetest.Held()-before)/n, "held-B/group")
		if len(known.running) != 50 {
			b.Fatalf("pods run in %d queues", len(known.running))
		}
	}
}

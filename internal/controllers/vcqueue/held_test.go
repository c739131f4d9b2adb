package vcqueue

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ours "github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// runHolding runs the controller, and what says what queues hold.
func runHolding(t *testing.T, p *kubetest.Process) func() {
	stop := run(t, p)
	end := p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
		h, err := NewHoldings(control.Shell{Cache: objects, Client: c, Log: logr.Discard()}, 2, []string{"volcano", "mine"})
		if err != nil {
			return nil, err
		}
		return h.Run, nil
	})
	return func() {
		stop()
		end()
	}
}

// worker is a pod of a queue's PodGroup, which group makes, that asks for a CPU and two GPUs and runs.
func worker(name, queue string) *corev1.Pod {
	ask := corev1.ResourceList{"cpu": resource.MustParse("1"), "nvidia.com/gpu": resource.MustParse("2")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{keys.GroupName: "g-" + queue}},
		Spec: corev1.PodSpec{
			SchedulerName: "volcano", NodeName: "n",
			Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: ask, Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// held is what queues are said to hold, those that hold nothing left out.
func held(s *kubetest.Server, names ...string) string {
	var out []string
	for _, name := range names {
		q := queue(name, "")
		if s.Get(q); len(q.Status.Allocated) == 0 {
			continue
		}
		text := name + ":"
		for _, r := range slices.Sorted(maps.Keys(q.Status.Allocated)) {
			amount := q.Status.Allocated[r]
			text += fmt.Sprintf(" %s=%s", r, amount.String())
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// TestHeld: a queue holds what the bound pods of its PodGroups ask for, and a parent that of all below; pods of others, that have no node or have ended hold nothing; what a tenant writes is put right; a
// queue is written once a second at most, and not at rest.
func TestHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		runHolding(t, s.Process("vcqueue"))
		tree(s)
		s.Put(group("b"), group("c"))
		all := []string{"root", "default", "a", "b", "c", "d"}
		settle := func() {
			t.Helper()
			<-time.After(5 * time.Second)
			synctest.Wait()
		}
		step := func(what, want string) {
			t.Helper()
			settle()
			if got := held(s, all...); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		step("at first", "")
		one := worker("w1", "c")
		one.Spec.NodeName, one.Status.Phase = "", corev1.PodPending
		others := worker("other", "c")
		others.Spec.SchedulerName = "kai-scheduler"
		s.Put(one, others)
		step("it waits", "")
		one = worker("w1", "c")
		s.Put(one)
		step("it runs", "root: cpu=1 nvidia.com/gpu=2 pods=1; a: cpu=1 nvidia.com/gpu=2 pods=1; b: cpu=1 nvidia.com/gpu=2 pods=1; c: cpu=1 nvidia.com/gpu=2 pods=1")
		second := worker("w2", "b")
		second.Spec.SchedulerName = "mine"
		s.Put(second, worker("w3", "gone"))
		step("another in its parent", "root: cpu=2 nvidia.com/gpu=4 pods=2; a: cpu=2 nvidia.com/gpu=4 pods=2; b: cpu=2 nvidia.com/gpu=4 pods=2; c: cpu=1 nvidia.com/gpu=2 pods=1")
		s.Put(queue("c", "d"))
		step("c moves", "root: cpu=2 nvidia.com/gpu=4 pods=2; a: cpu=1 nvidia.com/gpu=2 pods=1; b: cpu=1 nvidia.com/gpu=2 pods=1; c: cpu=1 nvidia.com/gpu=2 pods=1; d: cpu=1 nvidia.com/gpu=2 pods=1")
		late := group("gone")
		late.Spec.Queue = "d"
		s.Put(late)
		step("a PodGroup comes after its pod", "root: cpu=3 nvidia.com/gpu=6 pods=3; a: cpu=1 nvidia.com/gpu=2 pods=1; b: cpu=1 nvidia.com/gpu=2 pods=1; c: cpu=1 nvidia.com/gpu=2 pods=1; d: cpu=2 nvidia.com/gpu=4 pods=2")
		forged := queue("b", "a")
		s.Get(forged)
		forged.Status.Allocated = corev1.ResourceList{"pods": resource.MustParse("0"), "memory": resource.MustParse("1Gi")}
		forged.Status.Reservation = scheduling.Reservation{Nodes: []string{"n"}, Resource: corev1.ResourceList{"cpu": resource.MustParse("1")}}
		s.Put(forged)
		step("a tenant writes", "root: cpu=3 nvidia.com/gpu=6 pods=3; a: cpu=1 nvidia.com/gpu=2 pods=1; b: cpu=1 nvidia.com/gpu=2 pods=1; c: cpu=1 nvidia.com/gpu=2 pods=1; d: cpu=2 nvidia.com/gpu=4 pods=2")
		if s.Get(forged); len(forged.Status.Reservation.Nodes)+len(forged.Status.Reservation.Resource) > 0 || forged.Status.State != scheduling.QueueStateOpen {
			t.Errorf("after a tenant wrote: %+v", forged.Status)
		}
		ended := worker("w3", "gone")
		ended.Status.Phase = corev1.PodSucceeded
		s.Remove(second)
		s.Put(ended)
		step("one ends, one goes", "root: cpu=1 nvidia.com/gpu=2 pods=1; c: cpu=1 nvidia.com/gpu=2 pods=1; d: cpu=1 nvidia.com/gpu=2 pods=1")
		s.Writes()
		<-time.After(time.Hour)
		if w := s.Writes(); len(w) > 0 {
			t.Errorf("at rest: %v", w)
		}
		for i := range 100 { // a pod each 100 ms for ten seconds
			s.Put(worker(fmt.Sprint("many-", i), "c"))
			<-time.After(100 * time.Millisecond)
		}
		settle()
		count := map[string]int{}
		for _, w := range s.Writes() {
			count[w.String()]++
		}
		for what, n := range count {
			if n > 12 {
				t.Errorf("%s: %d times in 10 seconds", what, n)
			}
		}
		if got := held(s, "c"); got != "c: cpu=101 nvidia.com/gpu=202 pods=101" || len(count) != 3 {
			t.Errorf("in the end %s, of %v", got, count)
		}
	})
}

// TestOwed: a pod that was bound before its PodGroup is there is held by the queue that it names, and once by the PodGroup's when that comes, whichever comes first and whatever goes.
func TestOwed(t *testing.T) {
	t.Parallel()
	p := worker("p", "")
	p.UID, p.Annotations = "u", map[string]string{keys.QueueName: "a"}
	p.Annotations[keys.GroupName], p.Annotations[ours.OwnGangAnnotation] = volcano.GroupOfOwner(p), volcano.OwnText(p)
	g := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: volcano.GroupOfOwner(p)}, Spec: scheduling.PodGroupSpec{Queue: "b"}}
	total := func(l *ledger, queue string) int64 {
		if s := l.total[queue]; s != nil {
			for name, q := range s.List() { // order: one is looked for
				if name == corev1.ResourcePods {
					return q.Value()
				}
			}
		}
		return 0
	}
	for _, groupFirst := range []bool{false, true} {
		l := newLedger([]string{"volcano"})
		if groupFirst {
			l.groupSeen(g, false)
		}
		l.podSeen(p, false)
		if a := total(l, "a"); a != 1 && !groupFirst || a != 0 && groupFirst {
			t.Errorf("the queue that the pod names holds %d (the PodGroup is there: %v)", a, groupFirst)
		}
		l.groupSeen(g, false)
		if a, b := total(l, "a"), total(l, "b"); a != 0 || b != 1 {
			t.Errorf("when it has its PodGroup the pod's queue holds %d, the PodGroup's %d", a, b)
		}
		l.podSeen(p, true)
		l.groupSeen(g, true)
		if a, b, left := total(l, "a"), total(l, "b"), len(l.owed)+len(l.gangs); a != 0 || b != 0 || left != 0 {
			t.Errorf("in the end %d and %d are held, and %d entries are left", a, b, left)
		}
	}
	l := newLedger([]string{"volcano"})
	l.podSeen(p, false)
	l.podSeen(p, true)
	if a, left := total(l, "a"), len(l.owed)+len(l.gangs); a != 0 || left != 0 {
		t.Errorf("of a pod that never had a PodGroup %d are held, and %d entries are left", a, left)
	}
}

// TestCounted: the status of a queue counts its own PodGroups by phase as they come, change, move and go; what a tenant writes is put right, and at rest nothing is written.
func TestCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		runHolding(t, s.Process("vcqueue"))
		tree(s)
		step := func(what, want string) {
			t.Helper()
			<-time.After(5 * time.Second)
			synctest.Wait()
			var got []string
			for _, name := range []string{"a", "b", "c", "d"} {
				q := queue(name, "")
				s.Get(q)
				if is := &q.Status; is.Pending+is.Inqueue+is.Running+is.Unknown+is.Completed != 0 {
					got = append(got, fmt.Sprintf("%s:%d/%d/%d/%d/%d", name, is.Pending, is.Inqueue, is.Running, is.Unknown, is.Completed))
				}
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("%s: pending/inqueue/running/unknown/completed are %s, want %s", what, text, want)
			}
		}
		put := func(name, queue string, phase scheduling.PodGroupPhase) {
			g := group(queue)
			g.Name, g.Status.Phase = name, phase
			s.Put(g)
		}
		step("at first", "")
		put("one", "c", "")
		put("two", "c", scheduling.PodGroupInqueue)
		step("two come, and count for their own queue alone", "c:1/1/0/0/0")
		put("one", "c", scheduling.PodGroupRunning)
		put("two", "d", scheduling.PodGroupUnknown)
		step("one runs, one moves", "c:0/0/1/0/0 d:0/0/0/1/0")
		forged := queue("c", "b")
		s.Get(forged)
		forged.Status.Pending, forged.Status.Running = 9, 0
		s.Put(forged)
		put("one", "c", scheduling.PodGroupCompleted)
		step("a tenant writes, and it is done", "c:0/0/0/0/1 d:0/0/0/1/0")
		s.Writes()
		<-time.After(time.Hour)
		if w := s.Writes(); len(w) > 0 {
			t.Errorf("at rest: %v", w)
		}
		gone := group("d")
		gone.Name = "two"
		s.Remove(gone)
		step("one goes", "c:0/0/0/0/1")
	})
}

// TestHeldCrashes: the controller dies before and after each write, and the next one says the same.
func TestHeldCrashes(t *testing.T) {
	t.Parallel()
	kubetest.Story{
		Options: serves(),
		Set: func(s *kubetest.Server) {
			tree(s)
			s.Put(group("c"), group("d"), worker("w1", "c"), worker("w2", "d"))
			forged := queue("a", "root")
			forged.Status.Allocated = corev1.ResourceList{"memory": resource.MustParse("1Gi")}
			s.Put(forged)
		},
		Run:    runHolding,
		Settle: time.Minute,
		Check: func(t *testing.T, s *kubetest.Server) {
			const both, one = "cpu=2 nvidia.com/gpu=4 pods=2", "cpu=1 nvidia.com/gpu=2 pods=1"
			if got := held(s, "root", "a", "b", "c", "d"); got != fmt.Sprintf("root: %s; a: %s; b: %s; c: %s; d: %s", both, one, one, one, one) {
				t.Errorf("in the end: %s", got)
			}
		},
	}.Crashes(t)
}

// TestLedger: however objects come, go and change, and whatever parents say, each queue is said to hold what its pods and those of all below it hold, added up anew; queues in a circle hold what theirs do
// together with those below.
func TestLedger(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(n int) string { return fmt.Sprint("q", random.IntN(n)) }
	for range 300 {
		l := newLedger([]string{"volcano"})
		queues, groups, pods := map[string]*scheduling.Queue{}, map[string]*scheduling.PodGroup{}, map[string]*corev1.Pod{}
		for range 60 {
			name := pick(6)
			switch random.IntN(3) {
			case 0:
				q := queue(name, pick(7))
				if gone := random.IntN(4) == 0; gone {
					delete(queues, name)
					l.queueSeen(q, true)
				} else {
					queues[name] = q
					l.queueSeen(q, false)
				}
			case 1:
				g := group(name)
				g.Spec.Queue = pick(6)
				if gone := random.IntN(4) == 0; gone {
					delete(groups, g.Name)
					l.groupSeen(g, true)
				} else {
					groups[g.Name] = g
					l.groupSeen(g, false)
				}
			case 2:
				p := worker(pick(9), name)
				if random.IntN(3) == 0 {
					p.Spec.NodeName = ""
				}
				if gone := random.IntN(4) == 0; gone {
					delete(pods, p.Name)
					l.podSeen(p, true)
				} else {
					pods[p.Name] = p
					l.podSeen(p, false)
				}
			}
			if random.IntN(3) == 0 {
				l.decide("q0")
			}
		}
		l.decide("q0")
		want, got := map[string]int64{}, map[string]int64{}
		for _, p := range pods { // order: a sum
			g := groups[p.Annotations[keys.GroupName]]
			if g == nil || p.Spec.NodeName == "" {
				continue
			}
			above := map[string]bool{}
			for name := g.Spec.Queue; name != "" && !above[name]; {
				above[name] = true
				want[name]++
				q := queues[name]
				if q == nil {
					break
				}
				name = parentOf(q)
			}
		}
		for name, sum := range l.total { // order: the same
			list := sum.List()
			if n := list.Pods().Value(); n > 0 {
				got[name] = n
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("-want +got:\n%s", d)
		}
	}
}

// BenchmarkLedger is a pod that comes and goes in a queue five deep, of 1,000.
func BenchmarkLedger(b *testing.B) {
	l := newLedger([]string{"volcano"})
	for i := range 1000 {
		parent := "root"
		if i%5 > 0 {
			parent = fmt.Sprint("q", i-1)
		}
		l.queueSeen(queue(fmt.Sprint("q", i), parent), false)
	}
	l.groupSeen(group("q999"), false)
	l.decide("root")
	p := worker("p", "q999")
	for b.Loop() {
		l.podSeen(p, false)
		l.podSeen(p, true)
	}
}

package vcqueue

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// TestStates is Volcano's table of states, typed from its description: with and without PodGroups in the queue.
func TestStates(t *testing.T) {
	t.Parallel()
	const (
		closing = scheduling.QueueStateClosing
		closed  = scheduling.QueueStateClosed
		opened  = scheduling.QueueStateOpen
		unknown = scheduling.QueueStateUnknown
	)
	for _, c := range []struct {
		state                             scheduling.QueueState
		open, closeEmpty, closeBusy       scheduling.QueueState
		syncEmpty, syncBusy, openWithBusy scheduling.QueueState
	}{
		{"", opened, closed, closing, opened, opened, opened},
		{opened, opened, closed, closing, opened, opened, opened},
		{closing, opened, closed, closing, closed, closing, opened},
		{closed, opened, closed, closed, closed, closed, opened},
		{unknown, opened, closed, closing, unknown, unknown, opened},
	} {
		for what, want := range map[string]scheduling.QueueState{
			"OpenQueue empty": c.open, "CloseQueue empty": c.closeEmpty, "CloseQueue busy": c.closeBusy, "SyncQueue empty": c.syncEmpty, "SyncQueue busy": c.syncBusy,
			"OpenQueue busy": c.openWithBusy, "Dance empty": c.syncEmpty, "Dance busy": c.syncBusy,
		} {
			groups, err := newCounts(nil)
			if err != nil {
				t.Fatal(err)
			}
			b := newBook(groups)
			b.queueSeen(queue("root", ""), false)
			q := queue("q", "root")
			q.Status.State = c.state
			b.queueSeen(q, false)
			var action, room string
			if _, err := fmt.Sscan(what, &action, &room); err != nil {
				t.Fatal(err)
			}
			if room == "busy" {
				groups.seen(group("q"), false)
			}
			b.commandSeen(command(bus.Action(action), "q"), false)
			got := b.decide("q").state
			if got == "" {
				got = c.state
			}
			if got != want {
				t.Errorf("%s in state %q: %s, want %s", what, c.state, got, want)
			}
		}
	}
}

func queue(name, parent string) *scheduling.Queue {
	return &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: scheduling.QueueSpec{Parent: parent}}
}

func group(queue string) *scheduling.PodGroup {
	return &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g-" + queue}, Spec: scheduling.PodGroupSpec{Queue: queue}}
}

func command(action bus.Action, queue string) *bus.Command {
	return &bus.Command{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c-" + queue}, Action: string(action),
		TargetObject: &metav1.OwnerReference{APIVersion: scheduling.GroupVersion.String(), Kind: "Queue", Name: queue},
	}
}

func serves() kubetest.Options {
	return kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)}
}

func run(t *testing.T, p *kubetest.Process) func() {
	return p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
		r, err := New(control.Shell{Cache: objects, Client: c, Log: logr.Discard()}, 2)
		if err != nil {
			return nil, err
		}
		return r.Run, nil
	})
}

// tree is root, a, b below a, c below b, and d below root.
func tree(s *kubetest.Server) {
	s.Put(queue("root", ""), queue("a", ""), queue("b", "a"), queue("c", "b"), queue("d", "root"))
}

// states are those of the tree's queues, with a + for one that was closed by its parent.
func states(s *kubetest.Server) string {
	text := ""
	for _, name := range []string{"root", "a", "b", "c", "d"} {
		q := queue(name, "")
		s.Get(q)
		text += fmt.Sprintf("%s=%s", name, q.Status.State)
		if q.Annotations[keys.ClosedByParent] == "true" {
			text += "+"
		}
		text += " "
	}
	return text
}

// TestCascades: closing and opening go down the tree; what was closed for itself stays closed; a queue with work is closed when it has none;
// root is not closed; nothing is opened below what is closed before that is opened; at rest nothing is written.
func TestCascades(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		run(t, s.Process("vcqueue"))
		tree(s)
		step := func(what, want string) {
			t.Helper()
			<-time.After(time.Second)
			synctest.Wait()
			if got := states(s); got != want+" " {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		step("at first", "root=Open a=Open b=Open c=Open d=Open")
		a := queue("a", "")
		if s.Get(a); a.Spec.Parent != "root" {
			t.Errorf("the parent of a is %q", a.Spec.Parent)
		}
		s.Put(group("c"), command(bus.CloseQueueAction, "root"), command(bus.CloseQueueAction, "a"))
		step("a is closed", "root=Open a=Closed b=Closed+ c=Closing+ d=Open")
		s.Put(command(bus.OpenQueueAction, "c"))
		step("not below what is closed", "root=Open a=Closed b=Closed+ c=Closing+ d=Open")
		s.Remove(group("c"))
		step("its last gang goes", "root=Open a=Closed b=Closed+ c=Closed+ d=Open")
		s.Put(command(bus.OpenQueueAction, "a"))
		step("a is opened", "root=Open a=Open b=Open c=Open d=Open")
		s.Put(command(bus.CloseQueueAction, "b"))
		step("b is closed for itself", "root=Open a=Open b=Closed c=Closed+ d=Open")
		s.Put(command(bus.CloseQueueAction, "a"))
		step("then a", "root=Open a=Closed b=Closed c=Closed+ d=Open")
		s.Put(command(bus.OpenQueueAction, "a"))
		step("a again", "root=Open a=Open b=Closed c=Closed+ d=Open")
		s.Put(queue("c", "d"))
		step("c moves", "root=Open a=Open b=Closed c=Open d=Open")
		s.Writes()
		<-time.After(time.Hour)
		if w := s.Writes(); len(w) > 0 {
			t.Errorf("at rest: %v", w)
		}
	})
}

// TestCrashes: the controller dies before and after each write of a cascade, and the next one goes on with it.
func TestCrashes(t *testing.T) {
	t.Parallel()
	kubetest.Story{
		Options: serves(),
		Set: func(s *kubetest.Server) {
			tree(s)
			a := queue("a", "root")
			a.Status.State = scheduling.QueueStateClosed
			d := queue("d", "root")
			d.Annotations, d.Status.State = map[string]string{keys.ClosedByParent: "true"}, scheduling.QueueStateClosed
			s.Put(a, d, group("c"))
		},
		Run:    run,
		Settle: time.Minute,
		Check: func(t *testing.T, s *kubetest.Server) {
			if got := states(s); got != "root=Open a=Closed b=Closed+ c=Closing+ d=Open " {
				t.Errorf("in the end: %s", got)
			}
		},
	}.Crashes(t)
}

// TestCommandCrashes: a Command is obeyed and gone in the end, wherever the controller dies.
func TestCommandCrashes(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 3; n++ {
		for _, after := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := kubetest.New(serves())
				root, def, q := queue("root", ""), queue("default", "root"), queue("q", "root")
				for _, one := range []*scheduling.Queue{root, def, q} {
					one.Status.State = scheduling.QueueStateOpen
				}
				s.Put(root, def, q, command(bus.CloseQueueAction, "q"))
				p := s.Process("first")
				p.CrashAt(n, after)
				stop := run(t, p)
				<-time.After(time.Second)
				stop()
				run(t, s.Process("second"))
				<-time.After(time.Minute)
				synctest.Wait()
				if s.Get(q); q.Status.State != scheduling.QueueStateClosed || s.Get(command("", "q")) {
					t.Errorf("write %d after=%v: %s", n, after, q.Status.State)
				}
			})
		}
	}
}

// TestFounded: the queues root and default are there, open, from the first moment on and again after they were deleted; one that a user made, or changed, stays
// as it is. Wherever the controller dies, the next one goes on.
func TestFounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		own := queue("default", "team")
		own.Spec.Weight, own.Spec.Capability = 7, corev1.ResourceList{"cpu": resource.MustParse("3")}
		s.Put(queue("team", "root"), own)
		run(t, s.Process("vcqueue"))
		settle := func() {
			<-time.After(time.Second)
			synctest.Wait()
		}
		settle()
		root, got := queue("root", ""), queue("default", "")
		if !s.Get(root) || root.Spec.Weight != 1 || ptr.Deref(root.Spec.Reclaimable, true) || root.Spec.Parent != "" || root.Status.State != scheduling.QueueStateOpen {
			t.Errorf("root is %+v", root)
		}
		if !s.Get(got) || !reflect.DeepEqual(got.Spec, own.Spec) {
			t.Errorf("a user's default is %+v", got.Spec)
		}
		s.Remove(queue("default", ""))
		s.Remove(queue("root", ""))
		settle()
		got = queue("default", "")
		if !s.Get(got) || got.Spec.Weight != 1 || !ptr.Deref(got.Spec.Reclaimable, false) || got.Spec.Parent != "root" || got.Spec.Capability != nil || got.Status.State != scheduling.QueueStateOpen {
			t.Errorf("default, deleted, is %+v", got)
		}
		if !s.Get(queue("root", "")) {
			t.Error("root, deleted, is not made again")
		}
		if s.Get(queue("other", "")) {
			t.Error("other queues are made")
		}
		s.Remove(queue("team", ""))
		settle()
		if s.Get(queue("team", "")) {
			t.Error("a user's queue is made again")
		}
	})
	kubetest.Story{
		Options: serves(), Set: func(*kubetest.Server) {}, Run: run, Settle: time.Minute,
		Check: func(t *testing.T, s *kubetest.Server) {
			for _, name := range []string{"root", "default"} {
				if q := queue(name, ""); !s.Get(q) || q.Status.State != scheduling.QueueStateOpen {
					t.Errorf("%s is %+v", name, q)
				}
			}
		},
	}.Crashes(t)
}

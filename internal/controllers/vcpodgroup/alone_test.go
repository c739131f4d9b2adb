package vcpodgroup

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ours "github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/kube/links"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// job is a Job of Kubernetes'.
func job(name string, notes map[string]string) *batchv1.Job {
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Annotations: notes},
	}
}

// inQueue has a pod name its queue.
func inQueue(p *corev1.Pod) { p.Annotations = map[string]string{keys.QueueName: "q"} }

// bind gives a pod its node, as the scheduler does that was told of it; then it runs.
func bind(s *kubetest.Server, name string) {
	kubetest.Edit(s, pod(name, nil), func(p *corev1.Pod) {
		p.Spec.NodeName = "n"
		p.Annotations[keys.GroupName], p.Annotations[ours.OwnGangAnnotation] = volcano.GroupOfOwner(p), volcano.OwnText(p)
	})
	synctest.Wait()
	kubetest.Edit(s, pod(name, nil), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
}

// TestOneWriteForAPod: of a Job's only pod, which is bound soon, one write is made in all: its PodGroup, once no pod is bound for half a second, with the status that it has by then. The scheduler has nothing to add.
func TestOneWriteForAPod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		runWith(t, s.Process("vcpodgroup"), DefaultOptions(), nil)
		const many = 50
		for i := range many {
			j := job(fmt.Sprint("j", i), map[string]string{keys.GroupMinMember: "1", keys.QueueName: "q"})
			s.Put(j, pod(fmt.Sprint("p", i), j, inQueue))
		}
		pass(aloneWaits - time.Second)
		if all := s.Writes(); len(all) > 0 {
			t.Errorf("while they wait: %v", all)
		}
		for i := range many {
			bind(s, fmt.Sprint("p", i))
			pass(20 * time.Millisecond)
		}
		if all := s.Writes(); len(all) > 2*trailBusy {
			t.Errorf("while they are bound: %d writes", len(all))
		} else if pass(2 * trailStep); len(all)+len(s.Writes()) != many {
			t.Errorf("they are not one each")
		}
		for i := range many {
			g := get(t, s, fmt.Sprint("podgroup-uid-j", i))
			is := volcano.Status{Phase: scheduling.PodGroupRunning, Running: 1, Placed: true, Settled: true}
			if patch, changed := is.Over(&g.Status, metav1.Now()); changed || g.Spec.Queue != "q" || g.Spec.MinMember != 1 {
				t.Fatalf("%+v lacks %v", g, patch)
			}
		}
		pass(time.Hour)
		if all := s.Writes(); len(all) > 0 {
			t.Errorf("at rest: %v", all)
		}
	})
}

// TestAloneAndNotYet: a pod that waits gets its PodGroup after a while, and at once where something is to be said in it, the scheduler does not know of it by itself, or whoever schedules waits for it.
func TestAloneAndNotYet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit  func(*corev1.Pod)
		owner map[string]string
		name  time.Duration
		after time.Duration
	}{
		"it waits": {nil, nil, time.Minute, aloneWaits},
		"no room": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
		}, nil, time.Minute, 0},
		"no queue":      {func(p *corev1.Pod) { p.Annotations = nil }, nil, time.Minute, 0},
		"a gang":        {nil, map[string]string{keys.GroupMinMember: "2"}, time.Minute, 0},
		"inherited":     {nil, map[string]string{keys.OwnPrefix + "x": "y"}, time.Minute, 0},
		"others' node":  {func(p *corev1.Pod) { p.Spec.NodeName = "n" }, nil, time.Minute, 0},
		"who waits too": {nil, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := kubetest.New(serves())
				o := DefaultOptions()
				o.NameAfter = c.name
				runWith(t, s.Process("vcpodgroup"), o, nil)
				pass(time.Second)
				j := job("j", c.owner)
				s.Put(j, pod("p", j, func(p *corev1.Pod) {
					inQueue(p)
					p.CreationTimestamp = metav1.Now()
					if c.edit != nil {
						c.edit(p)
					}
				}))
				if c.after > 0 {
					pass(c.after - time.Second)
					if got := groups(s); got != "" {
						t.Errorf("there is %s already", got)
					}
					pass(2 * time.Second)
				}
				pass(100 * time.Millisecond)
				get(t, s, "podgroup-uid-j")
			})
		})
	}
}

// TestAloneCrashes: whenever the controller dies, a pod that was bound, and has ended, without its PodGroup has one in the end, with the phase that it came to; one that somebody deleted then does not come back.
func TestAloneCrashes(t *testing.T) {
	t.Parallel()
	put := func(s *kubetest.Server) {
		for name, phase := range map[string]corev1.PodPhase{"runs": corev1.PodRunning, "done": corev1.PodSucceeded, "broken": corev1.PodFailed} { // order: each on its own
			j := job("j-"+name, nil)
			s.Put(j, pod(name, j, inQueue))
			bind(s, name)
			kubetest.Edit(s, pod(name, nil), func(p *corev1.Pod) { p.Status.Phase = phase })
		}
	}
	kubetest.Story{
		Options: serves(),
		Set:     put,
		Run:     func(t *testing.T, p *kubetest.Process) func() { return runWith(t, p, DefaultOptions(), nil) },
		Settle:  2 * time.Minute,
		Check: func(t *testing.T, s *kubetest.Server) {
			for name, want := range map[string]scheduling.PodGroupPhase{"runs": scheduling.PodGroupRunning, "done": scheduling.PodGroupCompleted, "broken": scheduling.PodGroupCompleted} { // order: each on its own
				if g := get(t, s, "podgroup-uid-j-"+name); g.Status.Phase != want {
					t.Errorf("of %s: %+v", name, g.Status)
				}
			}
		},
	}.Crashes(t)
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		runWith(t, s.Process("vcpodgroup"), DefaultOptions(), nil)
		put(s)
		pass(time.Minute)
		s.Remove(get(t, s, "podgroup-uid-j-done"))
		pass(time.Minute)
		if got := groups(s); got != "podgroup-uid-j-broken podgroup-uid-j-runs" {
			t.Errorf("in the end: %s", got)
		}
	})
}

// TestTeller: the scheduler of the process is told of pods that say all, once their controller is known, and of no others; what is told is forgotten when they have a node, or are gone, and nothing is written.
func TestTeller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, l := kubetest.New(serves()), links.New()
		l.Open(func(map[string]string) bool { return true })
		s.Process("scheduler").Run(t, func(objects cache.Cache, _ client.Client) (func(context.Context) error, error) {
			return NewTeller(TellerDeps{Cache: objects, Links: l, Log: logr.Discard()}, []string{"volcano"}).Run, nil
		})
		pass(time.Second)
		alone, gang, waits, led := job("alone", nil), job("gang", map[string]string{keys.GroupMinMember: "2"}), job("waits", nil), job("led", nil)
		s.Hold("Job")
		s.Put(alone, gang, led, pod("a", alone, inQueue), pod("g", gang, inQueue), pod("n", nil, inQueue), pod("d", nil),
			pod("l", led, inQueue), &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "podgroup-uid-led"}}, pod("w", waits, inQueue),
			pod("o", nil, inQueue, func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }))
		told := func() (out string) {
			for _, name := range []string{"a", "g", "n", "d", "l", "w", "o"} {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
				if s.Get(p); l.Text(p) == volcano.OwnText(p) {
					out += name
				}
			}
			return out
		}
		pass(time.Second)
		if got := told(); got != "n" {
			t.Errorf("before Jobs are known: told of %s", got)
		}
		s.Release("Job")
		pass(time.Second)
		if got := told(); got != "an" {
			t.Errorf("told of %s", got)
		}
		bind(s, "a")
		s.Remove(pod("n", nil))
		pass(time.Second)
		if l.Len() != 0 {
			t.Errorf("of %d something is told still", l.Len())
		}
		if all := s.Writes(); len(all) > 0 {
			t.Errorf("written: %v", all)
		}
	})
}

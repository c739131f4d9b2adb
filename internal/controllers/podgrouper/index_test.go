package podgrouper

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// TestIndex: values are there once, whichever came first goes first, and nothing is left of those that went.
func TestIndex(t *testing.T) {
	t.Parallel()
	x := index[string, int]{}
	is := func(want ...int) {
		t.Helper()
		got := x.of("a")
		slices.Sort(got)
		if !slices.Equal(got, want) || (len(want) == 0) != (len(x) == 0) {
			t.Errorf("got %v in %v, want %v", got, x, want)
		}
	}
	for _, v := range []int{1, 1, 2, 3, 2} {
		x.add("a", v)
	}
	is(1, 2, 3)
	x.remove("a", 1)
	x.add("a", 2) // while the first place is free
	is(2, 3)
	x.add("a", 4)
	x.add("a", 4)
	is(2, 3, 4)
	x.remove("a", 9)
	x.remove("b", 2)
	for _, v := range []int{4, 2, 3} {
		x.remove("a", v)
	}
	is()
}

// TestOwned: pods are found by their first owner for as long as they are there and have it, whatever else becomes of them.
func TestOwned(t *testing.T) {
	t.Parallel()
	o := newOwned([]string{"ours"})
	pod := func(namespace, name, scheduler string, owners ...types.UID) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}, Spec: corev1.PodSpec{SchedulerName: scheduler}}
		for _, uid := range owners {
			p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{UID: uid})
		}
		return p
	}
	is := func(step, want string) {
		t.Helper()
		var got []string
		for owner := range o.pods { // order: sorted below
			var names []string
			for _, n := range o.of(owner) {
				names = append(names, n.String())
			}
			slices.Sort(names)
			got = append(got, string(owner)+": "+strings.Join(names, " "))
		}
		slices.Sort(got)
		if d := cmp.Diff(want, strings.Join(got, ", ")); d != "" {
			t.Errorf("%s: %s", step, d)
		}
	}
	a, b := pod("ns", "a", "ours", "x"), pod("ns", "b", "ours", "y", "x")
	o.saw(nil, a)
	o.saw(nil, b)
	is("of several owners the first counts", "x: ns/a, y: ns/b")
	o.saw(nil, pod("ns", "c", "others", "x"))
	o.saw(nil, pod("ns", "d", "ours"))
	is("of another scheduler, and without an owner", "x: ns/a, y: ns/b")
	o.saw(b, pod("ns", "b", "ours", "x", "y"))
	o.saw(nil, pod("other", "a", "ours", "x"))
	is("another owner, and another namespace", "x: ns/a ns/b other/a")
	o.saw(a, pod("ns", "a", "ours"))
	is("it was left by its owner", "x: ns/b other/a")
	o.saw(pod("ns", "a", "ours"), a)
	o.saw(a, a)
	is("it was adopted, and changed otherwise", "x: ns/a ns/b other/a")
	again := pod("ns", "a", "ours", "z")
	again.UID = "another"
	o.saw(a, again)
	is("another pod of its name", "x: ns/b other/a, z: ns/a")
	o.saw(again, nil)
	o.saw(pod("ns", "b", "ours", "x", "y"), nil)
	is("pods are gone", "x: other/a")
	o.saw(pod("other", "a", "ours", "x"), nil)
	o.saw(pod("ns", "c", "others", "x"), nil)
	is("all are gone", "")
}

// TestPodsOfAnOwner: what is listed are the pods that are there, whose owner it is now, by name, and that are to be grouped.
func TestPodsOfAnOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		owner := ref("batch/v1", "Job", "j")
		w := newFakeAPI(t, nil, job("j", nil), podOf("c", owner), podOf("a", owner), podOf("b", owner))
		synctest.Wait()
		is := func(step string, want ...string) {
			t.Helper()
			pods, err := w.role.grouper.podsOf("u-j")
			var got []string
			for _, p := range pods {
				got = append(got, p.Name)
			}
			if d := cmp.Diff(want, got); err != nil || d != "" {
				t.Errorf("%s: %v %s", step, err, d)
			}
		}
		is("at first", "a", "b", "c")
		ended := w.pod("b")
		ended.Status.Phase = corev1.PodSucceeded
		w.Put(ended)
		left := w.pod("c")
		left.OwnerReferences = []metav1.OwnerReference{*ref("batch/v1", "Job", "other"), *owner}
		w.Put(left)
		synctest.Wait()
		is("one ended, one has another owner first", "a")
		w.Remove(w.pod("a"))
		synctest.Wait()
		is("one is gone")
		// Of a pod that changed before the event of it came, the index is not believed.
		w.role.grouper.pods.saw(nil, podOf("a", owner))
		w.role.grouper.pods.saw(nil, podOf("c", owner))
		is("events are late")
	})
}

// TestOwnedEvents: the role that runs follows its pods.
func TestOwnedEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		owner := ref("batch/v1", "Job", "j")
		w := server(t, job("j", nil), podOf("a", owner))
		p := w.Process("podgrouper")
		stop := w.run(p)
		defer stop()
		synctest.Wait()
		is := func(step string, want int) {
			t.Helper()
			synctest.Wait()
			if got := w.role.grouper.pods.of("u-j"); len(got) != want {
				t.Errorf("%s: %v", step, got)
			}
		}
		is("what was there", 1)
		w.Put(podOf("b", owner))
		is("one more", 2)
		orphan := w.pod("b")
		orphan.OwnerReferences = nil
		w.Put(orphan)
		is("one has no owner any more", 1)
		w.Remove(w.pod("a"))
		is("one is gone", 0)
		if n := len(w.role.grouper.pods.pods); n != 0 {
			t.Errorf("%d owners are left", n)
		}
	})
}

// TestOwnedAcrossRelist: what happened to pods while the role was told nothing, until its watch was refused as too old (410 Gone) and it listed anew, is in the index: of those that were deleted and made anew by
// their names, that they are others, and of another owner. They are grouped by it.
func TestOwnedAcrossRelist(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := ref("batch/v1", "Job", "first"), ref("batch/v1", "Job", "second")
		w := server(t, job("first", nil), job("second", nil), podOf("moved", first), podOf("again", first), podOf("gone", first), podOf("stays", first))
		stop := w.run(w.Process("podgrouper"))
		defer stop()
		is := func(step string, owner types.UID, want ...string) {
			t.Helper()
			var got []string
			for _, n := range w.role.grouper.pods.of(owner) {
				got = append(got, n.Name)
			}
			slices.Sort(got)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s, of %s: %s", step, owner, d)
			}
		}
		w.sleep(time.Second)
		is("what was there", "u-first", "again", "gone", "moved", "stays")
		anew := func(name string, owner *metav1.OwnerReference) *corev1.Pod {
			p := podOf(name, owner)
			p.UID += "-anew"
			return p
		}
		w.Hold("Pod")
		w.Remove(w.pod("moved"), w.pod("again"), w.pod("gone"))
		w.Put(anew("moved", second), anew("again", first), podOf("new", second))
		w.sleep(time.Second)
		is("nothing is told", "u-first", "again", "gone", "moved", "stays")
		w.Expire("Pod")
		w.Release("Pod")
		w.sleep(time.Minute)
		is("listed anew", "u-first", "again", "stays")
		is("listed anew", "u-second", "moved", "new")
		for name, want := range map[string]string{"moved": "pg-second-u-second", "new": "pg-second-u-second", "again": "pg-first-u-first", "stays": "pg-first-u-first"} {
			if got := w.pod(name).Annotations[keys.PodGroupAnnotation]; got != want {
				t.Errorf("pod %s is in %q, want %q", name, got, want)
			}
		}
		w.Remove(w.pod("moved"), w.pod("again"), w.pod("new"), w.pod("stays"))
		synctest.Wait()
		if n := len(w.role.grouper.pods.pods); n != 0 {
			t.Errorf("%d owners are left", n)
		}
	})
}

// BenchmarkOwned is what is kept to find 4,000 pods that stand alone.
func BenchmarkOwned(b *testing.B) {
	const n = 4000
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = podOf(fmt.Sprintf("fill-%d-abcde", i), ref("batch/v1", "Job", fmt.Sprintf("fill-%d", i)))
	}
	for b.Loop() {
		before := kubetest.Held()
		o := newOwned([]string{pods[0].Spec.SchedulerName})
		for _, p := range pods {
			o.saw(nil, p)
		}
		b.ReportMetric((kubetest.Held()-before)/n, "held-B/pod")
		runtime.KeepAlive(o)
	}
}

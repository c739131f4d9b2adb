package podgrouper

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// shown is a discovery client that counts how often it is asked.
type shown struct {
	discovery.ServerResourcesInterface
	asked int
	lists []*metav1.APIResourceList
	err   error
}

func (s *shown) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	s.asked++
	return nil, s.lists, s.err
}

func serves(groupVersion string, kinds ...string) *metav1.APIResourceList {
	l := &metav1.APIResourceList{GroupVersion: groupVersion}
	for _, k := range kinds {
		l.APIResources = append(l.APIResources, metav1.APIResource{Kind: k})
	}
	return l
}

// TestUnknownKinds: pods whose owners are of as many kinds that do not exist cost one look at what there is, an event each, and then
// less and less; they are grouped soon after their kind comes to be.
func TestUnknownKinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pods = 200
		var objects []client.Object
		for i := range pods {
			p := podOf(fmt.Sprint("p", i), ref(fmt.Sprintf("g%d.example.org/v1", i), "Fleet", fmt.Sprint("o", i)))
			objects = append(objects, p)
		}
		objects = append(objects, podOf("honest", ref("batch/v1", "Job", "train")), job("train", nil))
		w := newFakeAPI(t, nil, objects...)
		s := &shown{lists: []*metav1.APIResourceList{serves("batch/v1", "Job"), serves("v1", "Pod")}}
		w.role.grouper.owners.kinds = &kinds{discovery: s, clock: clock.RealClock{}}
		for i := range pods {
			got, err := w.reconcile(fmt.Sprint("p", i))
			if err != nil || got.RequeueAfter != time.Minute {
				t.Fatalf("pod %d: %v, %v", i, got, err)
			}
		}
		w.mustReconcile("honest")
		if s.asked != 1 || w.reads > 2 || len(w.events) != pods {
			t.Errorf("looked %d times, read %d objects, %d events", s.asked, w.reads, len(w.events))
		}
		if !strings.Contains(w.events[0], "must name a kind that the cluster knows, Fleet of g0.example.org/v1 is none") {
			t.Error(w.events[0])
		}
		// The kind of the first comes to be.
		w.sleep(0)
		s.lists = append(s.lists, serves("g0.example.org/v1", "Fleet"))
		if got := w.role.grouper.doubtful(t.Context()); len(got) != 0 {
			t.Errorf("looked again at once: %v", got)
		}
		w.sleep(relook)
		if got := w.role.grouper.doubtful(t.Context()); len(got) != 1 || got[0] != "u-o0" || s.asked != 2 {
			t.Errorf("to be looked at again: %v; looked %d times", got, s.asked)
		}
	})
}

// TestPatience: a workload that stays broken is looked at less and less often, to a bound.
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFakeAPI(t, nil)
		w.Put(podOf("p", ref("batch/v1", "Job", "none")))
		w.sleep(0)
		for _, want := range []time.Duration{1, 1, 2, 4, 5, 5} {
			got, err := w.reconcile("p")
			if err != nil || got.RequeueAfter != want*time.Minute {
				t.Fatalf("waits %v, want %v min; %v", got.RequeueAfter, int(want), err)
			}
			w.sleep(got.RequeueAfter)
		}
		if len(w.events) != 6 {
			t.Errorf("%d events", len(w.events))
		}
	})
}

// TestDoubtfulKinds: what cannot be known is asked for one by one.
func TestDoubtfulKinds(t *testing.T) {
	t.Parallel()
	fleet := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Fleet"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nobody answers":            {errors.New("no"), true},
		"its group does not answer": {&discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{fleet.GroupVersion(): errors.New("no")}}, true},
		"another group does not":    {&discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "x", Version: "v1"}: errors.New("no")}}, false},
		"there is no such kind":     {nil, false},
	} {
		k := &kinds{discovery: &shown{err: c.err}, clock: clock.RealClock{}}
		if got := k.served(t.Context(), fleet); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !(&kinds{}).served(t.Context(), fleet) {
		t.Error("nobody to ask")
	}
}

// TestForeignUID: a pod that names another namespace's owner by its UID spoils nothing there.
func TestForeignUID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spy := podOf("spy", ref("batch/v1", "Job", "train"))
		spy.Namespace = "other"
		w := newFakeAPI(t, nil, podOf("p", ref("batch/v1", "Job", "train")), job("train", nil), spy)
		r := request("spy")
		r.Namespace = "other"
		if _, err := w.role.grouper.reconcile(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		w.mustReconcile("p")
		if w.pod("p").Annotations["pod-group-name"] == "" {
			t.Error("the owner's own pod is not grouped", w.events)
		}
	})
}

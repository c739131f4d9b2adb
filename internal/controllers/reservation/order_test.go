package reservation

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

// TestAnyOrder: whatever the order of news, steps and crashes, a bound pod is told the device that its group's reservation
// pod holds, there is one such pod per group, and in the end nothing is left.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	seeds := uint64(400)
	if testing.Short() {
		seeds = 50
	}
	bound := 0
	for seed := range seeds {
		bound += anyOrder(t, rand.New(rand.NewPCG(seed, 7)), seed, false)
	}
	t.Logf("%d pods were bound", bound)
}

// TestRoughSeas is TestAnyOrder with writes that fail before or after they take effect, and with somebody who deletes
// reservation pods. Then a pod may lose its device; but no device is ever reserved twice, and in the end every bound pod
// has the device that it was told, and nothing is left when all are gone.
func TestRoughSeas(t *testing.T) {
	t.Parallel()
	seeds := uint64(400)
	if testing.Short() {
		seeds = 50
	}
	bound := 0
	for seed := range seeds {
		bound += anyOrder(t, rand.New(rand.NewPCG(seed, 8)), seed, true)
	}
	t.Logf("%d pods were bound", bound)
}

var errSea = errors.New("lost at sea")

func anyOrder(t *testing.T, r *rand.Rand, seed uint64, rough bool) (bound int) {
	w := newFakeAPI(t, 3)
	c := w.start()
	if rough {
		w.fails = func(string) error {
			if r.IntN(10) == 0 {
				return errSea
			}
			return nil
		}
	}
	prepared := map[types.UID]bool{}
	names := []string{"a", "b", "c", "d", "e", "f"}
	check := func(step int) {
		for _, g := range []string{"g", "h", "i"} {
			n := 0
			for _, p := range named(g, w.pods) {
				if p.Namespace == keys.ReservationNamespace {
					n++
				}
			}
			if n > 1 {
				t.Fatalf("seed %d, step %d: group %s has %d reservation pods", seed, step, g, n)
			}
		}
		for _, name := range names {
			p := w.pods["team/"+name]
			if rough {
				break // until all is quiet
			}
			if p == nil || p.Spec.NodeName == "" || over(p) {
				continue
			}
			for i, g := range w.asked["team/"+name].Spec.SelectedGPUGroups {
				// The two devices of a pod may be regained the other way round; they are its devices all the same.
				told := strings.Split(w.told(name), ",")
				if step >= 0 {
					told = told[i : i+1]
				}
				held := w.pods[keys.ReservationNamespace+"/"+podName("n1", g)]
				if held == nil || held.DeletionTimestamp != nil || !slices.Contains(told, deviceOf(held)) {
					t.Fatalf("seed %d, step %d: pod %s is told %q; reservation pod of group %s: %+v", seed, step, name, w.told(name), g, held)
				}
			}
		}
	}
	for step := range 300 {
		name := names[r.IntN(len(names))]
		k := "team/" + name
		p := w.pods[k]
		switch r.IntN(13) {
		case 0, 1:
			if p == nil {
				groups := [][]string{{"g"}, {"g"}, {"h"}, {"g", "h"}, {"i"}}[r.IntN(5)]
				w.fractional(name, "n1", groups...)
			}
		case 2, 3, 4:
			// The binder works on requests that its cache shows, and tries again what was interrupted.
			request := w.cachedRequests[k]
			if request == nil || w.asked[k] == nil || w.asked[k].UID != request.UID || !live(request) || p == nil || !meant(request, p) || p.Spec.NodeName != "" {
				continue
			}
			ready, err := c.Prepare(ctx, request, p)
			if err != nil {
				if v, ok := err.(verdict); ok {
					if err := c.Undo(ctx, request, p); err != nil && !rough {
						t.Fatal(err)
					} else if err != nil {
						continue // the binder does so again before it reports
					}
					w.report(name, schedulingv1alpha2.BindRequestFailed)
					prepared[p.UID] = false
					t.Logf("seed %d: %v", seed, v)
				}
				continue
			}
			prepared[p.UID] = ready
		case 12:
			// Prepared pods of gangs wait for the others; the request stays, and so must the device.
			if p != nil && prepared[p.UID] && p.Spec.NodeName == "" && live(w.asked[k]) {
				w.bind(name)
				bound++
			}
		case 5:
			if p != nil && p.Spec.NodeName != "" && live(w.asked[k]) {
				w.report(name, schedulingv1alpha2.BindRequestSucceeded)
			}
		case 6:
			if p != nil && p.Spec.NodeName != "" && !over(p) {
				w.editPod(k, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
			}
		case 7:
			w.dropPod(k)
		case 8:
			if rough && r.IntN(4) == 0 {
				w.dropPod(keys.ReservationNamespace + "/" + podName("n1", []string{"g", "h", "i"}[r.IntN(3)]))
			}
			w.kubelet()
		case 9:
			for range r.IntN(4) {
				w.deliver(c, true)
			}
		case 10:
			for range r.IntN(4) {
				w.deliver(c, false)
			}
		case 11:
			if r.IntN(10) == 0 {
				c = w.start()
			} else {
				w.syncSome(c, 1+r.IntN(3))
			}
		}
		check(step)
	}
	w.fails = nil
	for _, name := range names {
		// Those that were bound were reported at some time; the others went.
		if p := w.pods["team/"+name]; p != nil && p.Spec.NodeName != "" && live(w.asked["team/"+name]) {
			w.report(name, schedulingv1alpha2.BindRequestSucceeded)
		} else if p != nil && p.Spec.NodeName == "" {
			w.dropPod("team/" + name)
		}
	}
	w.settle(c)
	rough = false
	check(-1)
	for _, name := range names {
		w.dropPod("team/" + name)
	}
	w.settle(c)
	if len(w.pods)+len(w.maps)+len(w.taken) > 0 {
		t.Fatalf("seed %d left %v, %v, %v", seed, w.pods, w.maps, w.taken)
	}
	return bound
}

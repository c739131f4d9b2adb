package binder

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/kube/aside"
)

// TestChaos lets events, decisions, actions, restarts, faults, deletions and time follow each other in any order. The
// fakeAPI checks at each write that it is not against the binder's invariants; at the end, when the faults are over,
// every bundle must have come to an end: bound whole, or not at all, except for members of which each has its own
// reason.
func TestChaos(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := newFakeAPI(rt, "n1", "n2")
		// A gentle one has no faults but lost connections and crashes. Then a bundle is bound whole or not at all.
		gentle := rapid.Bool().Draw(rt, "gentle")
		pick := func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(rt, label) }
		// The bundles that the scheduler decided, and the requests of them that it did not write yet.
		type wish struct {
			pod, bundle string
			size        int
			limit       *int32
		}
		var wishes []wish
		bundles := 0
		decideAnew := func() {
			// Pods without a node and without a request, or whose request failed, get a new bundle.
			var free []string
			for _, name := range slices.Sorted(maps.Keys(w.pods)) {
				wished := slices.ContainsFunc(wishes, func(x wish) bool { return x.pod == name })
				if w.pods[name].Spec.NodeName == "" && w.requests[name] == nil && !wished {
					free = append(free, name)
				}
			}
			bundles++
			limit := rapid.SampledFrom([]*int32{nil, ptr.To[int32](2)}).Draw(rt, "limit")
			for _, name := range free {
				wishes = append(wishes, wish{name, fmt.Sprintf("b%d", bundles), len(free), limit})
			}
		}
		for i := range 1 + pick("pods", 5) {
			w.addPod(fmt.Sprintf("p%d", i))
		}
		decideAnew()
		p := w.start()
		faulty, resets := true, 0
		w.fault = func(write, name string, after bool) error {
			if !faulty {
				return nil
			}
			switch pick("fault", 24) {
			case 0:
				// As many as it takes to give up count as a failure.
				if resets++; gentle && resets >= maxTries {
					return nil
				}
				return fmt.Errorf("connection reset at %s %s", write, name)
			case 1:
				if gentle {
					return nil
				}
				return verdictf("refused: %s %s", write, name)
			case 2:
				p.kill()
				return errDead
			}
			return nil
		}
		for range 5 + pick("steps", 150) {
			if p.dead {
				p = w.start()
			}
			steps := 16
			if gentle {
				steps = 13
			}
			switch pick("step", steps) {
			case 0, 1, 2:
				if len(wishes) > 0 {
					i := pick("wish", len(wishes))
					x := wishes[i]
					wishes = slices.Delete(wishes, i, i+1)
					if w.pods[x.pod] != nil && w.requests[x.pod] == nil {
						node := rapid.SampledFrom([]string{"n1", "n2"}).Draw(rt, "node")
						w.request(x.pod, node, x.bundle, x.size, func(r *schedulingv1alpha2.BindRequest) { r.Spec.BackoffLimit = x.limit })
					}
				}
			case 3, 4:
				p.deliver(rapid.SampledFrom([]string{"pod", "request", "node"}).Draw(rt, "kind"))
			case 5, 6, 7:
				keys := slices.SortedFunc(maps.Keys(p.dirty), cmpKey)
				if len(keys) > 0 {
					p.decide(keys[pick("bundle", len(keys))])
				}
			case 8, 9, 10, 11:
				if len(p.tasks) > 0 {
					p.act(pick("task", len(p.tasks)))
				}
			case 12:
				if pick("kill", 6) == 0 {
					p.kill()
					continue
				}
				w.now = w.now.Add(time.Duration(1+pick("time", 40)) * time.Second)
				p.ring()
			case 13:
				name := fmt.Sprintf("p%d", pick("pod", 5))
				if w.pods[name] != nil && pick("delete", 3) == 0 {
					w.deletePod(name)
					if pick("recreate", 2) == 0 {
						w.addPod(name)
					}
				}
			case 14:
				if pick("collect", 2) == 0 {
					w.collect()
				}
				for _, name := range slices.Sorted(maps.Keys(w.requests)) {
					r := w.requests[name]
					if r.Status.Phase == schedulingv1alpha2.BindRequestFailed && exhausted(r, r.Status.FailedAttempts) && pick("clean", 2) == 0 {
						w.removeRequest(name)
					}
				}
				if pick("anew", 3) == 0 {
					decideAnew()
				}
			case 15:
				switch pick("rare", 4) {
				case 0:
					p.kill()
				case 1:
					if w.nodes["n2"] != nil {
						w.dropNode("n2")
					}
				case 2:
					for _, name := range slices.Sorted(maps.Keys(w.pods)) {
						if w.pods[name].Spec.NodeName == "" && pick("steal", 8) == 0 {
							w.editPod(name, func(pod *corev1.Pod) { pod.Spec.NodeName = "stolen" })
						}
					}
				}
			}
		}
		faulty = false
		if p.dead {
			p = w.start()
		}
		p.settle()
		p.pass(10 * time.Second)
		w.collect()
		p.settle()
		p.pass(40 * time.Second)
		for name, r := range w.requests {
			s := r.Status
			terminal := s.Phase == schedulingv1alpha2.BindRequestSucceeded || s.Phase == schedulingv1alpha2.BindRequestFailed && exhausted(r, s.FailedAttempts)
			if !terminal {
				rt.Errorf("request %s of %v is still open: %+v", name, r.Labels, s)
			}
			if s.Phase == schedulingv1alpha2.BindRequestSucceeded {
				if pod := w.pods[name]; pod != nil && pod.UID == r.OwnerReferences[0].UID && pod.Spec.NodeName != r.Spec.SelectedNode {
					rt.Errorf("request %s succeeded, its pod is on %q", name, pod.Spec.NodeName)
				}
			}
		}
		if !gentle {
			return
		}
		size, done := map[string]int{}, map[string]int{}
		for name, r := range w.requests {
			id := r.Labels[keys.BundleLabel]
			size[id]++
			if w.pods[name].Spec.NodeName != "" {
				done[id]++
			}
		}
		for id, n := range done {
			if n != size[id] {
				rt.Errorf("bundle %s: %d of %d are bound", id, n, size[id])
			}
		}
	})
}

// TestDefectOfOneBundle: a bundle about which nothing can be decided, for that ends in a panic, is each of its pods' defect and leaves the
// book to the others.
func TestDefectOfOneBundle(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, "n1")
	guard, err := aside.New("binder", logr.Discard(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	guard.Tell = func(o client.Object) { told = append(told, o.GetName()) }
	r := newRun(&Controller{options: DefaultOptions(), deps: Deps{Guard: guard}})
	r.book.setNode("n1", true)
	var keys []BundleKey
	for _, name := range []string{"bad", "good"} {
		pod := w.addPod(name)
		changed := r.book.putRequest(w.request(name, "n1", name, 1), w.now)
		r.book.putPod(pod)
		keys = append(keys, changed...)
	}
	bad := r.book.bundles[keys[0]]
	bad.Members = append(bad.Members, nil)
	if err := guard.Catch("a worker", nil, func() error { r.decide(key{bundle: keys[0]}, w.now); return nil }); err == nil || !slices.Equal(told, []string{"bad"}) {
		t.Errorf("%v, told %v", err, told)
	}
	if _, due, _ := r.decide(key{bundle: keys[1]}, w.now); len(due) != 1 || due[0].Key.task.Member.PodName.Name != "good" {
		t.Errorf("of the other there is due %v", due)
	}
}

// TestRetractAfterAPause: a binder that was stopped for so long that its successor has bound the pod does not take back what is bound,
// nor does it record a failure over the success.
func TestRetractAfterAPause(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, "n1")
	w.gang(1, 1)
	var stale []task
	for _, r := range w.requests {
		pod := w.pods[r.Spec.PodName]
		stale = append(stale, task{
			Action:  Action{Verb: Retract, Member: &Member{PodName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, PodUID: pod.UID}, Reason: "not finished in time", Final: true},
			request: r.DeepCopy(), pod: pod.DeepCopy(),
		})
	}
	p := w.start()
	p.settle()
	x := &executor{writer: p, now: time.Now}
	for i := range stale {
		if out := x.run(t.Context(), stale[i]); out.done || out.fault != nil || !out.read {
			t.Errorf("%+v, want that the pod is bound", out)
		}
	}
	for name, r := range w.requests {
		if r.Status.Phase != schedulingv1alpha2.BindRequestSucceeded {
			t.Errorf("%s: %+v", name, r.Status)
		}
	}
}

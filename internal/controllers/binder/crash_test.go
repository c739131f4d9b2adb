package binder

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

// crashAt kills the process at the k-th write of a kind, before or after it takes effect.
func crashAt(w *fakeAPI, p *process, kind string, k int, after bool) {
	n := 0
	w.fault = func(write, _ string, isAfter bool) error {
		if write != kind || isAfter != after {
			return nil
		}
		if n++; n == k {
			p.kill()
			return errDead
		}
		return nil
	}
}

// withClaims gives the gang's pods a claim each that is provisioned for the chosen node.
func withClaims(w *fakeAPI) {
	w.classes["local"] = &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "disks",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	for name := range w.pods {
		w.putClaim(&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c-" + name, UID: w.newUID()},
			Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("local")},
		})
		w.editPod(name, func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c-" + name},
			}}}
		})
	}
}

const gangSize = 5

// TestCrash kills the binder around every write of a gang's bind and of a gang's withdrawal, starts it anew, and wants
// all or none.
func TestCrash(t *testing.T) {
	t.Parallel()
	type story struct {
		name   string
		kinds  []string
		claims bool
		set    func(*fakeAPI)
		want   int // pods bound
		phase  schedulingv1alpha2.BindRequestPhase
	}
	stories := []story{
		{
			name: "bind", kinds: []string{"none", "bind", "condition", "event", "status"}, want: gangSize,
			phase: schedulingv1alpha2.BindRequestSucceeded,
		},
		{
			name: "bind with claims", kinds: []string{"none", "claim", "bind", "status"}, claims: true, want: gangSize,
			phase: schedulingv1alpha2.BindRequestSucceeded,
		},
		{
			name: "incomplete", kinds: []string{"none", "condition", "event", "status"}, want: 0,
			set:   func(w *fakeAPI) { w.removeRequest("p3"); delete(w.whole, "g") },
			phase: schedulingv1alpha2.BindRequestFailed,
		},
		{
			name: "a node is gone", kinds: []string{"none", "condition", "event", "status"}, want: 0,
			set: func(w *fakeAPI) {
				r := w.requests["p2"].DeepCopy()
				r.Spec.SelectedNode = "n9"
				w.putRequest(r)
			},
			phase: schedulingv1alpha2.BindRequestFailed,
		},
		{
			name: "a claim cannot be prepared", kinds: []string{"none", "claim", "status"}, claims: true, want: 0,
			set:   func(w *fakeAPI) { delete(w.claims, "c-p4") },
			phase: schedulingv1alpha2.BindRequestFailed,
		},
	}
	for _, s := range stories {
		for _, kind := range s.kinds {
			for k := 1; k <= gangSize+1; k++ {
				for _, after := range []bool{false, true} {
					if kind == "none" && (k > 1 || after) {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s %d after=%v", s.name, kind, k, after), func(t *testing.T) {
						t.Parallel()
						w := newFakeAPI(t, "n1")
						w.gang(gangSize, gangSize)
						if s.claims {
							withClaims(w)
						}
						if s.set != nil {
							s.set(w)
						}
						p := w.start()
						crashAt(w, p, kind, k, after)
						for range 40 {
							p.settle()
							p.pass(time.Second)
							if s.want > 0 {
								w.provision()
							}
						}
						w.fault = nil
						if !p.dead {
							p.kill()
						}
						p = w.start()
						for range 40 {
							p.settle()
							p.pass(time.Second)
							if s.want > 0 {
								w.provision()
							}
						}
						if got := w.boundPods(); len(got) != s.want {
							t.Errorf("bound %v, want %d pods", got, s.want)
						}
						for name, r := range w.requests {
							if r.Status.Phase != s.phase {
								t.Errorf("request %s has phase %q (%s), want %q", name, r.Status.Phase, r.Status.Reason, s.phase)
							}
							if c := podBound(w.pods[name]); c == nil || (c.Status == corev1.ConditionTrue) != (s.want > 0) {
								t.Errorf("pod %s has condition %v", name, c)
							}
						}
						for name, c := range w.claims {
							if s.want == 0 && len(c.Annotations) > 0 {
								t.Errorf("claim %s is still held: %v", name, c.Annotations)
							}
						}
					})
				}
			}
		}
	}
}

func podBound(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == keys.PodBoundCondition {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// TestCrashAndLoss kills the binder in the middle of a gang's binds, and meanwhile a pod that was bound is deleted with
// its request: the rest is completed as long as any trace of the start is left.
func TestCrashAndLoss(t *testing.T) {
	t.Parallel()
	for _, lost := range []int{1, 2} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			t.Parallel()
			w := newFakeAPI(t, "n1")
			w.gang(gangSize, gangSize)
			p := w.start()
			crashAt(w, p, "bind", 3, true) // three are bound, none is reported
			p.settle()
			if got := len(w.boundPods()); got != 3 {
				t.Fatalf("%d pods are bound, want 3", got)
			}
			for _, name := range w.boundPods()[:lost] {
				w.deletePod(name)
			}
			w.collect()
			w.fault = nil
			p = w.start()
			p.settle()
			p.pass(time.Minute)
			if got := len(w.boundPods()); got != gangSize-lost {
				t.Errorf("%d pods are bound, want %d", got, gangSize-lost)
			}
		})
	}
}

// TestFailureAfterStart: when some are bound already, a member that fails goes alone.
func TestFailureAfterStart(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, "n1")
	w.gang(gangSize, gangSize)
	p := w.start()
	w.fault = func(write, name string, after bool) error {
		if write == "bind" && name == "p1" && !after {
			return verdictf("the webhook says no")
		}
		return nil
	}
	p.settle()
	if got, want := w.boundPods(), []string{"p0", "p2", "p3", "p4"}; !slices.Equal(got, want) {
		t.Errorf("bound %v, want %v", got, want)
	}
	s := w.requests["p1"].Status
	if s.Phase != schedulingv1alpha2.BindRequestFailed || s.FailedAttempts != 1 || !strings.Contains(s.Reason, "the webhook says no") {
		t.Errorf("status of the failed one: %+v", s)
	}
	p.pass(59 * time.Second)
	if w.requests["p1"] == nil {
		t.Error("the record of the failure went too early")
	}
	p.pass(3 * time.Second)
	if w.requests["p1"] != nil {
		t.Error("the record of the failure is still there")
	}
}

// TestBackoff: attempts are counted on the request, the waits double, across a restart, and the pod never looks bound.
func TestBackoff(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, "n1")
	w.addPod("p0")
	w.request("p0", "n1", "", 1, func(r *schedulingv1alpha2.BindRequest) { r.Spec.BackoffLimit = ptr.To[int32](3) })
	var tries []time.Duration
	start := w.now
	w.fault = func(write, _ string, after bool) error {
		if write == "bind" && !after {
			tries = append(tries, w.now.Sub(start))
			return verdictf("no")
		}
		return nil
	}
	p := w.start()
	p.settle()
	check := func(attempts int32) {
		t.Helper()
		r := w.requests["p0"]
		if r.Status.Phase != schedulingv1alpha2.BindRequestFailed || r.Status.FailedAttempts != attempts {
			t.Errorf("status %+v, want failed with %d attempts", r.Status, attempts)
		}
		if c := podBound(w.pods["p0"]); c == nil || c.Status != corev1.ConditionFalse || c.Reason != keys.ReasonBindingError {
			t.Errorf("condition %v", c)
		}
	}
	check(1)
	p.pass(time.Second)
	check(2)
	p.kill()
	p = w.start() // waits two seconds from now on
	p.settle()
	p.pass(time.Second)
	check(2)
	p.pass(20 * time.Second)
	check(3)
	if want := []time.Duration{0, time.Second, 3 * time.Second}; !slices.Equal(tries, want) {
		t.Errorf("attempts after %v, want %v", tries, want)
	}
}

// TestLostAnswers: the Binding took effect and the answer did not arrive.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, "n1")
	w.gang(gangSize, gangSize)
	w.fault = func(write, _ string, after bool) error {
		if write == "bind" && after {
			return errors.New("connection reset")
		}
		return nil
	}
	p := w.start()
	p.settle()
	for name, r := range w.requests {
		if r.Status.Phase != schedulingv1alpha2.BindRequestSucceeded || r.Status.FailedAttempts != 0 {
			t.Errorf("%s: %+v", name, r.Status)
		}
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

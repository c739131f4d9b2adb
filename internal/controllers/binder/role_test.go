package binder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// role runs the binder in a process, with the settings it has by default.
func role(t *testing.T, p *kubetest.Process) (stop func()) {
	return p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
		b, err := New(Deps{Cache: objects, Client: c, Reader: c}, DefaultOptions())
		if err != nil {
			return nil, err
		}
		return b.Run, nil
	})
}

const size = 3 // of the gang g

// gangOf makes a namespace, node n1, and the gang g: its pods and all requests of its bundle, each with its edit.
func gangOf(s *kubetest.Server, claims bool, edit func(r *schedulingv1alpha2.BindRequest)) {
	s.Put(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "disks", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		},
	)
	for i := range size {
		name := fmt.Sprint("p", i)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name)}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
		if claims {
			s.Put(&corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c-" + name}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("local")},
			})
			pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c-" + name},
			}}}
		}
		r := &schedulingv1alpha2.BindRequest{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: ns, Name: name, Labels: map[string]string{keys.BundleLabel: "g", keys.BundleSizeLabel: fmt.Sprint(size)},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID(name)}},
			},
			Spec: schedulingv1alpha2.BindRequestSpec{PodName: name, SelectedNode: "n1"},
		}
		if edit != nil {
			edit(r)
		}
		s.Put(pod, r)
	}
}

// provisioner binds the claims of gangs whose node is known, as others do.
func provisioner(ctx context.Context, s *kubetest.Server) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for i := range size {
			c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("c-p", i)}}
			if !s.Get(c) || c.Annotations[volume.AnnSelectedNode] == "" || bound(c) {
				continue
			}
			v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + c.Name}}
			v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: ns, Name: c.Name}
			s.Put(v)
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnBindCompleted, "yes")
			c.Spec.VolumeName = v.Name
			s.Put(c)
		}
	}
}

// found returns the member of the gang that is called so, and its request; of what is gone, the name alone.
func found(s *kubetest.Server, name string) (*corev1.Pod, *schedulingv1alpha2.BindRequest) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	r := &schedulingv1alpha2.BindRequest{ObjectMeta: p.ObjectMeta}
	s.Get(p)
	s.Get(r)
	return p, r
}

func podBound(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == keys.PodBoundCondition {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// TestRoleCrashes: the role dies at a write of a gang's bind or withdrawal, before or after it, and the next one brings it to the same end:
// all are bound, or none is and nothing is held for it.
func TestRoleCrashes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		claims bool
		edit   func(r *schedulingv1alpha2.BindRequest)
		set    func(s *kubetest.Server)
		reason string // why all are withdrawn; empty: all are bound
		settle time.Duration
	}{
		"bind":             {},
		"bind with claims": {claims: true},
		"incomplete": {
			set: func(s *kubetest.Server) {
				_, r := found(s, "p1")
				s.Remove(r)
			},
			reason: "2 of its 3 requests arrived within 30s", settle: 40 * time.Second,
		},
		"a node is gone": {
			edit: func(r *schedulingv1alpha2.BindRequest) {
				if r.Name == "p1" {
					r.Spec.SelectedNode = "n9"
				}
			},
			reason: "node n9 is gone",
		},
		"a claim cannot be prepared": {
			claims: true,
			edit:   func(r *schedulingv1alpha2.BindRequest) { r.Spec.BackoffLimit = ptr.To[int32](1) }, // or how often it was tried is known to one life
			set: func(s *kubetest.Server) {
				s.Remove(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c-p2"}})
			},
			reason: "claim c-p2 does not exist",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story := kubetest.Story{
				Set: func(s *kubetest.Server) {
					gangOf(s, tc.claims, tc.edit)
					if tc.set != nil {
						tc.set(s)
					}
				},
				Run:    role,
				Settle: max(tc.settle, 20*time.Second), // the records of the requests are still there
				Check: func(t *testing.T, s *kubetest.Server) {
					for i := range size {
						p, r := found(s, fmt.Sprint("p", i))
						if r.UID == "" {
							continue
						}
						phase, cond := schedulingv1alpha2.BindRequestSucceeded, corev1.ConditionTrue
						if tc.reason != "" {
							phase, cond = schedulingv1alpha2.BindRequestFailed, corev1.ConditionFalse
						}
						if c := podBound(p); (p.Spec.NodeName == "n1") != (tc.reason == "") || r.Status.Phase != phase || c == nil || c.Status != cond || !strings.Contains(r.Status.Reason, tc.reason) {
							t.Errorf("pod %s on %q, %v; its request %+v", p.Name, p.Spec.NodeName, c, r.Status)
						}
						c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c-" + p.Name}}
						if s.Get(c) && tc.reason != "" && len(c.Annotations) > 0 {
							t.Errorf("claim %s is still held: %v", c.Name, c.Annotations)
						}
					}
				},
			}
			if tc.reason == "" {
				story.Beside = provisioner
			}
			story.Crashes(t)
		})
	}
}

// TestWaitsForNoCacheLocked: while the pods cannot be listed, nobody who comes with an event of another kind has the book to himself, or one
// kind that cannot be listed would stop all; and once they are, what was asked for them before is carried out.
func TestWaitsForNoCacheLocked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(kubetest.Options{})
		s.Fault(func(c kubetest.Call) kubetest.Outcome {
			if c.Kind == "Pod" && (c.Verb == "list" || c.Verb == "watch") {
				return kubetest.Outcome{Delay: 10 * time.Second}
			}
			return kubetest.Outcome{}
		})
		gangOf(s, false, nil)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		s.Remove(node) // nobody else has an event yet: who waited for the book would stop the clock of the test
		var b *Controller
		s.Process("first").Run(t, func(objects cache.Cache, c client.Client) (_ func(context.Context) error, err error) {
			b, err = New(Deps{Cache: objects, Client: c, Reader: c}, DefaultOptions())
			return b.Run, err
		})
		r := b.metrics.run.Load()
		if !r.steps.TryLock() {
			t.Fatal("the book is locked for as long as the pods are not listed")
		}
		requests := len(r.book.members)
		r.steps.Unlock()
		if requests != size {
			t.Errorf("%d requests are known, want %d", requests, size)
		}
		s.Put(node)
		<-time.After(time.Minute)
		for i := range size {
			if p, r := found(s, fmt.Sprint("p", i)); p.Spec.NodeName != "n1" {
				t.Errorf("pod %s is not bound; its request %+v", p.Name, r.Status)
			}
		}
	})
}

// TestCrashAndLoss: the binder dies in the middle of a gang's binds, and meanwhile a pod that was bound is deleted with its request: the
// rest is completed as long as any trace of the start is left.
func TestCrashAndLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(kubetest.Options{})
		gangOf(s, false, nil)
		s.Fault(func(c kubetest.Call) kubetest.Outcome {
			return kubetest.Outcome{Hang: c.Process == "first" && c.Write > 2}
		})
		first := s.Process("first")
		stop := role(t, first)
		first.Kill()
		stop()
		lost := ""
		for i := range size {
			if p, r := found(s, fmt.Sprint("p", i)); p.Spec.NodeName != "" && lost == "" {
				lost = p.Name
				s.Remove(p, r)
			}
		}
		role(t, s.Process("second"))
		<-time.After(20 * time.Second)
		for i := range size {
			if p, _ := found(s, fmt.Sprint("p", i)); lost == "" || p.Name != lost && p.Spec.NodeName != "n1" {
				t.Errorf("pod %s is on %q, %q is lost", p.Name, p.Spec.NodeName, lost)
			}
		}
	})
}

// TestFaultsOfBinds: a Binding whose answer is lost has taken effect; a member that is refused when others are bound goes alone, and its
// record goes after a minute; attempts are counted on the request, and the waits between them double, across a restart.
func TestFaultsOfBinds(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(corev1.Resource("pods"), "p1", errors.New("the webhook says no"))
	isBind := func(c kubetest.Call, name string) bool {
		return c.Verb == "create" && c.Kind == "Pod" && c.Subresource == "binding" && strings.HasPrefix(c.Name, name)
	}
	play := func(t *testing.T, edit func(*schedulingv1alpha2.BindRequest), rule func(kubetest.Call) kubetest.Outcome, then func(t *testing.T, s *kubetest.Server, stop func())) {
		synctest.Test(t, func(t *testing.T) {
			s := kubetest.New(kubetest.Options{})
			gangOf(s, false, edit)
			s.Fault(rule)
			then(t, s, role(t, s.Process("first")))
		})
	}
	t.Run("lost answers", func(t *testing.T) {
		t.Parallel()
		play(t, nil, func(c kubetest.Call) kubetest.Outcome {
			if isBind(c, "") {
				return kubetest.LostAnswer()
			}
			return kubetest.Outcome{}
		}, func(t *testing.T, s *kubetest.Server, _ func()) {
			<-time.After(20 * time.Second)
			for i := range size {
				if p, r := found(s, fmt.Sprint("p", i)); r.Status.Phase != schedulingv1alpha2.BindRequestSucceeded || r.Status.FailedAttempts != 0 {
					t.Errorf("%s: %+v", p.Name, r.Status)
				}
			}
		})
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		play(t, nil, func(c kubetest.Call) kubetest.Outcome {
			if isBind(c, "p1") {
				return kubetest.Outcome{Err: forbidden, Delay: time.Millisecond}
			}
			return kubetest.Outcome{}
		}, func(t *testing.T, s *kubetest.Server, _ func()) {
			<-time.After(50 * time.Second)
			for i := range size {
				p, r := found(s, fmt.Sprint("p", i))
				if alone := p.Name == "p1"; alone != (p.Spec.NodeName == "") ||
					alone && (r.Status.Phase != schedulingv1alpha2.BindRequestFailed || r.Status.FailedAttempts != 1 || !strings.Contains(r.Status.Reason, "the webhook says no")) {
					t.Errorf("%s is on %q: %+v", p.Name, p.Spec.NodeName, r.Status)
				}
			}
			<-time.After(15 * time.Second)
			if _, r := found(s, "p1"); r.UID != "" {
				t.Error("the record of the failure is still there")
			}
		})
	})
	t.Run("back-off", func(t *testing.T) {
		t.Parallel()
		var tries []time.Duration
		var since time.Time
		play(t, func(r *schedulingv1alpha2.BindRequest) {
			r.Labels, r.Spec.BackoffLimit = nil, ptr.To[int32](3)
		}, func(c kubetest.Call) kubetest.Outcome {
			if !isBind(c, "p1") {
				return kubetest.Outcome{}
			}
			if since.IsZero() {
				since = c.At
			}
			tries = append(tries, c.At.Sub(since).Round(time.Second))
			return kubetest.Outcome{Err: forbidden}
		}, func(t *testing.T, s *kubetest.Server, stop func()) {
			check := func(attempts int32) {
				t.Helper()
				p, r := found(s, "p1")
				if c := podBound(p); r.Status.Phase != schedulingv1alpha2.BindRequestFailed || r.Status.FailedAttempts != attempts || c == nil || c.Status != corev1.ConditionFalse || c.Reason != keys.ReasonBindingError {
					t.Errorf("status %+v, condition %v; want %d attempts", r.Status, c, attempts)
				}
			}
			<-time.After(700 * time.Millisecond)
			check(2)
			stop()
			role(t, s.Process("second")) // waits two seconds from now on
			check(2)
			<-time.After(20 * time.Second)
			check(3)
			if want := []time.Duration{0, time.Second, 4 * time.Second}; !slices.Equal(tries, want) {
				t.Errorf("attempts after %v, want %v", tries, want)
			}
		})
	})
}

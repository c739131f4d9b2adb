package reservation_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/controllers/binder"
	"github.com/muster-scheduler/muster/internal/controllers/reservation"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

const team = "default"

// kubelet plays one that does something, once a second, with reservation pods, and ends those that are deleted.
func kubelet(do func(p *corev1.Pod)) func(context.Context, *kubetest.Server) {
	return func(ctx context.Context, s *kubetest.Server) {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		c, err := s.Process("kubelet").Client(kubetest.Scheme())
		for err == nil {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			var pods corev1.PodList
			err = c.List(ctx, &pods, client.InNamespace(keys.ReservationNamespace))
			for i := range pods.Items {
				if p := &pods.Items[i]; p.DeletionTimestamp != nil {
					s.Remove(p)
				} else {
					do(p)
					s.Put(p)
				}
			}
		}
	}
}

// tells tells the device of a reservation pod.
func tells(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, keys.ReservedGPUAnnotation, "GPU-"+p.Labels[keys.GPUGroupLabel])
}

// rejects has no device for it.
func rejects(p *corev1.Pod) {
	p.Status.Phase, p.Status.Reason = corev1.PodFailed, "UnexpectedAdmissionError"
}

// shared makes n pods that are to share the device of group g of node n1, and their requests.
func shared(s *kubetest.Server, n int) {
	s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys.ReservationNamespace}})
	s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{keys.GPUMemoryNodeLabel: "81920"}}})
	for i := range n {
		name := fmt.Sprint("p", i)
		visible := corev1.EnvVar{Name: keys.VisibleDevicesEnv, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: keys.VisibleDevicesEnv}}}
		s.Put(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, UID: types.UID(name), Annotations: map[string]string{
				keys.SharedGPUConfigMapAnnotation: name + "-x-shared-gpu", keys.GPUFractionAnnotation: "0.5",
			}},
			Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{visible}}}},
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		}, &schedulingv1alpha2.BindRequest{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: team, Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID(name)}},
			},
			Spec: schedulingv1alpha2.BindRequestSpec{
				PodName: name, SelectedNode: "n1", ReceivedResourceType: schedulingv1alpha2.ResourceTypeFraction,
				ReceivedGPU: &schedulingv1alpha2.ReceivedGPU{Count: 1, Portion: "0.50"}, SelectedGPUGroups: []string{"g"},
			},
		})
	}
}

// holders are the reservation pods that there are.
func holders(t *testing.T, s *kubetest.Server) []corev1.Pod {
	t.Helper()
	c, err := s.Process("test").Client(kubetest.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	var pods corev1.PodList
	if err := c.List(t.Context(), &pods, client.InNamespace(keys.ReservationNamespace)); err != nil {
		t.Fatal(err)
	}
	return pods.Items
}

// TestCrashes: a binder with the controller of shared devices dies at a write, before or after it, and the next one brings it to the same
// end.
func TestCrashes(t *testing.T) {
	t.Parallel()
	for name, story := range map[string]kubetest.Story{
		"two pods share": {
			Set:    func(s *kubetest.Server) { shared(s, 2) },
			Beside: kubelet(tells), Settle: 30 * time.Second,
			Check: func(t *testing.T, s *kubetest.Server) {
				for i := range 2 {
					name := fmt.Sprint("p", i)
					p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}}
					m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name + "-x-shared-gpu-0"}}
					if !s.Get(p) || !s.Get(m) || p.Spec.NodeName != "n1" || m.Data[keys.VisibleDevicesEnv] != "GPU-g" {
						t.Errorf("pod %s on %q is told %v", name, p.Spec.NodeName, m.Data)
					}
				}
				if n := len(holders(t, s)); n != 1 {
					t.Errorf("%d devices are reserved", n)
				}
			},
		},
		"no device is free": {
			Set:    func(s *kubetest.Server) { shared(s, 1) },
			Beside: kubelet(rejects), Settle: 20 * time.Second,
			Check: func(t *testing.T, s *kubetest.Server) {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "p0"}}
				r := &schedulingv1alpha2.BindRequest{ObjectMeta: p.ObjectMeta}
				if !s.Get(p) || !s.Get(r) || p.Spec.NodeName != "" || len(p.Labels) > 0 || r.Status.Phase != schedulingv1alpha2.BindRequestFailed || len(holders(t, s)) > 0 {
					t.Errorf("pod on %q, labels %v; its request %+v", p.Spec.NodeName, p.Labels, r.Status)
				}
			},
		},
		"a device that nobody uses": {
			Set: func(s *kubetest.Server) {
				shared(s, 0)
				s.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
					Namespace: keys.ReservationNamespace, Name: "h", Labels: map[string]string{keys.GPUGroupLabel: "g"}, Annotations: map[string]string{keys.ReservedGPUAnnotation: "GPU-g"},
				}})
			},
			Settle: 10 * time.Second,
			Check: func(t *testing.T, s *kubetest.Server) {
				if n := len(holders(t, s)); n > 0 {
					t.Errorf("%d devices are reserved", n)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story.Run = func(t *testing.T, p *kubetest.Process) (stop func()) {
				return p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
					devices, err := reservation.New(reservation.Deps{Cache: objects, Client: c, Reader: c}, reservation.DefaultOptions())
					if err != nil {
						return nil, err
					}
					b, err := binder.New(binder.Deps{Cache: objects, Client: c, Reader: c, Preparers: []binder.Preparer{devices}}, binder.DefaultOptions())
					if err != nil {
						return nil, err
					}
					return b.Run, nil
				})
			}
			story.Crashes(t)
		})
	}
}

package binder

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
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// TestRoleCrashes: the role with its client dies at a write of a gang's bind, before or after it, and the next one brings it to the same end.
func TestRoleCrashes(t *testing.T) {
	t.Parallel()
	const size = 3
	kubetest.Story{
		Set: func(s *kubetest.Server) {
			s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
			for i := range size {
				name := fmt.Sprint("p", i)
				s.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name)}, Status: corev1.PodStatus{Phase: corev1.PodPending}})
				s.Put(&schedulingv1alpha2.BindRequest{
					ObjectMeta: metav1.ObjectMeta{
						Namespace: ns, Name: name, Labels: map[string]string{keys.BundleLabel: "g", keys.BundleSizeLabel: fmt.Sprint(size)},
						OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID(name)}},
					},
					Spec: schedulingv1alpha2.BindRequestSpec{PodName: name, SelectedNode: "n1"},
				})
			}
		},
		Run: func(t *testing.T, p *kubetest.Process) (stop func()) {
			return p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
				b, err := New(Deps{Cache: objects, Client: c, Reader: c}, DefaultOptions())
				if err != nil {
					return nil, err
				}
				return b.Run, nil
			})
		},
		Settle: 20 * time.Second, // the records of the requests are still there
		Check: func(t *testing.T, s *kubetest.Server) {
			for i := range size {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("p", i)}}
				r := &schedulingv1alpha2.BindRequest{ObjectMeta: p.ObjectMeta}
				if !s.Get(p) || !s.Get(r) || p.Spec.NodeName != "n1" || r.Status.Phase != schedulingv1alpha2.BindRequestSucceeded {
					t.Errorf("pod %s on %q, its request %+v", p.Name, p.Spec.NodeName, r.Status)
				}
			}
		},
	}.Crashes(t)
}

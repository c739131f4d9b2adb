package binder

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/kube/write"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// TestExtendedStatusThatIsDropped: an API server without the feature gate drops the field by which the kubelet finds a pod's devices, and
// says nothing. The pod is not bound then.
func TestExtendedStatusThatIsDropped(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{true, false} {
		s := kubetest.New(kubetest.Options{})
		if !keeps {
			s.Drop("Pod", "status", "extendedResourceClaimStatus")
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"}}
		s.Put(pod)
		c, err := s.Process("binder").Client(kubetest.Scheme())
		if err != nil {
			t.Fatal(err)
		}
		kit, err := write.New(c, "binder", nil)
		if err != nil {
			t.Fatal(err)
		}
		w := &apiClient{kit: kit}
		err = w.setExtended(t.Context(), pod, &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "c"})
		var v verdictError
		if keeps && err != nil || !keeps && (!errors.As(err, &v) || !strings.Contains(err.Error(), "DRAExtendedResource")) {
			t.Errorf("keeps %v: %v", keeps, err)
		}
		if err := w.setExtended(t.Context(), pod, nil); err != nil {
			t.Errorf("taking it back: %v", err)
		}
	}
}

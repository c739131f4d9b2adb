package binder

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-scheduler/muster/internal/kube/write"
)

// TestExtendedStatusThatIsDropped: an API server without the feature gate drops the field by which the kubelet finds a pod's devices, and
// says nothing. The pod is not bound then.
func TestExtendedStatusThatIsDropped(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, keeps := range []bool{true, false} {
		c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(_ context.Context, _ client.Client, _ string, obj client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
				body, err := p.Data(obj)
				if err == nil && keeps {
					err = json.Unmarshal(body, obj)
				}
				return err
			},
		}).Build()
		kit, err := write.New(c, "binder", nil)
		if err != nil {
			t.Fatal(err)
		}
		w := &wire{kit: kit}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
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

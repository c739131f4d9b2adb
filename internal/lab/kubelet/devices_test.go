package kubelet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestDevicesAreGivenOnce: each GPU of a node to one pod at a time, and one that was told stays with its pod.
func TestDevicesAreGivenOnce(t *testing.T) {
	t.Parallel()
	n := &node{allocatable: amounts{lab.GPUResource: 4}, devices: map[int]bool{}}
	wants := func(count int64, told string) *pod {
		return &pod{requests: amounts{lab.GPUResource: count}, obj: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{keys.ReservedGPUAnnotation: told},
		}}}
	}
	old, two, one := wants(1, DeviceUUID("n", 1)), wants(2, ""), wants(1, "")
	for _, q := range []*pod{old, two, one} {
		n.giveDevices("n", q)
	}
	if d := cmp.Diff([][]int{{1}, {0, 2}, {3}}, [][]int{old.devices, two.devices, one.devices}); d != "" {
		t.Error(d)
	}
	n.takeDevices(two)
	again := wants(1, "")
	n.giveDevices("n", again)
	if d := cmp.Diff([]int{0}, again.devices); d != "" {
		t.Error(d)
	}
	if a, b := DeviceUUID("n", 0), DeviceUUID("n", 1); a == b || len(a) != len("GPU-8f41a3c0-1111-2222-3333-444455556666") {
		t.Errorf("UUIDs %s, %s", a, b)
	}
}

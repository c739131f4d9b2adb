package volcano

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func amounts(of map[corev1.ResourceName]string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range of { // order: the result is a map
		out[name] = resource.MustParse(q)
	}
	return out
}

// TestUsage: what a pod uses of quotas: requests under two names, limits that quotas know, missing requests from limits, the larger of what
// runs first and what runs then; and so many times that, however much it is.
func TestUsage(t *testing.T) {
	t.Parallel()
	spec := &corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Requests: amounts(map[corev1.ResourceName]string{"cpu": "1"})}}},
		Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: amounts(map[corev1.ResourceName]string{"cpu": "500m", "memory": "1Gi"}),
			Limits:   amounts(map[corev1.ResourceName]string{"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "4"}),
		}}},
	}
	want := amounts(map[corev1.ResourceName]string{
		"pods": "1", "count/pods": "1", "cpu": "1", "requests.cpu": "1", "memory": "1Gi", "requests.memory": "1Gi",
		"nvidia.com/gpu": "4", "requests.nvidia.com/gpu": "4", "limits.cpu": "2", "limits.memory": "1Gi",
	})
	before := spec.DeepCopy()
	if d := cmp.Diff(want, Usage(spec)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(before, spec); d != "" {
		t.Errorf("the spec was changed:\n%s", d)
	}
	sum := amounts(map[corev1.ResourceName]string{"cpu": "1"})
	AddTimes(sum, amounts(map[corev1.ResourceName]string{"cpu": "2", "memory": "9E"}), 3)
	for name, want := range map[corev1.ResourceName]string{"cpu": "7", "memory": "27E"} { // order: each for itself
		if q := sum[name]; q.Cmp(resource.MustParse(want)) != 0 || len(sum) != 2 {
			t.Errorf("three times more: %s of %s, want %s", q.String(), name, want)
		}
	}
}

package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestQuota: what pods ask for is bounded, by either name of it; limits and counts of other objects are not.
func TestQuota(t *testing.T) {
	t.Parallel()
	list := func(of ...string) v1.ResourceList {
		out := v1.ResourceList{}
		for i := 0; i < len(of); i += 2 {
			out[v1.ResourceName(of[i])] = resource.MustParse(of[i+1])
		}
		return out
	}
	q := &v1.ResourceQuota{}
	q.Spec.Hard = list("requests.cpu", "4", "cpu", "5", "limits.cpu", "8", "memory", "1Gi", "requests.nvidia.com/gpu", "2", "pods", "10", "count/jobs.batch", "3", "example.com/x", "0")
	q.Status.Used = list("requests.cpu", "1500m", "cpu", "1500m", "limits.cpu", "8", "requests.nvidia.com/gpu", "1", "pods", "3")
	want := &cluster.SpaceQuota{Bounds: []cluster.QuotaBound{
		{Dim: "cpu", Hard: 5000, Used: 1500}, {Dim: "example.com/x"}, {Dim: "memory", Hard: 1 << 30}, {Dim: "pods", Hard: 10, Used: 3}, {Dim: "cpu", Hard: 4000, Used: 1500}, {Dim: "gpu", Hard: 2000, Used: 1000},
	}}
	if d := cmp.Diff(want, Quota(q)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

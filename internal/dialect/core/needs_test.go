package core

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
)

func asking(requests string, limits ...string) v1.Container {
	read := func(text string) v1.ResourceList {
		out := v1.ResourceList{}
		var name, amount string
		for rest := text; rest != ""; {
			n, err := fmt.Sscanf(rest, "%s %s", &name, &amount)
			if err != nil || n != 2 {
				panic(text)
			}
			out[v1.ResourceName(name)] = resource.MustParse(amount)
			rest = rest[min(len(rest), len(name)+len(amount)+2):]
		}
		return out
	}
	c := v1.Container{Resources: v1.ResourceRequirements{Requests: read(requests)}}
	if len(limits) > 0 {
		c.Resources.Limits = read(limits[0])
	} else {
		c.Resources.Limits = c.Resources.Requests
	}
	return c
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	sidecar := asking("cpu 1 memory 1")
	sidecar.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	for _, c := range []struct {
		about string
		pod   v1.PodSpec
		want  []cluster.Need
	}{
		{
			"a guaranteed pod",
			v1.PodSpec{Containers: []v1.Container{asking("cpu 2 memory 5 hugepages-2Mi 4 nvidia.com/gpu 1")}},
			[]cluster.Need{{Amounts: []cluster.Quantity{{Name: "cpu", Value: 2000}, {Name: "gpu", Value: 1000}, {Name: "hugepages-2Mi", Value: 4}, {Name: "memory", Value: 5}}}},
		},
		{
			"parts of CPUs are shared",
			v1.PodSpec{Containers: []v1.Container{asking("cpu 1500m memory 5")}},
			[]cluster.Need{{Amounts: []cluster.Quantity{{Name: "memory", Value: 5}}}},
		},
		{
			"of a burstable pod, devices alone",
			v1.PodSpec{Containers: []v1.Container{asking("cpu 2 memory 5 nvidia.com/gpu 1", "nvidia.com/gpu 1")}},
			[]cluster.Need{{Amounts: []cluster.Quantity{{Name: "gpu", Value: 1000}}}},
		},
		{"a burstable pod without devices", v1.PodSpec{Containers: []v1.Container{asking("cpu 2", "cpu 4")}}, nil},
		{"one container that is not guaranteed", v1.PodSpec{Containers: []v1.Container{asking("cpu 2 memory 5"), asking("cpu 1", "cpu 2")}}, nil},
		{
			"in the order of the start",
			v1.PodSpec{InitContainers: []v1.Container{asking("cpu 3 memory 1"), sidecar}, Containers: []v1.Container{asking("cpu 2 memory 1")}},
			[]cluster.Need{
				{Role: cluster.Before, Amounts: []cluster.Quantity{{Name: "cpu", Value: 3000}, {Name: "memory", Value: 1}}},
				{Role: cluster.Sidecar, Amounts: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "memory", Value: 1}}},
				{Role: cluster.Together, Amounts: []cluster.Quantity{{Name: "cpu", Value: 2000}, {Name: "memory", Value: 1}}},
			},
		},
		{
			"CPUs of a pod as a whole are shared among its containers",
			v1.PodSpec{
				Resources:  &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}, Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}},
				Containers: []v1.Container{asking("cpu 2 memory 5 example.com/nic 1")},
			},
			[]cluster.Need{{Amounts: []cluster.Quantity{{Name: "example.com/nic", Value: 1}}}},
		},
		{"storage and slots are of no zone", v1.PodSpec{Containers: []v1.Container{asking("ephemeral-storage 5 attachable-volumes-x 1")}}, nil},
	} {
		if d := cmp.Diff(c.want, Needs(&v1.Pod{Spec: c.pod})); d != "" {
			t.Errorf("%s: -want +got:\n%s", c.about, d)
		}
	}
	said := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{asking("cpu 2 memory 5")}}, Status: v1.PodStatus{QOSClass: v1.PodQOSBurstable}}
	if got := Needs(said); got != nil {
		t.Errorf("what the API server says of the class is not heard: %v", got)
	}
}

// TestNeedsAreWithinRequests draws pods of every shape: no container needs more than the pod asks for, and all amounts
// are positive.
func TestNeedsAreWithinRequests(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPod(t)
		asked := map[string]int64{}
		for _, q := range Requests(p) {
			asked[q.Name] = q.Value
		}
		for _, n := range Needs(p) {
			for _, q := range n.Amounts {
				if q.Value <= 0 || p.Spec.Resources == nil && len(p.Status.ContainerStatuses) == 0 && q.Value > asked[q.Name] {
					t.Fatalf("%+v of %v", q, asked)
				}
			}
		}
	})
}

// TestQuantities: what Amounts reads, Quantities writes.
func TestQuantities(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := v1.ResourceList{}
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, NvidiaGPU, "hugepages-1Gi", "example.com/nic"} {
			if x := rapid.Int64Range(0, 1<<40).Draw(t, string(name)); x > 0 {
				list[name] = *resource.NewQuantity(x, resource.DecimalSI)
			}
		}
		back := Quantities(Amounts(list))
		if d := cmp.Diff(Amounts(list), Amounts(back)); d != "" || len(back) != len(list) {
			t.Fatalf("%v became %v: %s", list, back, d)
		}
	})
	amd := v1.ResourceList{AMDGPU: resource.MustParse("2")}
	if d := cmp.Diff(amd, Quantities(Amounts(amd))); d != "" {
		t.Error(d)
	}
}

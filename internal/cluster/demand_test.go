package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDemands: whatever comes, changes and goes, the kinds of work are those of the pods that are there.
func TestDemands(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	s := NewStore(Options{})
	shapes := []PodState{
		{Requests: []Quantity{{Name: "cpu", Value: 1000}}},
		{Requests: []Quantity{{Name: "gpu", Value: 1000}}},
		{Requests: []Quantity{{Name: "gpu", Value: 1000}}, Spec: &ClassSpec{NodeSelector: map[string]string{"a": "b"}}}, // the same kind
		{Requests: []Quantity{{Name: "gpu", Value: 2000}, {Name: "nic", Value: 1}}},
		{Spec: &ClassSpec{Share: Share{Devices: 1, Portion: WholePortion / 2}}},
		{Requests: []Quantity{{Name: "gpu", Value: 4000}}, Spec: &ClassSpec{Unsupported: "magic"}},
		{Requests: []Quantity{{Name: "nvidia.com/mig-1g.5gb", Value: 1}}},
	}
	there := map[string]int{}
	for step := range 2000 {
		uid := fmt.Sprint(r.IntN(40))
		if r.IntN(3) == 0 {
			s.Apply(PodGone{UID: uid})
			delete(there, uid)
		} else {
			k := r.IntN(len(shapes))
			p := shapes[k]
			p.UID, p.Name, p.Namespace = uid, uid, "ns"
			s.Apply(p)
			there[uid] = k
		}
		want := map[string]int{}
		for _, k := range there {
			switch k {
			case 1, 2:
				want["whole"]++
			case 3:
				want["two"]++
			case 4:
				want["half"]++
			}
		}
		got := map[string]int{}
		for _, d := range s.Snapshot(UnixNano(int64(step))).Demands() {
			name := map[int64]string{1000: "whole", 2000: "two", 0: "half"}[d.Requests.At(GPU)]
			if got[name] > 0 {
				t.Fatalf("step %d: kind %s twice", step, name)
			}
			got[name] = d.Pods
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("step %d (-want +got):\n%s", step, diff)
		}
	}
}

// TestDemandsMost: of many kinds, those with the most pods are told, in order.
func TestDemandsMost(t *testing.T) {
	t.Parallel()
	s := NewStore(Options{})
	n := 0
	for kind := range 3 * MaxDemands {
		for range kind + 1 {
			s.Apply(PodState{UID: fmt.Sprint(n), Requests: []Quantity{{Name: "gpu", Value: 1000}, {Name: "cpu", Value: int64(kind)}}})
			n++
		}
	}
	var got, want []int
	for _, d := range s.Snapshot(UnixNano(1)).Demands() {
		got = append(got, d.Pods)
	}
	for i := range MaxDemands {
		want = append(want, 3*MaxDemands-i)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestSliceGPUs reads the names that device plugins give slices.
func TestSliceGPUs(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{
		"nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-3g.40gb": 3, "nvidia.com/mig-7g.80gb": 7, "nvidia.com/mig-1g.10gb.me": 1,
		"nvidia.com/mig-1c.3g.20gb": 3, "nvidia.com/mig-strange": 1, "nvidia.com/mig-0g.5gb": 1, "nvidia.com/gpu": 0, "cpu": 0, "example.com/mig-1g.5gb": 0,
	} {
		if got := SliceGPUs(name); got != want {
			t.Errorf("%s counts %d, want %d", name, got, want)
		}
	}
	d, _ := BaseDims().With("nvidia.com/mig-2g.10gb")
	d, _ = d.With("other")
	d, _ = d.With("nvidia.com/mig-1g.5gb")
	if got := d.SlicedGPUs(Resources{0, 0, 0, 0, 3, 7, 1}); got != 7000 {
		t.Errorf("slices count %d milli-GPU, want 7000", got)
	}
}

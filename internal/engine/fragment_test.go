package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestUnusable checks the measure on nodes that can be counted by hand. Devices have 100 units.
func TestUnusable(t *testing.T) {
	t.Parallel()
	whole := func(n, cpu int64) cluster.Demand {
		return cluster.Demand{Requests: cluster.Resources{cpu, 0, n * 1000, 1}}
	}
	part := func(thousandths int64, devices int32) cluster.Demand {
		return cluster.Demand{Requests: cluster.Resources{0, 0, 0, 1}, Share: cluster.Share{Devices: devices, Portion: thousandths * 1000}}
	}
	free := func(gpus, cpu int64, parts ...int64) FreeGPUs {
		return FreeGPUs{Room: cluster.Resources{cpu, 0, gpus * 1000, 10}, Parts: parts, Units: 100}
	}
	for _, c := range []struct {
		name string
		free FreeGPUs
		kind cluster.Demand
		want int64
	}{
		{"all of use", free(4, 8), whole(1, 1), 0},
		{"parts are of no use to whom wants whole ones", free(4, 8, 50, 30), whole(1, 1), 800},
		{"too few at once", free(3, 8, 50), whole(4, 1), 3500},
		{"no CPU left beside them", free(4, 8), whole(1, 16), 4000},
		{"what is smaller than the part", free(1, 8, 50, 30, 20), part(300, 1), 200},
		{"no device with so much left", free(0, 8, 50, 30), part(600, 1), 800},
		{"not on so many devices", free(0, 8, 50, 30), part(300, 3), 800},
		{"on as many", free(1, 8, 50, 30, 10), part(300, 3), 100},
		{"nothing there", free(0, 8), whole(1, 1), 0},
	} {
		if got := c.free.Unusable(&c.kind); got != c.want {
			t.Errorf("%s: %d of %d milli-GPU, want %d", c.name, got, c.free.Total(), c.want)
		}
	}
	m := Mix{Kinds: []cluster.Demand{whole(1, 1), part(300, 1)}, Pods: 4}
	m.Kinds[0].Pods, m.Kinds[1].Pods = 3, 1
	f := free(1, 8, 50, 20)
	if got, want := m.Expected(&f), int64((3*700_000+200_000)/4); got != want {
		t.Errorf("expected fragmentation: %d, want %d millionths", got, want)
	}
}

// TestMeasureIsIncremental: what is kept from snapshot to snapshot is what a cold engine finds.
func TestMeasureIsIncremental(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	s := cluster.NewStore(cluster.Options{})
	warm := &Engine{}
	for step := range 600 {
		node := fmt.Sprint("n", r.IntN(12))
		switch uid := fmt.Sprint(r.IntN(60)); r.IntN(6) {
		case 0:
			st := cluster.NodeState{Name: node, UID: node, Allocatable: []cluster.Quantity{{Name: "gpu", Value: 8000}, {Name: "cpu", Value: 16_000}, {Name: "pods", Value: 20}}}
			if r.IntN(5) == 0 {
				st.Problem = "NotReady"
			}
			s.Apply(st)
		case 1:
			s.Apply(cluster.PodGone{UID: uid})
		case 2:
			if r.IntN(4) == 0 {
				s.Apply(cluster.NodeGone{Name: node})
			}
		default:
			p := cluster.PodState{UID: uid, Name: uid, Namespace: "ns", Ours: true, Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "pods", Value: 1}}}
			if r.IntN(2) == 0 {
				p.Requests = append(p.Requests, cluster.Quantity{Name: "gpu", Value: 1000 * int64(1+r.IntN(3))})
			} else {
				p.Spec.Share = cluster.Share{Devices: 1, Portion: cluster.PortionUnit / 10 * int64(1+r.IntN(9))}
				p.Groups = []string{fmt.Sprint("g", r.IntN(4))}
			}
			if r.IntN(3) > 0 {
				p.Phase, p.NodeName = cluster.Running, node
			}
			s.Apply(p)
		}
		snap := s.Snapshot(int64(step))
		if diff := cmp.Diff((&Engine{}).Fragmentation(snap), warm.Fragmentation(snap)); diff != "" {
			t.Fatalf("step %d (-cold +warm):\n%s", step, diff)
		}
	}
}

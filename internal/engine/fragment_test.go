package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/cluster"
)

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
			p := cluster.PodState{UID: uid, Name: uid, Namespace: "ns", Ours: true, Spec: &cluster.ClassSpec{}, Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "pods", Value: 1}}}
			if r.IntN(2) == 0 {
				p.Requests = append(p.Requests, cluster.Quantity{Name: "gpu", Value: 1000 * int64(1+r.IntN(3))})
			} else {
				p.Spec.Share = cluster.Share{Devices: 1, Portion: cluster.WholePortion / 10 * cluster.Portion(1+r.IntN(9))}
				p.Groups = []string{fmt.Sprint("g", r.IntN(4))}
			}
			if r.IntN(3) > 0 {
				p.Phase, p.NodeName = cluster.Running, node
			}
			s.Apply(p)
		}
		snap := s.Snapshot(cluster.UnixNano(int64(step)))
		if diff := cmp.Diff((&Engine{}).Fragmentation(snap), warm.Fragmentation(snap)); diff != "" {
			t.Fatalf("step %d (-cold +warm):\n%s", step, diff)
		}
	}
}

package enginetest

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// TestAbsurdDemand: a demand beyond all there is counts alike, however far beyond. Thousands of pods that ask for as much as can be
// read give everybody the shares, the room and the reasons that one of them does; and pods that others put on a node, asking
// for that, take that node and no more.
func TestAbsurdDemand(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newHerd(t)
		shape := cluster.PodState{Namespace: "x", Ours: true, Requests: []cluster.Quantity{{Name: "pods", Value: 1}}}
		for _, dim := range []string{"cpu", "memory", "gpu", "example.com/nic"} {
			if rapid.Bool().Draw(t, dim) {
				shape.Requests = append(shape.Requests, cluster.Quantity{Name: dim, Value: cluster.MaxQuantity})
			}
		}
		if len(shape.Requests) == 1 {
			shape.Requests = append(shape.Requests, cluster.Quantity{Name: "memory", Value: cluster.MaxQuantity})
		}
		many := rapid.SampledFrom([]int{2, 3, 4100, 8190, 8200, 16_400}).Draw(t, "pods")
		k := cluster.Key{Face: "kai", Namespace: "x", Name: "absurd"}
		h.events["3 absurd"] = cluster.GangState{
			Key: k, UID: "absurd", Queue: rapid.SampledFrom(h.leaves).Draw(t, "absurd queue"), Created: noon, Priority: 50, Preemptible: true,
			Sets: cluster.FlatTree(rapid.SampledFrom([]int32{1, 2, 1 << 30}).Draw(t, "least")),
		}
		foreign := len(h.nodes) > 0 && rapid.Bool().Draw(t, "foreign")
		if foreign {
			shape.Ours, shape.Phase, shape.NodeName = false, cluster.Bound, rapid.SampledFrom(h.nodes).Draw(t, "on")
			shape.Requests = shape.Requests[1:] // their number is what they may take otherwise
		}
		tell := func(pods int) string {
			events := h.list()
			for i := range pods {
				p := shape
				p.Name = fmt.Sprint("absurd-", i)
				p.UID = p.Name
				if !foreign {
					p.Gang = k
				}
				events = append(events, p)
			}
			snap := snapshotOf(events)
			r := everything(t).Run(context.Background(), snap, func(engine.Plan) {})
			text := ""
			for _, q := range r.Trace.Queues {
				text += fmt.Sprintln(q.Name, q.FairShare)
			}
			for i := range r.Trace.Gangs {
				if g := &r.Trace.Gangs[i]; g.Gang != k {
					text += fmt.Sprintln(g.Gang, g.Placed, g.Nominated, g.Diagnosis)
				}
			}
			return text
		}
		if one, all := tell(min(2, many)), tell(many); one != all {
			t.Fatalf("%d pods:\n%s\ntwo:\n%s", many, all, one)
		}
	})
}

package enginetest

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// TestSharesAreOfUse: in random clusters no queue is given a share that nobody below it may use: what a queue can use is what it
// asks for, within its limit; of a queue above others, what those can use. It is added up here from pods, charges as dialects
// give them, and queues, and shares no code with the division.
func TestSharesAreOfUse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		snap := snapshotOf(newCrowd(t).list())
		r := newEngine(t).Run(context.Background(), snap, func(engine.Plan) {})
		asks := map[string]int64{}
		snap.EachPod(func(p *cluster.Pod) {
			if p.Gang != cluster.None && p.Ours && (p.Phase == cluster.Pending || p.Phase.Active()) && p.Class.Share.MemoryMiB == 0 {
				asks[snap.Gang(p.Gang).Queue] += p.Class.Charge.At(cluster.GPU)
			} else if p.Class.Share.MemoryMiB > 0 && p.Gang != cluster.None {
				asks[snap.Gang(p.Gang).Queue] += int64(p.Class.Share.Devices) * cluster.Whole * 1000 // unclear before it has a node: any amount
			}
		})
		var useful func(name string, depth int) int64
		useful = func(name string, depth int) int64 {
			sum, q := asks[name], snap.QueueByName(name)
			for _, id := range snap.QueueOrder {
				if child := snap.Queue(id); child.Parent == name && depth < 9 {
					sum += useful(child.Name, depth+1)
				}
			}
			if limit := q.LimitAt(cluster.GPU); limit != cluster.Unlimited {
				sum = min(sum, limit)
			}
			return sum
		}
		for i := range r.Trace.Queues {
			q := &r.Trace.Queues[i]
			if most := useful(q.Name, 0); q.FairShare.At(cluster.GPU) > most {
				t.Fatalf("queue %s is given %d milli-GPU; all below it can use %d", q.Name, q.FairShare.At(cluster.GPU), most)
			}
		}
	})
}

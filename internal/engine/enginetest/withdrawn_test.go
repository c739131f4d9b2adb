package enginetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// TestWithdrawnPodByPod is about a bundle of which nothing is bound and that is withdrawn: its pods come back one after the
// other. A gang is decided anew as a whole, or else a part of it might be bound that the rest cannot follow.
func TestWithdrawnPodByPod(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                    string
		binding, bound, pending int // of a gang with a minimum of 4
		placed                  int
		reason                  *policy.Reason
	}{
		{"nothing has come back", 4, 0, 0, 0, nil},
		{"the first has come back", 3, 0, 1, 0, policy.ReasonBinding},
		{"the last is missing", 1, 0, 3, 0, policy.ReasonBinding},
		{"all have come back", 0, 0, 4, 4, nil},
		{"the gang had begun", 1, 2, 1, 0, policy.ReasonBinding},
		{"the gang had begun, the others are bound", 0, 3, 1, 1, nil},
		{"the gang is whole and grows", 1, 4, 2, 2, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := plant{nodes: 2, gangs: 1}
			s := p.store()
			key := cluster.Key{Face: "kai", Namespace: "ns", Name: "gang-000000"}
			s.Apply(cluster.GangState{Key: key, UID: key.Name, Queue: "dept-0-team-0", Priority: 50, Preemptible: true, Created: cluster.UnixNano(1), Sets: cluster.FlatTree(4)})
			n := 0
			add := func(count int, phase cluster.Phase) {
				for range count {
					st := cluster.PodState{
						UID: fmt.Sprint(n), Namespace: "ns", Name: fmt.Sprint(n), Gang: key, Ours: true, Phase: phase,
						Requests: []cluster.Quantity{{Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}},
					}
					if phase != cluster.Pending {
						st.NodeName = "node-00000"
					}
					s.Apply(st)
					n++
				}
			}
			add(c.binding, cluster.Binding)
			add(c.bound, cluster.Bound)
			add(c.pending, cluster.Pending)
			var reason *policy.Reason
			placed := 0
			res := builtIn(t).Run(context.Background(), s.Snapshot(cluster.UnixNano(1)), func(plan engine.Plan) {
				for _, b := range plan.Bundles {
					placed += len(b.Intents)
				}
			})
			for _, g := range res.Trace.Gangs {
				if g.Diagnosis != nil {
					reason = g.Diagnosis.Verdict.Reason
				}
			}
			if d := cmp.Diff([]any{c.placed, c.reason}, []any{placed, reason}); d != "" {
				t.Error(d)
			}
		})
	}
}

package enginetest

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// TestRestStarts is L4 for gangs that are told to wait for pods: whoever is told so has too few, those that have ended well
// included. The auditor counts by a rule of its own, from the objects; see docs/concepts/gangs.md.
func TestRestStarts(t *testing.T) {
	t.Parallel()
	finished := 0
	rapid.Check(t, func(t *rapid.T) {
		snap := snapshotOf(newHerd(t).list())
		a := newAuditor(snap)
		r := newEngine(t).Run(context.Background(), snap, func(engine.Plan) {})
		for i := range r.Trace.Gangs {
			gt := &r.Trace.Gangs[i]
			g := snap.GangByKey(gt.Gang)
			exist, ended := make([]int32, len(g.Sets)), false
			for _, id := range g.Pods {
				p := snap.Pod(id)
				if p.Ours && p.Set != cluster.None && p.Phase.Alive() && p.Phase != cluster.Gated {
					exist[p.Set]++
				}
				ended = ended || p.Phase == cluster.Succeeded
			}
			enough := a.satisfied(g, 0, exist)
			if enough && ended {
				finished++
			}
			if d := gt.Diagnosis; enough && d != nil && d.Verdict.Reason == policy.ReasonGangNotReady {
				t.Fatalf("gang %s: %s, and they do: %v live", g.Key, d.Verdict, exist)
			}
		}
	})
	t.Logf("%d gangs had members that have ended well, and enough others", finished)
}

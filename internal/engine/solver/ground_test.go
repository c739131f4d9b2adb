package solver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// leafwise is a filter that has nothing against anybody, and does not say that it looks at siblings only: with it, every leaf is
// asked for itself.
type leafwise struct{}

// CheckVictimQueue implements policy.VictimQueueFilter.
func (leafwise) CheckVictimQueue(policy.EvictionCause, *ledger.GangState, cluster.Resources, *ledger.QueueLedger) policy.Verdict {
	return policy.Verdict{}
}

// widen adds so many queues below a department or at the top that the rules about victim queues say the same of most of them. Each has a
// gang that runs, on nodes that are full with them, and some have one that waits.
func widen(r *rand.Rand, w *exampleCluster) {
	parent := ""
	if r.IntN(2) == 0 {
		parent = "d0"
	}
	n := 8 * (5 + r.IntN(2))
	for i := range n {
		q := team{name: fmt.Sprintf("w%02d", i), parent: parent, quota: int64(2 + r.IntN(3)), limit: -1, cpuQuota: -1, weight: 1, priority: 100, reclaim: -1, preempt: -1}
		if r.IntN(20) == 0 {
			q.quota = int64(r.IntN(2))
		}
		w.queues = append(w.queues, q)
		if i%8 == 0 {
			w.nodes = append(w.nodes, exampleNode{gpu: 8, cpu: 64, zone: "a"})
		}
		if r.IntN(30) > 0 {
			w.gangs = append(w.gangs, crew{queue: q.name, priority: 50, least: 1, started: 600, fixed: r.IntN(10) == 0, pods: []hand{{gpu: 1, on: len(w.nodes) - 1}}})
		}
		if r.IntN(5) == 0 {
			w.gangs = append(w.gangs, crew{queue: q.name, priority: 50, least: 1, pods: []hand{{gpu: 1, on: -1}}})
		}
	}
}

// TestBySiblings: what is decided, and what everybody is told, is the same whether queues are asked for all leaves below them and
// share what is known of who gives first, or every question looks at every leaf: in cities with many who wait, one after another,
// with a history that bars some from some.
func TestBySiblings(t *testing.T) {
	t.Parallel()
	evicted, refused, merged := 0, 0, 0
	for i := range cases(t, 250) {
		r := rand.New(rand.NewPCG(*seed, uint64(i)))
		w := city(r)
		for range 2 + r.IntN(12) {
			g := crew{queue: w.gangs[r.IntN(len(w.gangs))].queue, priority: 50, least: 1}
			g.pods = append(g.pods, hand{gpu: int64(1 + r.IntN(4)), cpu: int64(r.IntN(3)), on: -1})
			w.gangs = append(w.gangs, g)
		}
		if i%5 == 0 {
			widen(r, &w)
		}
		remember := func(*cluster.Store) {}
		if r.IntN(3) == 0 {
			remember = past(r, &w)
		}
		decide := func(with ...engine.PluginUse) string {
			prof := profile.BuiltIn()
			prof.Actions = []string{"allocate", "reclaim", "consolidation"}
			prof.Settings.SearchSteps = 0 // looking at less costs less, and nothing else differs
			prof.Tiers = append(prof.Tiers[:len(prof.Tiers):len(prof.Tiers)], with)
			reg := builtin.Registry()
			reg.Plugins["leafwise"] = []policy.Factory{policy.Is(leafwise{})}
			e, err := engine.New(prof, reg)
			if err != nil {
				t.Fatal(err)
			}
			var out []any
			result := e.Run(context.Background(), w.store(remember).Snapshot(noon), func(p engine.Plan) {
				out = append(out, p.Bundles)
				for _, b := range p.Bundles {
					if b.Eviction != nil {
						evicted++
					}
				}
			})
			for _, g := range result.Trace.Gangs {
				out = append(out, g.Tried)
				for _, a := range g.Tried {
					if len(a.Barred) > 0 {
						refused++
					}
					for _, b := range a.Barred {
						if b.Verdict.Reason == policy.ReasonVictimWithinShare && b.Verdict.Object == "" {
							merged++
						}
					}
				}
			}
			text, err := json.MarshalIndent(out, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		if by, each := decide(), decide(engine.PluginUse{Name: "leafwise"}); by != each {
			t.Fatalf("city %d\n%s\n%s", i, w.String(), differ(by, each))
		}
	}
	if evicted < 100 || refused < 100 || merged < 50 {
		t.Errorf("only %d decisions, %d refusals, %d of them of many queues in one", evicted, refused, merged)
	}
	t.Logf("%d decisions, %d refusals, %d of them of many queues in one", evicted, refused, merged)
}

// differ shows where two texts part.
func differ(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	from := max(0, n-600)
	return fmt.Sprintf("by siblings: …%s\nby leaf: …%s", a[from:min(len(a), n+300)], b[from:min(len(b), n+300)])
}

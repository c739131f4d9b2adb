package solver_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/solver"
)

// city is a town of many queues, three levels deep, whose nodes are full.
func city(r *rand.Rand) exampleCluster {
	pick := func(xs ...int64) int64 { return xs[r.IntN(len(xs))] }
	var w exampleCluster
	add := func(name, parent string) {
		w.queues = append(w.queues, team{
			name: name, parent: parent, quota: pick(0, 0, 0, 1, 2, 6, -1), limit: -1, weight: pick(0, 1, 1, 2), cpuQuota: pick(-1, -1, 4),
			priority: int32(pick(100, 100, 200)), reclaim: pick(-1, -1, -1, 300), preempt: -1,
		})
	}
	var leaves []string
	for d := range 1 + r.IntN(4) {
		dept := fmt.Sprintf("d%d", d)
		add(dept, "")
		for t := range 1 + r.IntN(6) {
			name := fmt.Sprintf("d%d-t%d", d, t)
			add(name, dept)
			if r.IntN(3) > 0 {
				leaves = append(leaves, name)
				continue
			}
			for k := range 1 + r.IntN(3) {
				leaf := fmt.Sprintf("%s-k%d", name, k)
				add(leaf, name)
				leaves = append(leaves, leaf)
			}
		}
	}
	nodes := 4 + r.IntN(8)
	for range nodes {
		w.nodes = append(w.nodes, exampleNode{gpu: 8, cpu: 64, zone: "a"})
	}
	for on, left := 0, int64(8); on < nodes; {
		g := crew{queue: leaves[r.IntN(len(leaves))], priority: int32(pick(50, 50, 60, 75)), started: pick(10, 60, 600), fixed: r.IntN(10) == 0}
		size := min(pick(1, 1, 2), left)
		for range min(1+r.Int64N(4), left/size) {
			g.pods = append(g.pods, hand{gpu: size, cpu: pick(0, 1, 2), on: on})
			left -= size
		}
		g.least = r.IntN(len(g.pods) + 1)
		w.gangs = append(w.gangs, g)
		if left == 0 {
			on, left = on+1, 8
		}
	}
	for range 3 {
		g := crew{queue: leaves[r.IntN(len(leaves))], priority: int32(pick(50, 70, 80)), least: 1}
		g.pods = append(g.pods, hand{gpu: pick(1, 4, 8), on: -1})
		w.gangs = append(w.gangs, g)
	}
	return w
}

// picker is an action that asks in which order units are taken.
type picker struct {
	r     *rand.Rand
	cause policy.EvictionCause
	asked int
	wrong string
}

// Run implements engine.Action.
func (p *picker) Run(s *engine.Session) {
	for _, g := range s.Waiting() {
		n, ok := solver.Picks(s, p.cause, g, func(int) int {
			if p.r.IntN(4) > 0 {
				return 0
			}
			return p.r.IntN(5)
		})
		p.asked += n
		if !ok {
			p.wrong = fmt.Sprintf("unit %d for %s", n, g.Key)
			return
		}
	}
}

// TestPick: who gives next by the tournament is who gives next by a look at every queue, whatever has moved shares since.
func TestPick(t *testing.T) {
	t.Parallel()
	asked := 0
	for i := range cases(t, 150) {
		r := rand.New(rand.NewPCG(*seed, uint64(i)))
		w := city(r)
		for _, cause := range []policy.EvictionCause{policy.Reclaim, policy.Preempt, policy.Consolidation} {
			p := &picker{r: r, cause: cause}
			stage(t, p).Run(context.Background(), w.store(nil).Snapshot(noon), func(engine.Plan) {})
			if asked += p.asked; p.wrong != "" {
				t.Fatalf("city %d, %s: %s\n%s", i, cause, p.wrong, w.String())
			}
		}
	}
	if asked < 1000 {
		t.Errorf("only %d units were asked about", asked)
	}
	t.Logf("%d units", asked)
}

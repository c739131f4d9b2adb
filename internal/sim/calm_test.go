package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/fairshare"
	"github.com/muster-scheduler/muster/internal/profile"
)

// taken notes who was evicted for whom by reclaim, and when.
type taken struct {
	of map[[2]cluster.Key][]cluster.Instant // by beneficiary and victim
	by map[cluster.Key][]cluster.Instant    // by victim; one entry for all pods that it loses at once
}

func newTaken() *taken {
	return &taken{of: map[[2]cluster.Key][]cluster.Instant{}, by: map[cluster.Key][]cluster.Instant{}}
}

// see takes in what was decided at a time, and says how many gangs lost pods to reclaim.
func (t *taken) see(now cluster.Instant, plans []engine.Plan) (gangs int) {
	for i := range plans {
		for j := range plans[i].Bundles {
			b := &plans[i].Bundles[j]
			if b.Eviction == nil || b.Eviction.Cause != engine.Reclaim {
				continue
			}
			for k := range b.Intents {
				in := &b.Intents[k]
				if in.Verb != engine.Evict || in.To != "" { // who is moved loses nothing
					continue
				}
				add := func(list []cluster.Instant) []cluster.Instant {
					if n := len(list); n == 0 || list[n-1] != now {
						gangs++
						list = append(list, now)
					}
					return list
				}
				pair := [2]cluster.Key{b.Gang, in.Gang}
				t.of[pair], t.by[in.Gang] = add(t.of[pair]), add(t.by[in.Gang])
			}
		}
	}
	return gangs
}

// TestConstantUsageIsCalm: what queues used does not change, nor does what they ask for. Then fair shares are the same in each of 100
// cycles, whatever is evicted and made anew meanwhile; no two gangs take from each other; and evictions come to an end.
func TestConstantUsageIsCalm(t *testing.T) {
	t.Parallel()
	const cycles, step = 100, 10 * time.Second
	took := 0
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 4))
		k := []string{"0.3", "1", "4"}[r.IntN(3)]
		p := profile.BuiltIn()
		for i, use := range p.Tiers[0] {
			if use.Name == "proportion" {
				p.Tiers[0][i].Arguments = policy.Arguments{"kValue": k}
			}
		}
		e, err := engine.New(p, builtin.Registry())
		if err != nil {
			t.Fatal(err)
		}
		seen, evicted, last := newTaken(), 0, 0
		var shares, first map[string]int64
		cycle := 0
		w := NewCluster(Options{Engine: e, Cycle: step, Grace: 20 * time.Second, Check: func(snap *cluster.Snapshot, plans []engine.Plan, trace *engine.Trace) error {
			if n := seen.see(snap.Now, plans); n > 0 {
				evicted, last = evicted+n, cycle
			}
			shares = map[string]int64{}
			for i := range trace.Queues {
				shares[trace.Queues[i].Name] = trace.Queues[i].FairShare.At(cluster.GPU)
			}
			return nil
		}})
		nodes := 2 + r.IntN(5)
		for i := range nodes {
			if err := w.AddNode(Node{Name: fmt.Sprintf("n%d", i), Allocatable: Room(8000, 256_000, 1<<40, 110)}); err != nil {
				t.Fatal(err)
			}
		}
		usage := map[string][]cluster.Quantity{}
		leaves := drawQueues(w, r, nodes*8, usage)
		submit := func(from int) { // half of the queues come first, and take more than theirs
			for at := from; at < len(leaves); at += 2 {
				for left, i := nodes*8, 0; left > 0; i++ {
					pods, gpus := 1+r.IntN(3), 1<<r.IntN(4)
					g := Gang{Name: fmt.Sprintf("%s-%d", leaves[at], i), Queue: leaves[at], Pods: pods, Min: 1 + r.IntN(pods), Requests: Room(int64(gpus)*1000, 1000, 1<<30, 1), Priority: 50}
					if err := w.Submit(g); err != nil {
						t.Fatal(err)
					}
					left -= pods * gpus
				}
			}
		}
		live := func(n int) {
			for range n {
				w.Store.Apply(cluster.UsageState{Queues: usage})
				if err := w.Advance(w.Now().Add(step)); err != nil {
					t.Fatal(err)
				}
				if _, err := w.Decide(t.Context()); err != nil {
					t.Fatal(err)
				}
				cycle++
			}
		}
		submit(0)
		live(20)
		submit(1)
		live(1)
		first = shares
		for cycle = 0; cycle < cycles; {
			live(1)
			for name, share := range first { // order: each on its own
				if shares[name] != share {
					t.Fatalf("seed %d, k %s, cycle %d: the share of queue %s went from %d to %d", seed, k, cycle, name, share, shares[name])
				}
			}
		}
		for pair := range seen.of { // order: each on its own
			if back := seen.of[[2]cluster.Key{pair[1], pair[0]}]; len(back) > 0 {
				t.Errorf("seed %d, k %s: %s and %s took from each other, at %v and %v", seed, k, pair[0], pair[1], seen.of[pair], back)
			}
		}
		if last > cycles/2 {
			t.Errorf("seed %d, k %s: in cycle %d somebody was still evicted", seed, k, last)
		}
		took += evicted
	}
	if t.Logf("%d gangs lost pods to reclaim", took); took < 100 {
		t.Error("nearly nobody was evicted: it proves little")
	}
}

// drawQueues makes departments and teams, and what they used; it returns the teams.
func drawQueues(w *Cluster, r *rand.Rand, gpus int, usage map[string][]cluster.Quantity) (leaves []string) {
	add := func(name, parent string) {
		quota := int64(0)
		if r.IntN(2) == 0 {
			quota = int64(r.IntN(gpus/4+1)) * 1000
		}
		amounts := func(v int64) []cluster.Quantity {
			return []cluster.Quantity{{Name: "gpu", Value: v}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}}
		}
		w.Store.Apply(cluster.QueueState{
			Name: name, UID: name, Parent: parent, Priority: 100, Created: w.Now().Add(-time.Hour), Quota: amounts(quota), Limit: amounts(cluster.Unlimited),
			Weight: []cluster.Quantity{{Name: "gpu", Value: fairshare.Fixed(float64(r.IntN(4))) / 1000}},
		})
		usage[name] = []cluster.Quantity{{Name: "gpu", Value: int64(r.IntN(1_000_001))}}
	}
	for d := range 1 + r.IntN(3) {
		dept := "d" + strconv.Itoa(d)
		add(dept, "")
		for i := range 1 + r.IntN(3) {
			leaves = append(leaves, dept+"-t"+strconv.Itoa(i))
			add(leaves[len(leaves)-1], dept)
		}
	}
	return leaves
}

// TestLivingUsageIsCalm: where usage follows what queues hold, as it does in a cluster, shares move by no more in a cycle than one more
// sample can do to the history, and nobody is tossed about: no gang loses pods to reclaim more than four times an hour, nor for the
// same other gang unless a share has moved to stay in between.
//
// The bound of a move: queues that all want more than there is divide R GPUs in proportion to s = max(0, n + k·(n − usage)), of which the n
// sum to 1 and the usages to at most 1, so that the s sum to at least 1. One sample of W moves a usage by at most 1/W, so an s by k/W, their
// sum by 2·k/W, since what one holds no other does, and a share by 3·k·R/W. Shares are whole GPUs: one more.
func TestLivingUsageIsCalm(t *testing.T) {
	t.Parallel()
	const window, cycles = 60, 300
	moves, turns, least := int64(0), 0, time.Duration(cluster.Forever.UnixNano())
	for seed := range uint64(24) {
		r := rand.New(rand.NewPCG(seed, 5))
		k := []float64{0.3, 1, 4}[r.IntN(3)]
		gpus := int64(2+r.IntN(4)) * 8
		text := fmt.Sprintf("{step: 1m, windowSize: %dm, duration: %dm, kValue: %v, nodes: [{gpus: 8, count: %d}], queues: [", window, cycles, k, gpus/8)
		jobs := ""
		for q := range 2 + r.IntN(4) {
			text += fmt.Sprintf("{name: q%d, weight: %d},", q, 1+r.IntN(3))
			size := 1 << r.IntN(4)
			jobs += fmt.Sprintf("q%d: {gpus: %d, numJobs: %d, start: %dm},", q, size, int(gpus)/size, r.IntN(20))
		}
		c := parse(t, text+"], jobs: {"+jobs+"}}")
		set, err := c.resolve()
		if err != nil {
			t.Fatal(err)
		}
		sim, err := newTimeshare(c, set, builtin.Registry())
		if err != nil {
			t.Fatal(err)
		}
		seen := newTaken()
		sim.cluster.o.Check = func(snap *cluster.Snapshot, plans []engine.Plan, _ *engine.Trace) error {
			seen.see(snap.Now, plans)
			return nil
		}
		s, err := sim.play(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		bound := int64(3*k*float64(gpus)/window*1000) + 1000
		for i := range s.Queues {
			q := &s.Queues[i]
			for at := window + 20; at < s.Cycles(); at++ {
				move := max(q.FairShare[at]-q.FairShare[at-1], q.FairShare[at-1]-q.FairShare[at])
				if moves = max(moves, move); move > bound {
					t.Errorf("seed %d, k %v: in minute %d the share of %s went from %d to %d, by more than %d", seed, k, at, q.Name, q.FairShare[at-1], q.FairShare[at], bound)
				}
			}
		}
		for victim, at := range seen.by { // order: each on its own
			for i := 4; i < len(at); i++ {
				if at[i].Sub(at[i-4]) < time.Hour {
					t.Errorf("seed %d, k %v: %s lost pods to reclaim five times within %s", seed, k, victim, at[i].Sub(at[i-4]))
				}
			}
		}
		for pair, at := range seen.of { // order: each on its own
			for _, back := range seen.of[[2]cluster.Key{pair[1], pair[0]}] {
				for _, went := range at {
					apart := max(back.Sub(went), went.Sub(back))
					if apart < cluster.Dwell {
						t.Errorf("seed %d, k %v: %s and %s took from each other within %s", seed, k, pair[0], pair[1], apart)
					}
					turns, least = turns+1, min(least, apart)
				}
			}
		}
		if n := s.Figures.Unprovoked; n != 0 {
			t.Errorf("seed %d, k %v: %d evictions repeated a pair without news", seed, k, n)
		}
	}
	t.Logf("the largest move of a share: %d thousandths of a GPU; %d pairs of evictions went both ways, %s apart at least", moves, turns/2, least)
}

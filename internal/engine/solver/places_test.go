package solver_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// drawKinds makes a random town with nodes of two or three kinds (zones), full of elastic gangs whose pods of one GPU each are
// more than are chosen among, in a tree of queues of one to three levels, some without weight; single pods wait for a part
// of a node, or all of it, mostly of a certain kind.
func drawKinds(r *rand.Rand) exampleCluster {
	pick := func(xs ...int64) int64 { return xs[r.IntN(len(xs))] }
	var w exampleCluster
	kinds := 2 + r.IntN(2)
	for i := range 4 + r.IntN(4) {
		w.nodes = append(w.nodes, exampleNode{gpu: pick(2, 4, 4, 4), cpu: 8, zone: string(rune('a' + i%kinds))})
	}
	free := func(name, parent string, quota, weight int64) {
		w.queues = append(w.queues, team{name: name, parent: parent, quota: quota, limit: -1, cpuQuota: -1, weight: weight, priority: 100, reclaim: -1, preempt: -1})
	}
	var leaves []string
	for d := range 1 + r.IntN(3) {
		name, levels := fmt.Sprintf("d%d", d), r.IntN(3)
		free(name, "", pick(0, 2, 4, 8, 12, 16), pick(0, 0, 1, 2))
		for k := range 1 + r.IntN(2) {
			if levels == 0 {
				leaves = append(leaves, name)
				break
			}
			team := fmt.Sprintf("%s-%d", name, k)
			free(team, name, pick(0, 2, 4, 8), pick(0, 1, 1))
			if levels == 1 {
				leaves = append(leaves, team)
				continue
			}
			free(team+"-x", team, pick(0, 4, 8), pick(0, 1))
			leaves = append(leaves, team+"-x")
		}
	}
	slices.Sort(leaves)
	leaves = slices.Compact(leaves)
	for range 2 + r.IntN(3) {
		g := crew{queue: leaves[r.IntN(len(leaves))], priority: int32(pick(50, 50, 60)), started: 600}
		zone := ""
		if r.IntN(2) == 0 {
			zone = string(rune('a' + r.IntN(kinds)))
		}
		for range 4 + r.IntN(10) {
			g.pods = append(g.pods, hand{gpu: 1, on: -1, zone: zone})
		}
		w.gangs = append(w.gangs, g)
		w.settle(r, len(w.gangs)-1)
		last := &w.gangs[len(w.gangs)-1]
		if last.pods = slices.DeleteFunc(last.pods, func(p hand) bool { return p.on < 0 }); len(last.pods) == 0 {
			w.gangs = w.gangs[:len(w.gangs)-1]
		}
	}
	for range 1 + r.IntN(2) {
		p := hand{gpu: pick(1, 2, 4, 4), on: -1}
		if r.IntN(3) > 0 {
			p.zone = string(rune('a' + r.IntN(kinds)))
		}
		w.gangs = append(w.gangs, crew{queue: leaves[r.IntN(len(leaves))], priority: int32(pick(50, 75)), least: 1, pods: []hand{p}})
	}
	return w
}

// drawDepartments makes a small random town of two departments, often without weight, whose teams hold all there is, and in
// which one waits: what its own department gives may decide what it may ask of the other.
func drawDepartments(r *rand.Rand) exampleCluster {
	pick := func(xs ...int64) int64 { return xs[r.IntN(len(xs))] }
	var w exampleCluster
	size := pick(2, 4)
	for range 2 + r.IntN(2) {
		w.nodes = append(w.nodes, exampleNode{gpu: size, cpu: 8, zone: "a"})
	}
	add := func(name, parent string, quota, weight int64) {
		w.queues = append(w.queues, team{name: name, parent: parent, quota: quota, limit: -1, cpuQuota: -1, weight: weight, priority: 100, reclaim: -1, preempt: -1})
	}
	own := pick(size/2, size, size, 2*size)
	add("d0", "", own, pick(0, 0, 1))
	add("t00", "d0", own, pick(0, 1))
	add("t01", "d0", pick(0, 0, size/2), pick(0, 1))
	add("d1", "", pick(0, size/2, size), pick(0, 0, 1))
	leaves := []string{"t00", "t01", "t01", "t10", "t10"}
	add("t10", "d1", pick(0, 2, 4), pick(0, 1))
	if r.IntN(2) == 0 {
		add("t11", "d1", pick(0, 2, 4), pick(0, 1))
		leaves = append(leaves, "t11")
	}
	for range 3 + r.IntN(4) {
		g := crew{queue: leaves[r.IntN(len(leaves))], priority: 50, least: 1, started: 600}
		for range 1 + r.IntN(2) {
			g.pods = append(g.pods, hand{gpu: pick(1, size/2, size/2), on: -1})
		}
		if r.IntN(2) == 0 {
			g.least = len(g.pods)
		}
		w.gangs = append(w.gangs, g)
		w.settle(r, len(w.gangs)-1)
	}
	w.gangs = append(w.gangs, crew{queue: "t00", priority: 50, least: 1, pods: []hand{{gpu: pick(size/2, size, size), on: -1}}})
	return w
}

// TestPlaces: if some node can be cleared for a pod by taking what is on it, one unit after another by the law, the pod gets
// room, however many others hold something elsewhere; that the search was partial is no excuse.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, cause := range []policy.EvictionCause{policy.Reclaim, policy.Preempt} {
		t.Run(string(cause), func(t *testing.T) {
			t.Parallel()
			questions, could, did := 0, 0, 0
			ask := func(w *exampleCluster) []*answer {
				answers, _ := play(w, &trial{cause: cause, local: true}, nil)
				return answers
			}
			missed := func(a *answer) bool { return len(a.near) > 0 && !a.ok && !a.idle }
			for i := range cases(t, 1500) {
				w := drawKinds(rand.New(rand.NewPCG(*seed, uint64(i))))
				for _, a := range ask(&w) {
					questions++
					if len(a.near) > 0 {
						could++
					}
					if a.ok {
						did++
					}
					if missed(a) {
						small := shrink(w, func(w *exampleCluster) bool { return slices.ContainsFunc(ask(w), missed) })
						t.Fatalf("town %d: a node that could be cleared is missed\n%s", i, tell(&small, cause))
					}
					if err := a.wrong(); err != nil {
						t.Fatalf("town %d: %v\n%s", i, err, tell(&w, cause))
					}
				}
			}
			t.Logf("%d questions, %d with a node that could be cleared, %d decided", questions, could, did)
		})
	}
}

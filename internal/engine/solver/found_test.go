package solver_test

import (
	"testing"

	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// q is a queue of a found town: quota and weight, and nothing else stated.
func q(name, parent string, quota, weight int64) team {
	return team{name: name, parent: parent, quota: quota, limit: -1, cpuQuota: -1, weight: weight, priority: 100, reclaim: -1, preempt: -1}
}

func n(gpu int64, zone string) exampleNode { return exampleNode{gpu: gpu, cpu: 8, zone: zone} }

// ran is a gang whose pods of one GPU each are on these nodes.
func ran(queue string, priority int32, least int, on ...int) crew {
	g := crew{queue: queue, priority: priority, least: least, started: 60}
	for _, node := range on {
		g.pods = append(g.pods, hand{gpu: 1, on: node})
	}
	return g
}

// waits is a gang that needs all of these pods.
func waits(queue string, priority int32, pods ...hand) crew {
	for i := range pods {
		pods[i].on = -1
	}
	return crew{queue: queue, priority: priority, least: len(pods), pods: pods}
}

func limited(t team, limit int64) team {
	t.limit = limit
	return t
}

// found are towns in which the solver was once wrong.
var found = []struct {
	name  string
	cause policy.EvictionCause
	town  exampleCluster
}{
	{
		"whether a queue may be asked at all is judged before anything is taken", policy.Reclaim, exampleCluster{
			nodes:  []exampleNode{n(3, "b"), n(2, "a")},
			queues: []team{q("d0", "", 0, 1), q("d1", "", 0, 1), q("q0", "d0", 0, 1), q("q1", "d1", 0, 1)},
			gangs:  []crew{ran("q0", 50, 1, 1), waits("q1", 50, hand{gpu: 2, zone: "a"}), ran("q0", 50, 3, 0, 0, 0)},
		},
	},
	{
		"what is legal in another order than the first is found", policy.Reclaim, exampleCluster{
			nodes:  []exampleNode{n(2, "a"), n(2, "a")},
			queues: []team{q("d0", "", 3, 1), q("d1", "", 2, 1), q("q0", "d0", 0, 1), q("q1", "d1", 0, 1)},
			gangs: []crew{
				ran("q1", 50, 1, 1),
				{queue: "q1", priority: 50, least: 1, started: 60, pods: []hand{{gpu: 2, on: 0}}},
				waits("q0", 50, hand{gpu: 1}, hand{gpu: 1}, hand{gpu: 1}), waits("q1", 50, hand{gpu: 1}),
			},
		},
	},
	{
		"nobody is spared, or moved, by whose going others may be taken", policy.Reclaim, exampleCluster{
			nodes:  []exampleNode{n(2, "a"), n(2, "a"), n(3, "a")},
			queues: []team{q("d0", "", 0, 1), limited(q("d1", "", 0, 1), 2), q("q0", "d0", 0, 3), q("q1", "d1", 0, 1), q("q2", "d0", 0, 1)},
			gangs: []crew{
				ran("q1", 50, 3, 1, 0, 2),
				{queue: "q2", priority: 50, least: 1, started: 60, pods: []hand{{gpu: 2, on: 2}}},
				waits("q0", 50, hand{gpu: 2}, hand{gpu: 2}),
			},
		},
	},
	{
		"a gang of which a pod was moved is not torn apart by the same run", policy.Preempt, exampleCluster{
			nodes:  []exampleNode{n(4, "b"), n(3, "a"), n(2, "b")},
			queues: []team{q("q0", "", 0, 1)},
			gangs: []crew{
				{queue: "q0", priority: 50, least: 1, started: 60, pods: []hand{{gpu: 2, on: 1}}},
				ran("q0", 50, 2, 2, 1), ran("q0", 50, 1, 0), waits("q0", 75, hand{gpu: 1, zone: "a"}),
				{queue: "q0", priority: 60, least: 1, started: 60, pods: []hand{{gpu: 2, on: 0}}},
				waits("q0", 75, hand{gpu: 2}),
			},
		},
	},
	{
		"unequal pods are placed where there is any way", policy.Preempt, exampleCluster{
			nodes:  []exampleNode{n(2, "b"), n(2, "a")},
			queues: []team{q("q0", "", 0, 1)},
			gangs:  []crew{waits("q0", 50, hand{gpu: 2}, hand{gpu: 1, zone: "b"})},
		},
	},
	{
		"a gang whose core has to go keeps what it can run with", policy.Reclaim, exampleCluster{
			nodes:  []exampleNode{n(2, "a"), n(4, "a")},
			queues: []team{q("d0", "", 0, 1), q("d1", "", 0, 1), q("q0", "d0", 0, 1), q("q1", "d1", 0, 1), q("q2", "d0", 0, 1)},
			gangs: []crew{
				ran("q0", 50, 2, 0, 0),
				{queue: "q2", priority: 50, least: 1, started: 60, pods: []hand{{gpu: 3, on: 1}, {gpu: 1, on: 1}}},
				waits("q1", 50, hand{gpu: 2}),
			},
		},
	},
	{
		"who lost its minimum takes nothing for what is left of it", policy.Preempt, exampleCluster{
			nodes:  []exampleNode{n(2, "a"), n(1, "b")},
			queues: []team{q("q0", "", -1, 1)},
			gangs: []crew{
				{queue: "q0", priority: 60, least: 2, started: 60, pods: []hand{{gpu: 1, on: 0}, {gpu: 1, on: 0}, {gpu: 1, on: -1, zone: "b"}}},
				ran("q0", 50, 1, 1), waits("q0", 75, hand{gpu: 2, zone: "a"}),
			},
		},
	},
	{
		"of pods that differ in nothing but labels, that one goes whose company nobody seeks", policy.Reclaim, exampleCluster{
			nodes:  []exampleNode{n(4, "a")},
			queues: []team{q("q0", "", 0, 1), q("q1", "", 0, 1)},
			gangs: []crew{
				{queue: "q1", priority: 50, least: 1, started: 60, pods: []hand{{gpu: 2, lonely: true}, {gpu: 2, lonely: true, friend: true}}},
				waits("q0", 50, hand{gpu: 1, lonely: true}),
			},
		},
	},
}

// TestFound keeps what the oracle found from coming back.
func TestFound(t *testing.T) {
	t.Parallel()
	for _, f := range found {
		for _, a := range try(&f.town, f.cause) {
			if a.missed() || a.wrong() != nil || a.ok && a.reducible() != nil {
				t.Errorf("%s:\n%s", f.name, tell(&f.town, f.cause))
			}
		}
	}
}

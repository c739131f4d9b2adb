package engine

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// Fragmentation measures a snapshot. It costs what has changed since the last one that this engine saw.
func (e *Engine) Fragmentation(snap *cluster.Snapshot) recorder.Fragmentation {
	return e.fragments.measure(snap)
}

// fragments keeps, over runs, how much of what is free each kind of work could not use. A node is looked at again when it
// changed, a kind when it is new; how common kinds are does not matter to what is kept. It never changes a decision.
type fragments struct {
	origin *cluster.Origin
	nodes  []*cluster.Node // by ID, as they were counted
	kinds  map[string]*fragmentsOf
	free   int64
	run    uint64
}

type fragmentsOf struct {
	demand   cluster.Demand
	unusable int64
	run      uint64
}

// measure brings the sums up to date: O(nodes) comparisons, and O(kinds × devices) for each node that changed.
func (g *fragments) measure(snap *cluster.Snapshot) recorder.Fragmentation {
	if g.origin != snap.Origin {
		*g = fragments{origin: snap.Origin, kinds: map[string]*fragmentsOf{}}
	}
	g.run++
	mix := policy.NewMix(snap)
	var fresh []*fragmentsOf
	for i := range mix.Kinds {
		k := g.kinds[mix.Kinds[i].Key]
		if k == nil {
			k = &fragmentsOf{demand: mix.Kinds[i]}
			g.kinds[mix.Kinds[i].Key] = k
			fresh = append(fresh, k)
		}
		k.run = g.run
	}
	for key, k := range g.kinds { // order: each on its own
		if k.run != g.run {
			delete(g.kinds, key)
		}
	}
	for _, k := range fresh {
		for _, n := range g.nodes {
			k.count(n, 1)
		}
	}
	for len(g.nodes) < snap.MaxNodeID() {
		g.nodes = append(g.nodes, nil)
	}
	for id := range g.nodes {
		n := snap.Node(cluster.NodeID(id))
		old := g.nodes[id]
		if n == old {
			continue
		}
		g.free += freeOn(n) - freeOn(old)
		for _, k := range g.kinds { // order: sums
			k.count(old, -1)
			k.count(n, 1)
		}
		g.nodes[id] = n
	}
	sum := int64(0)
	for i := range mix.Kinds {
		sum += int64(mix.Kinds[i].Pods) * g.kinds[mix.Kinds[i].Key].unusable
	}
	out := recorder.Fragmentation{Free: g.free, Kinds: len(mix.Kinds)}
	if mix.Pods > 0 {
		out.Unusable = sum / mix.Pods
	}
	return out
}

func (k *fragmentsOf) count(n *cluster.Node, sign int64) {
	if f, ok := freeNow(n); ok {
		k.unusable += sign * f.Unusable(&k.demand)
	}
}

func freeOn(n *cluster.Node) int64 {
	f, _ := freeNow(n)
	return f.Total()
}

// freeNow returns what is free on a node of a snapshot, and false when nobody may come to it or it has no GPUs.
func freeNow(n *cluster.Node) (policy.FreeGPUs, bool) {
	if n == nil || n.Problem != "" || n.Allocatable.At(cluster.GPU) <= 0 {
		return policy.FreeGPUs{}, false
	}
	f := policy.FreeGPUs{Room: n.Idle(), Units: n.DeviceUnits()}
	for i := range n.Devices {
		if used := n.Devices[i].Used; used > 0 && used < f.Units {
			f.Parts = append(f.Parts, f.Units-used)
		}
	}
	return f, true
}

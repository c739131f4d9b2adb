package engine

import "github.com/muster-scheduler/muster/internal/cluster"

// FreeGPUs is what is free on one node, as far as GPUs are concerned.
type FreeGPUs struct {
	// Room is what is free of the node's sums; whole GPUs are its dimension GPU.
	Room cluster.Resources
	// Parts is what is free of each device that pods share, and Units what each device has.
	Parts []int64
	Units int64
}

// whole is how many GPUs are nobody's.
func (f *FreeGPUs) whole() int64 { return max(0, f.Room.At(cluster.GPU)) / cluster.Whole }

// Total is all that is free, in milli-GPU.
func (f *FreeGPUs) Total() int64 {
	sum := f.whole() * cluster.Whole
	for _, p := range f.Parts {
		sum += f.milli(p)
	}
	return sum
}

func (f *FreeGPUs) milli(part int64) int64 { return max(0, part) * cluster.Whole / f.Units }

// Unusable returns how much of what is free one kind of work could not use, in milli-GPU: everything, if not one of its pods
// fits on the node; else what lies on devices that have less left than the pod takes of one.
//
// It is F_n(m) of Fragmentation Gradient Descent (Weng et al., "Beware of Fragmentation", USENIX ATC 2023).
func (f *FreeGPUs) Unusable(d *cluster.Demand) int64 {
	if !d.Requests.Fits(f.Room) {
		return f.Total()
	}
	takes, lost, places := f.Units, int64(0), int64(0)
	if !d.Share.None() {
		takes = d.Share.Takes(f.Units)
	}
	for _, p := range f.Parts {
		if p < takes {
			lost += f.milli(p)
		} else {
			places++
		}
	}
	if besides := d.Requests.At(cluster.GPU) / cluster.Whole; !d.Share.None() && (takes > f.Units || places+f.whole()-besides < int64(d.Share.Devices)) {
		return f.Total()
	}
	return lost
}

// Mix is the work that is typical of the cluster: the kinds that use GPUs, each as likely to come as it is common among the
// pods there are.
type Mix struct {
	Kinds []cluster.Demand
	// Pods is how many pods they have in all.
	Pods int64
}

// NewMix returns the mix of a snapshot. It costs nothing.
func NewMix(snap *cluster.Snapshot) Mix {
	m := Mix{Kinds: snap.Demands()}
	for i := range m.Kinds {
		m.Pods += int64(m.Kinds[i].Pods)
	}
	return m
}

// Expected returns how much of what is free on a node the next pod of the mix could not use, in millionths of a GPU: the mean
// of Unusable over the mix. 0 for an empty mix.
func (m *Mix) Expected(f *FreeGPUs) int64 {
	if m.Pods == 0 || f.Total() == 0 {
		return 0
	}
	sum := int64(0)
	for i := range m.Kinds {
		sum += int64(m.Kinds[i].Pods) * f.Unusable(&m.Kinds[i])
	}
	return expected(sum, m.Pods)
}

// expected turns a sum of milli-GPU over so many pods into the mean, in millionths of a GPU.
func expected(sum, pods int64) int64 {
	return sum/pods*1000 + sum%pods*1000/pods
}

// Fragmentation is how much of the GPUs that are free cannot be used as things are. Amounts are milli-GPU.
type Fragmentation struct {
	// Free is what is free on nodes that take pods, parts of shared devices included.
	Free int64 `json:"free"`
	// Unusable is the part of it that the next pod could not use, on average over the work there is.
	Unusable int64 `json:"unusable"`
	// Kinds is how many kinds of work were looked at.
	Kinds int `json:"kinds"`
}

// Fragmentation measures a snapshot. It costs what has changed since the last one that this engine saw.
func (e *Engine) Fragmentation(snap *cluster.Snapshot) Fragmentation {
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
func (g *fragments) measure(snap *cluster.Snapshot) Fragmentation {
	if g.origin != snap.Origin {
		*g = fragments{origin: snap.Origin, kinds: map[string]*fragmentsOf{}}
	}
	g.run++
	mix := NewMix(snap)
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
	out := Fragmentation{Free: g.free, Kinds: len(mix.Kinds)}
	if mix.Pods > 0 {
		out.Unusable = expected(sum, mix.Pods) / 1000
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
func freeNow(n *cluster.Node) (FreeGPUs, bool) {
	if n == nil || n.Problem != "" || n.Allocatable.At(cluster.GPU) <= 0 {
		return FreeGPUs{}, false
	}
	f := FreeGPUs{Room: n.Idle(), Units: n.DeviceUnits()}
	for i := range n.Devices {
		if used := n.Devices[i].Used; used > 0 && used < f.Units {
			f.Parts = append(f.Parts, f.Units-used)
		}
	}
	return f, true
}

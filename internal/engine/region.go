package engine

import "github.com/muster-scheduler/muster/internal/cluster"

// view is an order of nodes in which rankings are kept: all nodes by name, or those of a topology so that the nodes of each
// domain are neighbours.
type view struct {
	id       int32
	nodes    []cluster.NodeID
	at       []int32 // by node ID: position in nodes, -1 for the others
	rank     []int32 // by position: that in Snap.NodeOrder
	topology *cluster.Topology
	of       []cluster.DomainID // by position: the narrowest domain
	spans    []span             // by domain
}

// span is where the nodes of a domain are.
type span struct{ lo, hi int32 }

// Region is nodes that pods may go to: all, or those of a domain.
type Region struct {
	v      *view
	lo, hi int32 // in v.nodes
	domain cluster.DomainID
	gather gathering
}

// gathering says that pods that cannot all be in one domain of a level should be in as few as possible.
type gathering struct {
	topology *cluster.Topology
	level    int
}

// viewKey names a view: a topology's nodes within a part of another view.
type viewKey struct {
	of       int32
	lo, hi   int32
	topology string
}

// all is the view of all nodes.
func (pl *Placer) all() *view {
	if len(pl.views) == 0 {
		v := &view{nodes: pl.snap.NodeOrder, at: pl.rank, rank: make([]int32, len(pl.snap.NodeOrder))}
		for i := range v.rank {
			v.rank[i] = int32(i)
		}
		pl.views = []*view{v}
	}
	return pl.views[0]
}

// everywhere is the region of all nodes.
func (pl *Placer) everywhere() Region {
	v := pl.all()
	return Region{v: v, hi: int32(len(v.nodes))}
}

// Size is how many nodes the region has.
func (in Region) Size() int { return int(in.hi - in.lo) }

// Topology is the topology of which the region is a domain, nil for none, and Domain that domain.
func (in Region) Topology() *cluster.Topology { return in.v.topology }

// Domain is the domain that the region is, when it has a topology.
func (in Region) Domain() cluster.DomainID { return in.domain }

// within returns the part of a region that belongs to a topology, as a domain of it: O(nodes) the first time.
func (pl *Placer) within(in Region, t *cluster.Topology) Region {
	if in.v.topology == t {
		return in
	}
	key := viewKey{in.v.id, in.lo, in.hi, t.Name}
	v := pl.nested[key]
	if v == nil {
		v = pl.newView(in, t)
		pl.nested[key] = v
	}
	return Region{v: v, hi: int32(len(v.nodes)), domain: cluster.RootDomain, gather: in.gather}
}

func (pl *Placer) newView(in Region, t *cluster.Topology) *view {
	v := &view{id: int32(len(pl.views)), topology: t, at: make([]int32, pl.snap.MaxNodeID()), spans: make([]span, t.MaxDomainID())}
	for i := range v.at {
		v.at[i] = -1
	}
	v.nodes, v.rank, v.of = make([]cluster.NodeID, 0, in.Size()), make([]int32, 0, in.Size()), make([]cluster.DomainID, 0, in.Size())
	var add func(d cluster.DomainID)
	add = func(d cluster.DomainID) {
		v.spans[d].lo = int32(len(v.nodes))
		dom := t.Domain(d)
		for _, c := range dom.Children {
			add(c)
		}
		for _, n := range dom.Nodes {
			if at := in.v.at[n]; at >= in.lo && at < in.hi {
				v.at[n] = int32(len(v.nodes))
				v.nodes = append(v.nodes, n)
				v.rank = append(v.rank, pl.rank[n])
				v.of = append(v.of, d)
			}
		}
		v.spans[d].hi = int32(len(v.nodes))
	}
	add(cluster.RootDomain)
	pl.views = append(pl.views, v)
	return v
}

// part is a domain of the region's topology as far as it lies in the region.
func (in Region) part(d cluster.DomainID) Region {
	sp := in.v.spans[d]
	return Region{v: in.v, lo: max(in.lo, sp.lo), hi: max(in.lo, min(in.hi, sp.hi)), domain: d, gather: in.gather}
}

// has says whether a node is in the region.
func (in Region) has(n cluster.NodeID) bool {
	at := in.v.at[n]
	return at >= in.lo && at < in.hi
}

// Places returns how many pods of the class fit into each domain of the topology within the region, by domain, each pod
// for itself. The slice is the placer's own: it is valid until the next operation and must not be written to.
func (pl *Placer) Places(in Region, t *cluster.Topology, c *cluster.Class) []int {
	return pl.rankingIn(c, pl.within(in, t).v).places
}

// Top returns the narrowest domain of the topology in which all of the region that belongs to the topology is known to
// be: the root, unless the region is a domain of it.
func (pl *Placer) Top(in Region, t *cluster.Topology) cluster.DomainID {
	return pl.within(in, t).domain
}

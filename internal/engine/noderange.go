package engine

import "github.com/muster-scheduler/muster/internal/cluster"

// nodeOrder is an order of nodes in which rankings are kept: all nodes by name, or those of a topology so that the nodes of each
// domain are neighbours.
type nodeOrder struct {
	id        int32
	nodes     []cluster.NodeID
	at        []int32 // by node ID: position in nodes, -1 for the others
	rank      []int32 // by position: that in Snap.NodeOrder
	topology  *cluster.Topology
	of        []cluster.DomainID // by position: the narrowest domain
	intervals []interval         // by domain
}

// interval is where the nodes of a domain are.
type interval struct{ lo, hi int32 }

// NodeRange is nodes that pods may go to: all, or those of a domain.
type NodeRange struct {
	order  *nodeOrder
	lo, hi int32 // in order.nodes
	domain cluster.DomainID
	gather gathering
}

// gathering says that pods that cannot all be in one domain of a level should be in as few as possible.
type gathering struct {
	topology *cluster.Topology
	level    int
}

// orderKey names an order: a topology's nodes within a part of another order.
type orderKey struct {
	of       int32
	lo, hi   int32
	topology string
}

// all is the order of all nodes.
func (pl *Placer) all() *nodeOrder {
	if len(pl.orders) == 0 {
		order := &nodeOrder{nodes: pl.snap.NodeOrder, at: pl.rank, rank: make([]int32, len(pl.snap.NodeOrder))}
		for i := range order.rank {
			order.rank[i] = int32(i)
		}
		pl.orders = []*nodeOrder{order}
	}
	return pl.orders[0]
}

// everywhere is the range of all nodes.
func (pl *Placer) everywhere() NodeRange {
	order := pl.all()
	return NodeRange{order: order, hi: int32(len(order.nodes))}
}

// Size is how many nodes the range has.
func (in NodeRange) Size() int { return int(in.hi - in.lo) }

// Topology is the topology of which the range is a domain, nil for none, and Domain that domain.
func (in NodeRange) Topology() *cluster.Topology { return in.order.topology }

// Domain is the domain that the range is, when it has a topology.
func (in NodeRange) Domain() cluster.DomainID { return in.domain }

// within returns the part of a range that belongs to a topology, as a domain of it: O(nodes) the first time.
func (pl *Placer) within(in NodeRange, t *cluster.Topology) NodeRange {
	if in.order.topology == t {
		return in
	}
	key := orderKey{in.order.id, in.lo, in.hi, t.Name}
	order := pl.nested[key]
	if order == nil {
		order = pl.newOrder(in, t)
		pl.nested[key] = order
	}
	return NodeRange{order: order, hi: int32(len(order.nodes)), domain: cluster.RootDomain, gather: in.gather}
}

func (pl *Placer) newOrder(in NodeRange, t *cluster.Topology) *nodeOrder {
	order := &nodeOrder{id: int32(len(pl.orders)), topology: t, at: make([]int32, pl.snap.MaxNodeID()), intervals: make([]interval, t.MaxDomainID())}
	for i := range order.at {
		order.at[i] = -1
	}
	order.nodes, order.rank, order.of = make([]cluster.NodeID, 0, in.Size()), make([]int32, 0, in.Size()), make([]cluster.DomainID, 0, in.Size())
	var add func(d cluster.DomainID)
	add = func(d cluster.DomainID) {
		order.intervals[d].lo = int32(len(order.nodes))
		dom := t.Domain(d)
		for _, c := range dom.Children {
			add(c)
		}
		for _, n := range dom.Nodes {
			if at := in.order.at[n]; at >= in.lo && at < in.hi {
				order.at[n] = int32(len(order.nodes))
				order.nodes = append(order.nodes, n)
				order.rank = append(order.rank, pl.rank[n])
				order.of = append(order.of, d)
			}
		}
		order.intervals[d].hi = int32(len(order.nodes))
	}
	add(cluster.RootDomain)
	pl.orders = append(pl.orders, order)
	return order
}

// part is a domain of the range's topology as far as it lies in the range.
func (in NodeRange) part(d cluster.DomainID) NodeRange {
	sp := in.order.intervals[d]
	return NodeRange{order: in.order, lo: max(in.lo, sp.lo), hi: max(in.lo, min(in.hi, sp.hi)), domain: d, gather: in.gather}
}

// has says whether a node is in the range.
func (in NodeRange) has(n cluster.NodeID) bool {
	at := in.order.at[n]
	return at >= in.lo && at < in.hi
}

// Places returns how many pods of the class fit into each domain of the topology within the range, by domain, each pod
// for itself. The slice is the placer's own: it is valid until the next operation and must not be written to.
func (pl *Placer) Places(in NodeRange, t *cluster.Topology, c *cluster.Class) []int {
	return pl.rankingIn(c, pl.within(in, t).order).places
}

// Top returns the narrowest domain of the topology in which all of the range that belongs to the topology is known to
// be: the root, unless the range is a domain of it.
func (pl *Placer) Top(in NodeRange, t *cluster.Topology) cluster.DomainID {
	return pl.within(in, t).domain
}

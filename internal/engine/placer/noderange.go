package placer

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

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

// nodeRange is nodes that pods may go to: all, or those of a domain.
type nodeRange struct {
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
func (pl *Placer) everywhere() nodeRange {
	order := pl.all()
	return nodeRange{order: order, hi: int32(len(order.nodes))}
}

// size is how many nodes the range has.
func (in nodeRange) size() int { return int(in.hi - in.lo) }

// within returns the part of a range that belongs to a topology, as a domain of it: O(nodes) the first time.
func (pl *Placer) within(in nodeRange, t *cluster.Topology) nodeRange {
	if in.order.topology == t {
		return in
	}
	key := orderKey{in.order.id, in.lo, in.hi, t.Name}
	order := pl.nested[key]
	if order == nil {
		order = pl.newOrder(in, t)
		pl.nested[key] = order
	}
	return nodeRange{order: order, hi: int32(len(order.nodes)), domain: cluster.RootDomain, gather: in.gather}
}

func (pl *Placer) newOrder(in nodeRange, t *cluster.Topology) *nodeOrder {
	order := &nodeOrder{id: int32(len(pl.orders)), topology: t, at: make([]int32, pl.snap.MaxNodeID()), intervals: make([]interval, t.MaxDomainID())}
	for i := range order.at {
		order.at[i] = -1
	}
	order.nodes, order.rank, order.of = make([]cluster.NodeID, 0, in.size()), make([]int32, 0, in.size()), make([]cluster.DomainID, 0, in.size())
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
func (in nodeRange) part(d cluster.DomainID) nodeRange {
	sp := in.order.intervals[d]
	return nodeRange{order: in.order, lo: max(in.lo, sp.lo), hi: max(in.lo, min(in.hi, sp.hi)), domain: d, gather: in.gather}
}

// has says whether a node is in the range.
func (in nodeRange) has(n cluster.NodeID) bool {
	at := in.order.at[n]
	return at >= in.lo && at < in.hi
}

// query is what plugins are asked about a set, and the range that they look into: one piece, since there are many.
type query struct {
	policy.SetQuery
	pl *Placer
	in nodeRange
}

// Places is [NodeRange].Places.
func (q *query) Places(t *cluster.Topology, c *cluster.Class) []int {
	return q.pl.rankingIn(c, q.pl.within(q.in, t).order).places
}

// Top is [NodeRange].Top.
func (q *query) Top(t *cluster.Topology) cluster.DomainID { return q.pl.within(q.in, t).domain }

package engine

import (
	"github.com/muster-scheduler/muster/internal/cluster"
)

// staticCache keeps, over runs, which nodes each class may use as far as labels, taints and conditions say. It belongs to
// one Store; a snapshot of another one empties it.
type staticCache struct {
	origin *cluster.Origin
	masks  map[uint64]*mask
	run    uint64
}

// maxMasks bounds the cache: users put a UUID in every pod, and each is a class.
const maxMasks = 2048

// mask is a bitset of node IDs.
type mask struct {
	bits []uint64
	gen  uint64 // StaticGen it is true for
	run  uint64 // last run that used it
}

func (m *mask) has(n cluster.NodeID) bool {
	return int(n)>>6 < len(m.bits) && m.bits[n>>6]&(1<<(n&63)) != 0
}

func (c *staticCache) open(snap *cluster.Snapshot) {
	if c.origin != snap.Origin {
		c.origin, c.masks = snap.Origin, map[uint64]*mask{}
	}
	c.run++
	if len(c.masks) > maxMasks {
		for id, m := range c.masks { // order: drops all that the last run did not use
			if m.run+1 < c.run {
				delete(c.masks, id)
			}
		}
	}
}

// staticMask returns the class's mask, repaired for the nodes that changed since it was made.
func (s *Session) staticMask(c *cluster.Class) *mask {
	c = c.Site()
	cache := &s.engine.statics
	m := cache.masks[c.ID]
	if m != nil && m.run == cache.run {
		return m
	}
	if m == nil {
		m = &mask{}
		cache.masks[c.ID] = m
	}
	words := (s.Snap.MaxNodeID() + 63) / 64
	for len(m.bits) < words {
		m.bits = append(m.bits, 0)
	}
	m.run = cache.run
	if m.gen == s.Snap.StaticGen {
		return m
	}
	for _, id := range s.Snap.NodeOrder {
		n := s.Snap.Node(id)
		if n.StaticGen <= m.gen {
			continue
		}
		if s.checkStatic(c, n).Yes() {
			m.bits[id>>6] |= 1 << (id & 63)
		} else {
			m.bits[id>>6] &^= 1 << (id & 63)
		}
	}
	m.gen = s.Snap.StaticGen
	return m
}

func (s *Session) checkStatic(c *cluster.Class, n *cluster.Node) Verdict {
	for _, p := range s.points.statics {
		if v := p.it.CheckStatic(c, n); !v.Yes() {
			v.Plugin = p.name
			return v
		}
	}
	return Verdict{}
}

package placer

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Cache keeps, over runs, which nodes each class may use as far as labels, taints and conditions say. It belongs to
// one Store; a snapshot of another one empties it. It never changes what a placer finds. The zero Cache is empty.
type Cache struct {
	rank   []int32 // of the last placer, for its memory
	origin *cluster.Origin
	masks  map[uint64]*mask
	fresh  []*mask // those that were made in this run
	run    uint64
}

// maxMasks bounds the cache: users put a UUID in every pod, and each is a class.
const maxMasks = 2048

// mask is a bitset of node IDs.
type mask struct {
	bits []uint64
	gen  uint64 // StaticGen it is true for
	run  uint64 // last run that used it

	said   []*policy.Verdict // by position in Snap.NodeOrder, of the run in which it was made; nil in others
	why    *tallier          // what all other nodes say; nil until asked for
	whyGen uint64            // StaticGen it is true for
}

func (m *mask) has(n cluster.NodeID) bool {
	return int(n)>>6 < len(m.bits) && m.bits[n>>6]&(1<<(n&63)) != 0
}

func (c *Cache) open(snap *cluster.Snapshot) {
	if c.origin != snap.Origin {
		c.origin, c.masks = snap.Origin, map[uint64]*mask{}
	}
	for _, m := range c.fresh {
		m.said = nil
	}
	c.run, c.fresh = c.run+1, nil
	if len(c.masks) > maxMasks {
		for id, m := range c.masks { // order: drops all that the last run did not use
			if m.run+1 < c.run {
				delete(c.masks, id)
			}
		}
	}
}

// staticMask returns the class's mask, repaired for the nodes that changed since it was made.
func (pl *Placer) staticMask(c *cluster.Class) *mask {
	if c == pl.masked {
		return pl.mask
	}
	m := pl.maskOf(c.Site())
	pl.masked, pl.mask = c, m
	return m
}

func (pl *Placer) maskOf(c *cluster.Class) *mask {
	cache := pl.statics
	m := cache.masks[c.ID]
	if m != nil && m.run == cache.run {
		return m
	}
	if m == nil {
		m = &mask{}
		cache.masks[c.ID] = m
	}
	words := (pl.snap.MaxNodeID() + 63) / 64
	for len(m.bits) < words {
		m.bits = append(m.bits, 0)
	}
	m.run = cache.run
	if m.gen == pl.snap.StaticGen {
		return m
	}
	changed := pl.changed[:0]
	for _, id := range pl.snap.NodeOrder {
		if n := pl.snap.Node(id); n.StaticGen > m.gen {
			changed = append(changed, n)
		}
	}
	pl.changed = changed
	said := pl.checkStatics(c, changed)
	if m.gen == 0 {
		m.said = slices.Clone(said)
		cache.fresh = append(cache.fresh, m)
	}
	for i, no := range said {
		if id := changed[i].ID; no == nil {
			m.bits[id>>6] |= 1 << (id & 63)
		} else {
			m.bits[id>>6] &^= 1 << (id & 63)
		}
	}
	m.gen = pl.snap.StaticGen
	return m
}

// checkStatics says why pods of the class may not use nodes, nil where they may. What it returns is valid until the next call.
func (pl *Placer) checkStatics(c *cluster.Class, nodes []*cluster.Node) []*policy.Verdict {
	no := pl.refused[:0]
	no = slices.Grow(no, len(nodes))[:len(nodes)]
	clear(no)
	pl.refused = no
	for _, p := range pl.points.Statics {
		p.It.CheckStatic(c, nodes, no)
		for _, v := range no {
			if v != nil && v.Plugin == "" {
				v.Plugin = p.Name
			}
		}
	}
	return no
}

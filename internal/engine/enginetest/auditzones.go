package enginetest

import (
	"fmt"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// zone is a NUMA zone's part of one resource.
type zone struct {
	node           cluster.NodeID
	name, resource string
}

// zoned holds what plans expect pods to take from NUMA zones against what the zones have, after releases: what is on record for pods
// that neither go nor are evicted, and what is decided. A zone that was given too much before the plans may stay so.
type zoned struct {
	taken, has map[zone]int64
}

func zonesOf(snap *cluster.Snapshot) zoned {
	z := zoned{taken: map[zone]int64{}, has: map[zone]int64{}}
	for _, id := range snap.NodeOrder {
		of, told := snap.Object(cluster.NodeResourceTopologies, snap.Node(id).Name).(*cluster.NodeZones)
		if !told {
			of, _ = snap.Object(cluster.Numatopologies, snap.Node(id).Name).(*cluster.NodeZones)
		}
		if of == nil || of.Policy != cluster.ZonesRestricted && of.Policy != cluster.ZonesSingle {
			continue
		}
		for k := range of.Zones {
			for _, q := range of.Zones[k].Allocatable {
				z.has[zone{id, of.Zones[k].Name, q.Name}] += q.Value
			}
		}
	}
	snap.EachPod(func(p *cluster.Pod) {
		if p.Phase.Holds() && p.Phase != cluster.Releasing && p.Node != cluster.None {
			z.add(p.Node, p.Zones, 1)
		}
	})
	for at, x := range z.taken { // order: each zone on its own
		if has, strict := z.has[at]; strict {
			z.has[at] = max(has, x)
		}
	}
	return z
}

func (z *zoned) add(n cluster.NodeID, shares []cluster.ZoneShare, sign int64) {
	for _, s := range shares {
		for _, q := range s.Amounts {
			z.taken[zone{n, s.Zone, q.Name}] += sign * q.Value
		}
	}
}

// give takes what is decided for a pod from the zones of a node.
func (z *zoned) give(n *cluster.Node, in *engine.Intent) error {
	z.add(n.ID, in.Zones, 1)
	for _, s := range in.Zones {
		for _, q := range s.Amounts {
			at := zone{n.ID, s.Zone, q.Name}
			if has, strict := z.has[at]; strict && z.taken[at] > has {
				return fmt.Errorf("zone %s of node %s gives %d of %s after releases, and has %d", s.Zone, n.Name, z.taken[at], q.Name, has)
			}
		}
	}
	return nil
}

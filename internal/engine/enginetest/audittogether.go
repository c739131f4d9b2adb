package enginetest

import (
	"fmt"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// AuditTogether replays plans and reports the first breach of what gangs require of topologies: the pods that a bundle gives
// room, victims that move included, are in one domain of the required level for each set they are below; if others of the
// set have room already, in a domain of one of those.
func AuditTogether(snap *cluster.Snapshot, plans []engine.Plan) error {
	pods := map[string]*cluster.Pod{}
	where := map[cluster.PodID]cluster.NodeID{}
	snap.EachPod(func(p *cluster.Pod) {
		pods[p.UID] = p
		if p.Phase.Active() && p.Node != cluster.None {
			where[p.ID] = p.Node
		}
	})
	for _, plan := range plans {
		for i := range plan.Bundles {
			b := &plan.Bundles[i]
			fresh := map[cluster.PodID]bool{}
			var gangs []*cluster.Gang
			for k := range b.Intents {
				in := &b.Intents[k]
				p, node := pods[in.UID], in.Node
				if p == nil || p.Gang == cluster.None {
					continue
				}
				if in.Verb == ledger.Evict {
					delete(where, p.ID)
					node = in.To
				}
				if n := snap.NodeByName(node); n != nil {
					where[p.ID], fresh[p.ID] = n.ID, true
					gangs = append(gangs, snap.Gang(p.Gang))
				}
			}
			for _, g := range gangs {
				for set := range g.Sets {
					if err := together(snap, g, int32(set), where, fresh); err != nil {
						return fmt.Errorf("%s: bundle of %s: gang %s, set %d: %w", plan.Action, b.Gang, g.Key, set, err)
					}
				}
			}
		}
	}
	return nil
}

func together(snap *cluster.Snapshot, g *cluster.Gang, set int32, where map[cluster.PodID]cluster.NodeID, fresh map[cluster.PodID]bool) error {
	near := g.Sets[set].Near
	if near.Topology == "" {
		return nil
	}
	t := snap.Topology(near.Topology)
	level, known := -1, false
	if t != nil {
		level, known = t.LevelByName(near.Required)
	}
	old := map[cluster.DomainID]bool{}
	var others []cluster.DomainID
	for _, id := range g.Pods {
		p := snap.Pod(id)
		n, ok := where[id]
		if !ok || !p.Ours || p.Set == cluster.None || !below(g, p.Set, set) {
			continue
		}
		if fresh[id] {
			switch {
			case t == nil || near.Required != "" && !known || near == cluster.Constraint{Topology: near.Topology}:
				return fmt.Errorf("pod %s has room, but the constraint %+v cannot be met", p.Name, near)
			case near.Required == "":
				continue
			}
			here := t.DomainOf(n, level)
			if here == cluster.None {
				return fmt.Errorf("pod %s is on %s, which is in no domain of %s", p.Name, snap.Node(n).Name, near.Required)
			}
			others = append(others, here)
		} else if known {
			if d := t.DomainOf(n, level); d != cluster.None {
				old[d] = true
			}
		}
	}
	for _, d := range others {
		if len(old) == 0 && d != others[0] || len(old) > 0 && !old[d] {
			return fmt.Errorf("some pods get room in %q, others are in %q or elsewhere", t.Path(d), t.Path(others[0]))
		}
	}
	return nil
}

func below(g *cluster.Gang, i, top int32) bool {
	for i != cluster.None && i != top {
		i = g.Sets[i].Parent
	}
	return i == top
}

package enginetest

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// promises are those of a snapshot that stand: behind which there was room at first, and that no bundle has taken or made good.
type promises []*cluster.Hold

func promisesOf(snap *cluster.Snapshot) promises {
	var out promises
	left := map[string]cluster.Resources{}
	for i := range snap.Holds {
		h := &snap.Holds[i]
		n := snap.NodeByName(h.Node)
		if n == nil || snap.GangByKey(h.Gang) == nil {
			continue
		}
		rest, known := left[h.Node]
		if !known {
			rest = n.Later()
		}
		if h.Requests.Fits(rest) {
			rest = rest.Clone()
			rest.Sub(h.Requests)
			out = append(out, h)
		}
		left[h.Node] = rest
	}
	return out
}

// broken returns the promises that a bundle takes from others: of each victim as many as its record says, those first that are on nodes
// where the bundle gives room.
func (a *auditor) broken(b *engine.Bundle) promises {
	if b.Eviction == nil {
		return nil
	}
	var out promises
	for _, v := range b.Eviction.Victims {
		n := v.Promised
		for _, here := range []bool{true, false} {
			for _, h := range a.promised {
				if n > 0 && h.Gang == v.Gang && here == slices.ContainsFunc(b.Intents, func(in engine.Intent) bool { return in.Node == h.Node }) {
					out, n = append(out, h), n-1
				}
			}
		}
	}
	return out
}

// settle forgets the promises that a bundle has taken, and those it makes good.
func (a *auditor) settle(b *engine.Bundle) {
	gone := a.broken(b)
	a.promised = slices.DeleteFunc(a.promised, func(h *cluster.Hold) bool {
		return slices.Contains(gone, h) || slices.ContainsFunc(b.Intents, func(in engine.Intent) bool { return in.Kept == h.ID() })
	})
}

// inTheWay says whether a bundle, which has been taken, would not have its room at once if a promise to somebody else, and all others that
// stand, were kept: there would be too little of something that both are of.
func (a *auditor) inTheWay(h *cluster.Hold, b *engine.Bundle) bool {
	return a.devicesInTheWay(h, b) || a.roomInTheWay(h, b) || a.limits && a.limitInTheWay(h, b) || a.shareInTheWay(h, b)
}

// shareInTheWay: with Volcano's law nothing is handed out beyond the fair share of a queue, which what is promised to others of the queue counts towards. What the shares are the bundle's
// record says; the auditor has no division of its own.
func (a *auditor) shareInTheWay(h *cluster.Hold, b *engine.Bundle) bool {
	g, v := a.snap.GangByKey(b.Gang), a.snap.GangByKey(h.Gang)
	if g.Key.Face == kai.Face || g.Queue != v.Queue {
		return false
	}
	var asked cluster.Resources
	for i := range b.Intents {
		if in := &b.Intents[i]; in.Verb != ledger.Evict {
			asked.Add(a.pods[in.UID].Charge)
		}
	}
	for i := range b.Eviction.Shares {
		of := &b.Eviction.Shares[i]
		if of.Queue != g.Queue {
			continue
		}
		for d, x := range h.Charge {
			if x > 0 && asked.At(d) > 0 && of.Before.At(d)+asked.At(d) > of.FairShare.At(d) {
				return true
			}
		}
	}
	return false
}

func (a *auditor) devicesInTheWay(h *cluster.Hold, b *engine.Bundle) bool {
	kept := tenants{}
	for i := range h.Claims {
		_ = kept.take("theirs", h.Claims[i].Allocation)
	}
	for i := range b.Intents {
		for _, c := range b.Intents[i].Claims {
			if kept.take("ours", c.Allocation) != nil {
				return true
			}
		}
	}
	return false
}

func (a *auditor) roomInTheWay(h *cluster.Hold, b *engine.Bundle) bool {
	id := a.snap.NodeByName(h.Node).ID
	var asked, promised cluster.Resources // of the node's sums
	used := map[string]bool{}             // zones
	for i := range b.Intents {
		if in := &b.Intents[i]; in.Verb != ledger.Evict && in.Node == h.Node {
			asked.Add(most(a.pods[in.UID].Class.Requests, a.pods[in.UID].Class.Share))
			for _, s := range in.Zones {
				used[s.Zone] = true
			}
		}
	}
	zones := map[zone]int64{}
	for _, o := range a.promised {
		if o.Node != h.Node || o.Gang == b.Gang {
			continue
		}
		promised.Add(most(o.Requests, o.Share))
		for _, s := range o.Zones {
			for _, q := range s.Amounts {
				zones[zone{id, s.Zone, q.Name}] += q.Value
			}
		}
	}
	for d, x := range most(h.Requests, h.Share) {
		if x > 0 && asked.At(d) > 0 && (asked.At(d)+promised.At(d) > a.idle[id].At(d) || promised.At(d) > a.later[id].At(d)) {
			return true
		}
	}
	for _, s := range h.Zones {
		for _, q := range s.Amounts {
			at := zone{id, s.Zone, q.Name}
			if has, strict := a.zones.has[at]; strict && used[s.Zone] && a.zones.taken[at]+zones[at] > has {
				return true
			}
		}
	}
	return false
}

// most is the most that room takes of a node's sums: of devices that are shared, the whole.
func most(r cluster.Resources, s cluster.Share) cluster.Resources {
	if !s.None() {
		r = r.Clone()
		r.Add(cluster.Resources{cluster.GPU: int64(s.Devices) * cluster.Whole})
	}
	return r
}

func (a *auditor) limitInTheWay(h *cluster.Hold, b *engine.Bundle) bool {
	g := a.snap.GangByKey(b.Gang)
	above := a.chain(a.snap.GangByKey(h.Gang).Queue)
	for _, name := range a.chain(g.Queue) {
		if !slices.Contains(above, name) {
			continue
		}
		held, fixed := a.held[name].Clone(), a.fixed[name].Clone()
		for _, o := range a.promised {
			v := a.snap.GangByKey(o.Gang)
			if o.Gang == b.Gang || !slices.Contains(a.chain(v.Queue), name) {
				continue
			}
			held.Add(o.Charge)
			if !v.Preemptible {
				fixed.Add(o.Charge)
			}
		}
		if a.within(a.snap.QueueByName(name), h.Charge, g.Preemptible, &held, &fixed) != nil {
			return true
		}
	}
	return false
}

package engine

import (
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// How long a decision stands without the API server showing it. Failures are reported long before; these
// are the nets below. Evictions get longer the more of them there are to write.
const (
	bindStands     = 2 * time.Minute
	evictionStands = 30 * time.Second
	evictionTakes  = 100 * time.Millisecond
	promiseStands  = cluster.FarAhead
)

// assume lays the plan's decisions over the Store it was decided from, as of now, until the API server
// shows them: pods that are bound have their node, pods that are evicted give their room back, and what that frees is held
// for whom it was freed.
func (p *Plan) assume(s *cluster.Store, now cluster.Instant) {
	evicted := now.Add(p.EvictionsStand())
	for i := range p.Bundles {
		b := &p.Bundles[i]
		if b.Starts && b.count(ledger.Bind) > 0 {
			s.Started(b.Gang)
		}
		for j := range b.Intents {
			in := &b.Intents[j]
			if in.Kept != "" {
				s.Release(in.Kept)
			}
			switch in.Verb {
			case ledger.Bind:
				s.Assume(in.UID, in.Node, in.Groups, now.Add(bindStands))
				if len(in.Claims) > 0 {
					s.AssumeClaims(in.UID, in.Claims)
				}
				if in.Zones != nil {
					s.AssumeZones(in.UID, in.Zones)
				}
			case ledger.Evict:
				s.AssumeEvicted(in.UID, b.Gang, evicted)
			}
			if h, promised := in.hold(b); promised {
				s.Release(h.ID()) // an older promise ends earlier
				h.Until, h.Bundle = now.Add(promiseStands), b.ID
				s.Hold(h)
			}
		}
	}
}

// EvictionsStand is for how long the Store takes the plan's evictions for granted. One that has not been
// carried out by then must not be any more.
func (p *Plan) EvictionsStand() time.Duration {
	return evictionStands + evictionTakes*time.Duration(p.Evictions())
}

// hold is the room that an intent promises. A nomination promises none by itself: it may be made anew each time, in queue
// order. It does when pods are evicted for it, or when it goes on with an earlier promise.
func (in *Intent) hold(b *Bundle) (cluster.Hold, bool) {
	switch {
	case in.Verb == ledger.Nominate && (b.Eviction != nil || in.Kept != ""):
		return cluster.Hold{HoldState: cluster.HoldState{Gang: b.Gang, Pod: in.UID, Set: in.Set, Node: in.Node, Share: in.Share, Claims: in.Claims, Zones: in.Zones}, Requests: in.Requests, Charge: in.Charge}, true
	case in.Verb == ledger.Evict && in.To != "":
		return cluster.Hold{HoldState: cluster.HoldState{Gang: in.Gang, Moved: in.UID, Set: in.Set, Node: in.To, Share: in.Share, Claims: in.Claims, Zones: in.Zones}, Requests: in.Requests, Charge: in.Charge}, true
	}
	return cluster.Hold{}, false
}

// Forget takes back what a Driver laid over the Store for a bundle that was not, or not wholly, applied: binds are forgotten,
// promises withdrawn, and pods spared, but for those of which carried says that they have been evicted all the same. What a
// later decision promised stands; Forget reports whether nothing of the kind was found, so that whom the bundle was for has
// to be decided on anew.
func (b *Bundle) Forget(s *cluster.Store, carried func(uid string) bool) bool {
	last := true
	for i := range b.Intents {
		in := &b.Intents[i]
		switch in.Verb {
		case ledger.Bind:
			s.Forget(in.UID)
		case ledger.Evict:
			if !carried(in.UID) {
				s.Spare(in.UID)
			}
		}
		if h, promised := in.hold(b); promised && !(in.Verb == ledger.Evict && carried(in.UID)) {
			last = s.ReleaseOf(h.ID(), b.ID) && last
		}
	}
	return last
}

// remember tells the Store, after a run, what the run found out that the next one should know: the fair shares, which
// promises are void, who is admitted, and since when gangs have been stale.
func (r *Result) remember(s *cluster.Store) {
	shares := make(map[string]cluster.Resources, len(r.Trace.Queues))
	for i := range r.Trace.Queues {
		if q := &r.Trace.Queues[i]; q.FairShare != nil {
			shares[q.Name] = q.FairShare
		}
	}
	s.NoteShares(shares)
	for _, id := range r.Void {
		s.Release(id)
	}
	for _, key := range r.Begun {
		s.Admit(key, false)
	}
	for _, key := range r.Admitted {
		s.Admit(key, true)
	}
	for question, rest := range r.Answers { // order: each on its own
		s.RememberAnswer(question, rest)
	}
	for i := range r.Trace.Stale {
		s.Stale(r.Trace.Stale[i].Gang, r.Trace.Stale[i].Since)
	}
}

// stillVoid leaves out, of holds by their IDs, those that a plan of the same run has promised anew.
func (d *draft) stillVoid(void []string) []string {
	return slices.DeleteFunc(void, func(id string) bool {
		_, anew := d.promised[id]
		return anew
	})
}

// promises notes what the running action's plan promises.
func (d *draft) promises() {
	for i := range d.plan.Bundles {
		b := &d.plan.Bundles[i]
		for j := range b.Intents {
			if h, promised := b.Intents[j].hold(b); promised {
				d.promised[h.ID()] = struct{}{}
			}
		}
	}
}

// Package rules says who may have what, and take it from whom: what plugins say, put together, and what the engine says itself. Nodes are
// not looked at, and nothing is changed: actions and the solver ask, and act by a Statement.
package rules

import (
	"cmp"
	"fmt"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Rules is who may have what, and take it from whom: what plugins say, put together, and what the engine says itself. Nodes are not
// looked at.
type Rules struct {
	snap   *cluster.Snapshot
	ledger *ledger.Ledger
	points *policy.Plugins

	beneficiaries map[cluster.Key]bool    // gangs for which others were displaced, or must not be; filled with aged
	aged          []cluster.Instant       // the moments that a gang may have waited at or not, sorted; nil until asked for
	excess        map[cluster.GangID]bool // see Yields
	detail        policy.Detail           // that was asked for last

	refused map[cluster.GangID]*policy.Verdict // who is not admitted, and why
	law     law                                // of the face of whom a search is for
}

// New returns the rules of a run, by what its plugins say.
func New(snap *cluster.Snapshot, l *ledger.Ledger, ps *policy.Plugins) *Rules {
	return &Rules{snap: snap, ledger: l, points: ps, beneficiaries: map[cluster.Key]bool{}}
}

// Close closes the plugins that have something to say, and returns that by their names; nil for nothing. around is told that one begins,
// and returns whom to tell that it has ended.
func (ru *Rules) Close(around func(plugin string) func()) map[string]any {
	if len(ru.points.Closers) == 0 {
		return nil
	}
	facts := map[string]any{}
	for _, c := range ru.points.Closers {
		done := around(c.Name)
		facts[c.Name] = c.It.Close()
		done()
	}
	return facts
}

// Detail returns what the plugins chose for the pod of an operation.
func (ru *Rules) Detail(op ledger.Op) policy.Detail {
	ru.detail = policy.Detail{}
	for _, d := range ru.points.Details {
		d.Detail(op, &ru.detail)
	}
	return ru.detail
}

// Admit says whether a gang can be tried at all, before any room is looked at; the answer for a gang that cannot is its
// diagnosis.
func (ru *Rules) Admit(g *ledger.GangState) policy.Verdict {
	stray := g.Stray()
	postponed, wake := g.Postponed()
	refused := ru.refused[g.ID]
	switch {
	case g.Invalid != "":
		return policy.Verdict{Code: policy.NoForever, Reason: policy.ReasonGangInvalid, Object: g.Key.String(), Detail: g.Invalid}
	case !g.HasQueue():
		return noQueue(g)
	case g.GaveUp:
		return policy.Verdict{Code: policy.NoForever, Reason: policy.ReasonGaveUp, Object: g.Key.String()}
	case refused != nil:
		return *refused
	case !g.Ready(), len(g.Pods) == 0:
		have, gated := g.Count()
		if gated > 0 {
			return policy.Verdict{Code: policy.No, Reason: policy.ReasonGated, Object: g.Key.String(), Have: gated}
		}
		if stray != nil {
			return policy.Verdict{Code: policy.NoForever, Reason: policy.ReasonUnknownSubgroup, Object: stray.Name, Detail: stray.SetName()}
		}
		v := policy.Verdict{Code: policy.No, Reason: policy.ReasonGangNotReady, Object: g.Key.String(), Have: have, Need: int64(max(1, g.MinPods()))}
		if set, have, need := g.Lacking(); set != "" { // the others may have more than they need
			v.Detail = fmt.Sprintf("%s %d of %d", set, have, need)
		}
		return v
	}
	if pods, _ := ru.ledger.Next(g); len(pods) == 0 {
		switch {
		case postponed != nil:
			return policy.Verdict{Code: policy.Wait, Reason: policy.ReasonPostponed, Object: postponed.Name, WakeAt: wake}
		case stray != nil:
			return policy.Verdict{Code: policy.NoForever, Reason: policy.ReasonUnknownSubgroup, Object: stray.Name, Detail: stray.SetName()}
		}
		return policy.Verdict{Code: policy.No, Reason: policy.ReasonGated, Object: g.Key.String(), Have: int64(g.GatedPods)}
	}
	if postponed != nil && !g.Satisfied() && !g.SetReadyNow(0) {
		return policy.Verdict{Code: policy.Wait, Reason: policy.ReasonPostponed, Object: postponed.Name, WakeAt: wake}
	}
	if g.Binding() > 0 && !g.Bound() && !anyPodWill(g) {
		// Their bundle may be withdrawn yet, member by member. Deciding on those that came back first as if the others
		// were there to stay would bind a part of the gang.
		return policy.Verdict{Code: policy.Wait, Reason: policy.ReasonBinding, Object: g.Key.String(), Have: int64(g.Binding()), WakeAt: cluster.Forever}
	}
	return policy.Verdict{}
}

// MustAsk says whether a gang that waits has to be admitted and can be: it is in order, and has a queue to ask in.
func (ru *Rules) MustAsk(g *ledger.GangState) bool {
	return !ru.ledger.Admitted(g) && g.Invalid == "" && g.HasQueue() && !g.GaveUp
}

// Vote admits a gang that has to be, unless somebody is against it; then no is why it waits. One whose minimum asks for nothing is admitted unasked. wake is when time
// alone may change a no, 0 for never.
func (ru *Rules) Vote(g *ledger.GangState) (no *policy.Verdict, wake cluster.Instant) {
	asks := ru.ledger.Asks(g.Gang)
	if asks != nil {
		if v, wake := ru.points.Vote(g.Key.Face, g, asks); !v.Yes() {
			ru.Refuse(g, &v)
			return &v, wake
		}
	}
	ru.ledger.Admit(g, asks)
	return nil, cluster.Instant{}
}

// Refuse has a gang wait that has to be admitted, and no be why.
func (ru *Rules) Refuse(g *ledger.GangState, no *policy.Verdict) {
	if ru.refused == nil {
		ru.refused = map[cluster.GangID]*policy.Verdict{}
	}
	ru.refused[g.ID] = no
}

// noQueue says why a gang has no queue to ask in.
func noQueue(g *ledger.GangState) policy.Verdict {
	v := policy.Verdict{Code: policy.No, Reason: policy.ReasonQueueMissing, Object: g.Queue, Detail: g.Lack.Why}
	switch g.Lack.Kind {
	case ledger.LackNothing:
		return policy.Verdict{}
	case ledger.LackTree:
		v.Reason = policy.ReasonQueueBroken
	case ledger.LackLeaf:
		v.Reason = policy.ReasonQueueNotLeaf
	case ledger.LackOpen:
		v.Reason = policy.ReasonQueueClosed
	}
	return v
}

// anyPodWill says whether any one of its pods makes the gang whole, so that there is no part of it. Such a gang grows while
// its first pod is on its way: if it waited, whoever comes next would take the room that is its queue's.
func anyPodWill(g *ledger.GangState) bool {
	only := &g.Sets[0]
	for len(only.Children) == 1 && only.Pods <= 1 {
		only = &g.Sets[only.Children[0]]
	}
	return only.Leaf && only.Min <= 1
}

// CheckGates says whether the gang's queue, and the queues above it, may take request more as the session stands, once all
// that is leaving has gone, what is stuck excepted; and whether its face's own plugins let them.
func (ru *Rules) CheckGates(g *ledger.GangState, request cluster.Resources) policy.Verdict {
	v := ru.CheckReturn(g, request)
	if v.Yes() && ru.OwnLaw(g) {
		return ru.points.FaceGates(g, request)
	}
	return v
}

// CheckTurn says whether anything may be given to the gang's queue at all, where its face has a law of its own. Who asks for nothing but slots may always have them.
func (ru *Rules) CheckTurn(g *ledger.GangState) policy.Verdict {
	if !ru.OwnLaw(g) {
		return policy.Verdict{}
	}
	_, request := ru.ledger.Next(g)
	for d, x := range request {
		if d != cluster.Slots && x > 0 {
			return ru.points.FaceTurn(g.Key.Face, g.Leaf)
		}
	}
	return policy.Verdict{}
}

// CheckReturn is CheckGates of what was there already, and is moved: the face's own plugins have no say.
func (ru *Rules) CheckReturn(g *ledger.GangState, request cluster.Resources) policy.Verdict {
	return policy.FirstNo(ru.points.QueueGates, func(gate policy.QueueGate) policy.Verdict { return gate.CheckQueue(g, request, false) })
}

// CheckGatesNow is CheckGates of what they may take now, beside all that is leaving: what is evicted by this run included, since
// nobody has gone before he is gone.
func (ru *Rules) CheckGatesNow(g *ledger.GangState, request cluster.Resources) policy.Verdict {
	return policy.FirstNo(ru.points.QueueGates, func(gate policy.QueueGate) policy.Verdict { return gate.CheckQueue(g, request, true) })
}

// FairShare is what a queue is entitled to now; nil when nobody says. It is a plugin's own: it must not be written to, and whoever
// keeps it for longer than the run copies it.
func (ru *Rules) FairShare(q cluster.QueueID) cluster.Resources {
	if ru.points.Shares == nil {
		return nil
	}
	return ru.points.Shares.FairShare(q)
}

// CompareQueues orders two sibling queues, whose next gangs ask for so much: plugins, then age, name.
func (ru *Rules) CompareQueues(l, r *ledger.QueueLedger, lNext, rNext cluster.Resources) int {
	for _, o := range ru.points.QueueOrder {
		if c := o.CompareQueues(l.ID, r.ID, lNext, rNext); c != 0 {
			return c
		}
	}
	return cmp.Or(l.Created.Compare(r.Created), cmp.Compare(l.Name, r.Name))
}

// Orders are how the face of that name orders its queues and gangs; nil where those of all do.
func (ru *Rules) Orders(face string) *policy.Orders { return ru.points.Own(face) }

// Entwines says whether the place of some face's queues may change with what others of it hold.
func (ru *Rules) Entwines() bool { return ru.points.Entwines() }

// CompareGangs orders two gangs of one queue: plugins, those of the face's own where it has a configuration, then age, UID, key.
func (ru *Rules) CompareGangs(l, r *ledger.GangState) int {
	if own := ru.points.Own(l.Key.Face); own != nil {
		return compareGangs(own.Gangs, l, r)
	}
	return compareGangs(ru.points.GangOrder, l, r)
}

// CompareAnyGangs orders two gangs of whatever queues and faces as CompareGangs does those of one: by the plugins of all. What a face's own plugins say of its gangs would be no order
// among gangs of several.
func (ru *Rules) CompareAnyGangs(l, r *ledger.GangState) int {
	return compareGangs(ru.points.GangOrder, l, r)
}

func compareGangs(orders []policy.GangOrder, l, r *ledger.GangState) int {
	for _, o := range orders {
		if c := o.CompareGangs(l, r); c != 0 {
			return c
		}
	}
	if c := cmp.Or(l.Created.Compare(r.Created), cmp.Compare(l.UID, r.UID)); c != 0 {
		return c
	}
	switch {
	case l.Key == r.Key:
		return 0
	case l.Key.Less(r.Key):
		return -1
	}
	return 1
}

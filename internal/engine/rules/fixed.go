package rules

import (
	"cmp"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// Yields says whether a gang may lose its room to others: because it may be preempted, or because it began as one that may,
// says otherwise since, and its queue, or one above it, holds more for non-preemptible work than it may. A gang is placed as
// non-preemptible within quota only; what runs over quota is lent, and saying something else of it later gives no right to it.
//
// What is too much is chosen once for a run: those that started last, until what is left is within quota at every level. How
// much of them goes is settled unit by unit, see checkExcess.
func (ru *Rules) Yields(g *cluster.Gang) bool { return g.Preemptible || ru.excess[g.ID] }

// Open finds what is too much, once for the run, when all plugins are open: O(queues) while all queues are within quota.
func (ru *Rules) Open() {
	if !slices.ContainsFunc(ru.ledger.Queues(), func(q *ledger.QueueLedger) bool { return ru.overFixed(q, nil) }) {
		return
	}
	var gangs []*cluster.Gang
	ru.snap.EachGang(func(g *cluster.Gang) {
		if leaf := ru.ledger.LeafOf(g); !g.Preemptible && g.ActivePods > 0 && leaf != nil && ru.overAbove(leaf, nil) && ru.turned(g) {
			gangs = append(gangs, g)
		}
	})
	slices.SortFunc(gangs, func(a, b *cluster.Gang) int {
		return cmp.Or(b.LastStart.Compare(a.LastStart), b.Created.Compare(a.Created), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	ru.excess = map[cluster.GangID]bool{}
	freed := map[*ledger.QueueLedger]cluster.Resources{}
	for _, g := range gangs {
		leaf := ru.ledger.LeafOf(g)
		if !ru.overAbove(leaf, freed) {
			continue
		}
		ru.excess[g.ID] = true
		for q := leaf; q != nil; q = q.Parent {
			sum := freed[q]
			for _, id := range g.Pods {
				if p := ru.snap.Pod(id); p.Ours && p.Phase.Active() {
					sum.Add(p.Charge)
				}
			}
			freed[q] = sum
		}
	}
}

// turned says whether some pod of a non-preemptible gang was placed as preemptible.
func (ru *Rules) turned(g *cluster.Gang) bool {
	return slices.ContainsFunc(g.Pods, func(id cluster.PodID) bool {
		p := ru.snap.Pod(id)
		return p.Ours && p.Phase.Active() && !p.Charged().Fixed
	})
}

// overAbove says whether a queue, or one above it, holds more for non-preemptible work than it may, had it freed so much.
func (ru *Rules) overAbove(leaf *ledger.QueueLedger, freed map[*ledger.QueueLedger]cluster.Resources) bool {
	for q := leaf; q != nil; q = q.Parent {
		if ru.overFixed(q, freed[q]) {
			return true
		}
	}
	return false
}

// OverAgain says whether an evicted unit of a gang that may be preempted would, if it stayed, take its queue, or one above it, over
// what that may hold for non-preemptible work: because it was placed as such, which it is charged as until it ends.
func (ru *Rules) OverAgain(u *ledger.VictimUnit) bool {
	var back cluster.Resources // less than nothing is freed
	for _, p := range u.Pods {
		if u.Gang.Preemptible && u.Gang.FixedCharge(p) {
			back.Sub(p.Charge)
		}
	}
	for q := u.Gang.Leaf; q != nil && back != nil; q = q.Parent {
		if !ru.overFixed(q, nil) && ru.overFixed(q, back) {
			return true
		}
	}
	return false
}

func (ru *Rules) overFixed(q *ledger.QueueLedger, freed cluster.Resources) bool {
	for _, f := range ru.points.FixedQuota {
		if f.It.OverFixed(q.ID, freed) {
			return true
		}
	}
	return false
}

// Risks lists the gangs whose pods hold room otherwise than their objects read: O(those).
func (ru *Rules) Risks() []recorder.Risk {
	var out []recorder.Risk
	for g := range ru.snap.OddGangs() {
		switch {
		case !g.Key.Remnant():
			out = append(out, recorder.Risk{Gang: g.Key, UID: g.UID, Kind: recorder.RiskUnknownSubgroup, Queue: g.Queue, Pods: int(g.StrayPods)})
		case g.FormerUID != "":
			out = append(out, recorder.Risk{Gang: g.Former, UID: g.FormerUID, Kind: recorder.RiskChargedElsewhere, Queue: g.Queue, Pods: int(g.ActivePods)})
		}
	}
	for id := range ru.excess { // order: sorted below
		g := ru.snap.Gang(id)
		out = append(out, recorder.Risk{Gang: g.Key, UID: g.UID, Kind: recorder.RiskFixedOverQuota, Queue: g.Queue, Pods: int(g.ActivePods)})
	}
	slices.SortFunc(out, func(a, b recorder.Risk) int {
		return cmp.Or(cmp.Compare(a.Gang.String(), b.Gang.String()), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Queue, b.Queue))
	})
	return out
}

// checkExcess says whether a unit of a gang that calls itself non-preemptible may go: as long as there is too much of it.
func (ru *Rules) checkExcess(u *ledger.VictimUnit) policy.Verdict {
	if !u.Gang.Preemptible && (u.Moved || !ru.overAbove(u.Gang.Leaf, nil)) {
		return policy.Verdict{Code: policy.No, Reason: policy.ReasonNotPreemptible, Object: u.Gang.Key.String()}
	}
	return policy.Verdict{}
}

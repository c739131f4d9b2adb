package engine

import (
	"cmp"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Yields says whether a gang may lose its room to others: because it may be preempted, or because its queue, or one above it,
// holds more for non-preemptible work than it may, and the gang is part of what is too much. A gang is placed as
// non-preemptible within quota only, but its owner may say so later, of work that runs over quota; saying so must not keep
// others from what is theirs.
//
// What is too much is chosen once for a run: first the gangs that began as preemptible, then those that started last, until
// what is left is within quota at every level. How much of them goes is settled unit by unit, see [Session.CheckUnit].
func (s *Session) Yields(g *cluster.Gang) bool { return g.Preemptible || s.excess[g.ID] }

// findExcess fills s.excess: O(queues) while all queues are within quota.
func (s *Session) findExcess() {
	if !slices.ContainsFunc(s.queues.order, func(q *QueueLedger) bool { return s.overFixed(q, nil) }) {
		return
	}
	var gangs []*cluster.Gang
	s.Snap.EachGang(func(g *cluster.Gang) {
		if leaf := s.LeafOf(g); !g.Preemptible && g.ActivePods > 0 && leaf != nil && s.overAbove(leaf, nil) {
			gangs = append(gangs, g)
		}
	})
	turned := map[cluster.GangID]bool{}
	held := map[cluster.GangID]cluster.Resources{}
	for _, g := range gangs {
		var sum cluster.Resources
		for _, id := range g.Pods {
			if p := s.Snap.Pod(id); p.Ours && p.Phase.Active() {
				sum.Add(p.Charge)
				turned[g.ID] = turned[g.ID] || !p.Charged().Fixed
			}
		}
		held[g.ID] = sum
	}
	slices.SortFunc(gangs, func(a, b *cluster.Gang) int {
		return cmp.Or(First(turned[a.ID], turned[b.ID]), cmp.Compare(b.LastStart, a.LastStart), cmp.Compare(b.Created, a.Created), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	s.excess = map[cluster.GangID]bool{}
	freed := map[*QueueLedger]cluster.Resources{}
	for _, g := range gangs {
		leaf := s.LeafOf(g)
		if !s.overAbove(leaf, freed) {
			continue
		}
		s.excess[g.ID] = true
		for q := leaf; q != nil; q = q.Parent {
			sum := freed[q]
			sum.Add(held[g.ID])
			freed[q] = sum
		}
	}
}

// overAbove says whether a queue, or one above it, holds more for non-preemptible work than it may, had it freed so much.
func (s *Session) overAbove(leaf *QueueLedger, freed map[*QueueLedger]cluster.Resources) bool {
	for q := leaf; q != nil; q = q.Parent {
		if s.overFixed(q, freed[q]) {
			return true
		}
	}
	return false
}

func (s *Session) overFixed(q *QueueLedger, freed cluster.Resources) bool {
	for _, f := range s.points.fixedQuota {
		if f.it.OverFixed(q.ID, freed) {
			return true
		}
	}
	return false
}

// checkExcess says whether a unit of a gang that calls itself non-preemptible may go: as long as there is too much of it.
func (s *Session) checkExcess(u *Unit) Verdict {
	if !u.Gang.Preemptible && (u.Moved || !s.overAbove(u.Gang.Leaf, nil)) {
		return Verdict{Code: No, Reason: ReasonNotPreemptible, Object: u.Gang.Key.String()}
	}
	return Verdict{}
}

package actions

import (
	"cmp"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// StaleGang releases gangs that have had pods and too few of them for longer than their grace: half a gang computes
// nothing and holds everything. A gang one of whose pods has ended well is finishing, not stale, and one none of whose pods has
// reached its node is beginning: what is on its way is bound whole, or withdrawn by the binder.
type StaleGang struct{}

// Run looks at every gang that has some pods and may have too few: O(their pods).
func (StaleGang) Run(s *engine.Session) {
	type one struct {
		*ledger.GangState
		stale bool
	}
	var gangs []one
	for gang := range s.Snap.PartialGangs() {
		g := s.Ledger.Gang(gang.ID)
		if is := stale(s, g); is || !g.StaleSince.IsZero() { // of a tree of sets each gang that runs is looked at, and hardly one is stale
			gangs = append(gangs, one{g, is})
		}
	}
	slices.SortFunc(gangs, func(a, b one) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	for _, g := range gangs {
		if !g.stale {
			s.Recorder.Stale(g.GangState, cluster.Instant{})
			continue
		}
		since := cmp.Or(s.Snap.Past(g.StaleSince), s.Snap.Now)
		grace := s.Settings().StaleGrace
		if g.StaleGrace.Set {
			grace = g.StaleGrace.Value
		}
		s.Recorder.Stale(g.GangState, since)
		switch {
		case grace < 0:
		case s.Snap.Now.Sub(since) < grace:
			s.Recorder.WakeAt(since.Add(grace))
		default:
			release(s, g.GangState)
		}
	}
}

// stale says whether the gang has pods on nodes and is below its minimum, what this run gave it included.
func stale(s *engine.Session, g *ledger.GangState) bool {
	if g.Satisfied() {
		return false
	}
	if g.Key.Remnant() { // those of it that have ended are its former gang's
		former := s.Snap.GangByKey(g.Former)
		if former != nil && slices.ContainsFunc(former.Pods, func(id cluster.PodID) bool { return s.Snap.Pod(id).Phase == cluster.Succeeded }) {
			return false
		}
	}
	holds := false
	for _, id := range g.Pods {
		p := s.Snap.Pod(id)
		if p.Phase == cluster.Succeeded {
			return false
		}
		holds = holds || p.Ours && p.Phase.Holds() && p.Phase != cluster.Binding
	}
	return holds
}

func release(s *engine.Session, g *ledger.GangState) {
	pods := s.Ledger.LivePods(g)
	if len(pods) == 0 {
		return
	}
	st := s.Ledger.Begin()
	v := engine.Victim{Gang: g.Key, UID: g.UID, Queue: g.Queue, Priority: g.Priority, Pods: len(pods), Rule: "it has had fewer pods than its minimum for longer than its grace"}
	for _, p := range pods {
		st.Evict(p)
		v.GPU += p.Charge.At(cluster.GPU)
	}
	s.AcceptFor(st, g, &engine.EvictionRecord{Cause: policy.Repair, Queue: g.Queue, Victims: []engine.Victim{v}, Evicted: v.GPU})
}

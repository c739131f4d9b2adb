package solver

import (
	"encoding/binary"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// alike is a no that holds for all whose queues are alike and who ask the same, until something is decided: of ten thousand
// queues that may each have a GPU and cannot get one, one search is made.
type alike struct {
	answer    *recorder.Attempt
	wake      cluster.Instant // when time alone may change it
	cost      int             // steps
	decisions int             // of the session, when it was found
	free      bool            // it was found without a search: no other run needs it
}

// likeness names all that a search for the gang depends on, the name of its queue apart; "" where that is not known. A queue of
// which nobody holds anything is nobody's victim, so for all such queues below one the victims are the same; and what the
// rules say for it they say for its numbers. What names the queue itself is a no of its gates.
func (sv *Solver) likeness(g *ledger.GangState, request cluster.Resources, asks string) string {
	l := g.Leaf
	if sv.everyone().nodes[l.ID] != nil || sv.s.Rules.OwnLaw(g) || !sv.s.Rules.CheckGates(g, request).Yes() {
		return ""
	}
	key := make([]byte, 0, 256)
	key = append(append(key, l.Queue.Parent...), '/')
	for _, r := range [...]cluster.Resources{
		l.Quota, l.Limit, sv.s.Rules.FairShare(l.ID), l.Allocated, l.AllocatedNonPreemptible, l.Stuck, l.StuckNonPreemptible, l.Holding, l.HoldingNonPreemptible,
	} {
		key = binary.AppendVarint(key, int64(len(r)))
		for _, x := range r {
			key = binary.AppendVarint(key, x)
		}
	}
	key = binary.AppendVarint(key, int64(l.Queue.Priority))
	key = binary.AppendVarint(key, sv.s.Rules.ShareMoved(g).UnixNano())
	return string(append(key, asks...))
}

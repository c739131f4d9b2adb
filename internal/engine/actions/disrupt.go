package actions

import (
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/engine/solver"
)

// Disrupt gives gangs that wait the room of others, for one cause: every waiting gang is tried once, in queue order, for
// what it asks for next, as far as the budget of searches goes; see [solver.Budget].
type Disrupt struct{ Cause policy.EvictionCause }

// Run tries every waiting gang once.
func (d Disrupt) Run(s *engine.Session) {
	budget := solver.NewBudget(s)
	sv := solver.New(s, d.Cause, budget)
	first := entitled{s: s, reclaim: solver.New(s, policy.Reclaim, budget)}
	left := map[*ledger.QueueLedger]bool{} // by allocate, with all behind in the same queue
	queue := s.NewGangQueue(s.Waiting())
	for g := queue.Pop(); g != nil && !s.Aborted(); g = queue.Pop() {
		s.Recorder.Considered()
		if s.Recorder.Left(g) || left[g.Leaf] {
			if left[g.Leaf] = true; !s.Recorder.Left(g) {
				s.Recorder.Leave(g)
			}
			continue
		}
		if s.Recorder.Postponed(g) {
			budget.Close()
		}
		if d.Cause == policy.Consolidation {
			other, known := first.before(g)
			if !known {
				s.Recorder.Postpone(g)
				continue
			}
			if other != nil {
				s.Recorder.Note(g, recorder.Attempt{Action: s.Recorder.Action(), Verdict: policy.Verdict{
					Code: policy.No, Reason: policy.ReasonOthersFirst, Object: other.Key.String(),
				}})
				continue
			}
		}
		leaves, ok := sv.Solve(g)
		if !ok {
			if d.Cause == policy.Consolidation {
				first.failed = append(first.failed, g)
			}
			continue
		}
		for _, leaf := range leaves {
			queue.Changed(leaf)
		}
	}
	budget.Settle()
	if s.Aborted() {
		s.Recorder.Truncated()
	}
}

// entitled knows the gangs for which consolidation found nothing, and which of them may take back room from others.
type entitled struct {
	s       *engine.Session
	reclaim *solver.Solver
	failed  []*ledger.GangState // not looked at yet
	found   *ledger.GangState
}

// before returns a gang that should have the room that could be made for g: one that was before it in the order, that has
// a right to reclaim, and could, when g's queue would be above its share. Room that is made for g would be taken from it
// at once, and who was moved for it, was moved for nothing. known is false when the budget does not suffice to say.
func (e *entitled) before(g *ledger.GangState) (other *ledger.GangState, known bool) {
	if e.found == nil && len(e.failed) == 0 {
		return nil, true
	}
	if _, request := e.s.Ledger.Next(g); e.s.Rules.CheckReclaim(g, request).Yes() {
		return nil, true
	}
	for e.found == nil && len(e.failed) > 0 {
		could, asked := e.reclaim.Could(e.failed[0])
		if !asked {
			return nil, false
		}
		if could {
			e.found = e.failed[0]
		}
		e.failed = e.failed[1:]
	}
	return e.found, true
}

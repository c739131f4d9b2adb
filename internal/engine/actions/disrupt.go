package actions

import (
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/solver"
)

// Disrupt gives gangs that wait the room of others, by one right: every waiting gang is tried once, in queue order, for
// what it asks for next.
type Disrupt struct{ Right engine.Right }

// Run tries every waiting gang once.
func (d Disrupt) Run(s *engine.Session) {
	sv := solver.New(s, d.Right)
	first := entitled{s: s, reclaim: solver.New(s, engine.Reclaim)}
	queue := s.NewGangQueue(s.Waiting())
	for g := queue.Pop(); g != nil && !s.Aborted(); g = queue.Pop() {
		s.Considered()
		if d.Right == engine.Consolidation {
			if other := first.before(g); other != nil {
				s.Note(g, engine.Attempt{Action: s.Action(), Verdict: engine.Verdict{
					Code: engine.No, Reason: engine.ReasonOthersFirst, Object: other.Key.String(),
				}})
				continue
			}
		}
		leaves, ok := sv.Solve(g)
		if !ok {
			first.failed = append(first.failed, g)
			continue
		}
		for _, leaf := range leaves {
			queue.Changed(leaf)
		}
	}
	if s.Aborted() {
		s.Truncated()
	}
}

// entitled knows the gangs for which consolidation found nothing, and which of them may take back room from others.
type entitled struct {
	s       *engine.Session
	reclaim *solver.Solver
	failed  []*engine.GangState // not looked at yet
	found   *engine.GangState
}

// before returns a gang that should have the room that could be made for g: one that was before it in the order, that has
// a right to reclaim, and could, when g's queue would be above its share. Room that is made for g would be taken from it
// at once, and who was moved for it, was moved for nothing.
func (e *entitled) before(g *engine.GangState) *engine.GangState {
	if e.found == nil && len(e.failed) == 0 {
		return nil
	}
	if _, request := e.s.Next(g); e.s.CheckReclaim(g, request).Yes() {
		return nil
	}
	for e.found == nil && len(e.failed) > 0 {
		f := e.failed[0]
		e.failed = e.failed[1:]
		if e.reclaim.Could(f) {
			e.found = f
		}
	}
	return e.found
}

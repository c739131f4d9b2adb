package actions

import (
	"fmt"
	"strconv"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/engine/solver"
)

// Disrupt gives gangs that wait the room of others, for one cause: every waiting gang is tried once, in queue order, for
// what it asks for next, as far as the budget of searches goes; see [solver.Budget].
type Disrupt struct {
	Cause policy.EvictionCause
	// Bundles is how it takes from gangs of a face with a law of its own.
	Bundles policy.Bundles
}

// The arguments of an action that takes in bundles. Of domains all are looked at, however many are named.
const (
	argWhole   = "allowWholeBundle"
	argDomains = "maxDomains"
)

// With implements engine.Configurable: allowWholeBundle (true) says whether gangs may lose their minimum, maxDomains (8) is a number above 0.
func (d Disrupt) With(args policy.Arguments) (engine.Action, error) {
	if text, said := args[argWhole]; said {
		whole, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("argument %q is %.40q; it must be true or false", argWhole, text)
		}
		d.Bundles.Unbroken = !whole
	}
	if text, said := args[argDomains]; said {
		if n, err := strconv.Atoi(text); err != nil || n < 1 {
			return nil, fmt.Errorf("argument %q is %.40q; it must be a whole number above 0", argDomains, text)
		}
	}
	return d, nil
}

// Run tries every waiting gang once.
func (d Disrupt) Run(s *engine.Session) {
	s.Rules.TakeIn(d.Bundles)
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

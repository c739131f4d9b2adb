package solver

import (
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/recorder"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Budget bounds what the questions of one action cost in one run, in steps, which count what searches look at: a victim,
// a queue that might give, a node that might be cleared, a pod that is placed in a what-if. Like every bound of a search it is no time, so the same snapshot has
// the same plan.
//
// The gangs are asked about in their order, and what is known already (who asks the same has failed in this run, or the answer
// is remembered) costs nothing. When the budget is spent, the question that is being worked on is finished: one question is answered
// in every run, whatever it costs, and the bounds of a search bound that. The first gang after it that would have to be asked
// about is left open, and so is everybody behind it whose answer is not known: none of them may take what an open one before
// it could have had. They are told so (ReasonNextCycle), and the next run is wanted at once. A gang that one action left open
// is open for the actions that follow in the run as well: it has not been found yet that it cannot have room at less harm.
//
// What was answered no on the way is remembered until the others have had their turn, so that the next run begins with those that were
// left open: the place where it stopped is in the remembered answers, and no gang is passed by. An answer is not older than the
// pass is long. What allocate binds is no question and waits for none: its plan is out before the first is asked.
type Budget struct {
	s     *engine.Session
	began int
	limit int
	shut  bool // spent, with questions left
	noes  []no
	open  map[string]bool // questions that were left
}

// no is a question that was answered so.
type no struct {
	question string
	wake     cluster.Instant // when time alone may change the answer
	answer   *recorder.Attempt
}

// NewBudget begins the budget of the running action.
func NewBudget(s *engine.Session) *Budget {
	return &Budget{s: s, began: s.Recorder.Steps(), limit: s.Settings().SearchSteps, open: map[string]bool{}}
}

// Close leaves open what is not known, whatever is left of the budget.
func (b *Budget) Close() { b.shut = true }

// take says whether one more question may be asked. Without a budget all may.
func (b *Budget) take(question string) bool {
	switch {
	case b == nil:
		return true
	case !b.shut && b.limit > 0:
		b.shut = b.s.Recorder.Steps()-b.began >= b.limit
	}
	if b.shut {
		b.open[question] = true
	}
	return !b.shut
}

// refund takes back what a question cost that turned out to be none, or whose yes is for others to know. It leaves no answer that
// is remembered, and the next run would spend the same on it, and get no further.
func (b *Budget) refund(steps int) {
	if b != nil {
		b.began += steps
	}
}

// answered notes a no.
func (b *Budget) answered(n no) {
	if b != nil {
		b.noes = append(b.noes, n)
	}
}

// Settle ends the action: if questions are left, the answers of this run are remembered until those have theirs.
func (b *Budget) Settle() {
	if len(b.open) == 0 {
		return
	}
	b.s.Recorder.WakeAt(b.s.Snap.Now)
	until := b.s.Recorder.PassEnd(len(b.open), len(b.noes))
	for _, n := range b.noes {
		b.s.Recorder.RememberAnswer(n.question, until, n.wake, *n.answer)
	}
}

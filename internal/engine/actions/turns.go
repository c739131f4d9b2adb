package actions

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// turns bounds what looking for room costs in one run, in steps, which count the nodes that filters refuse and what filters
// search; see [recorder.Recorder.Step]. What fits at once costs next to nothing, unless no two gangs are alike: then each has all nodes rated,
// which counts too (ratingsPerStep).
//
// Half of the bound is for asking anew those whose answer no is remembered although something has changed since, in their order. Another
// half is for gangs whose answer is not known. When that is spent, a queue whose own part is spent too is closed: the
// first gang of it whose answer is not known, and everybody behind that one, is left for the next run, which is wanted at once. Other
// queues go on, so what one asks costs itself the time, and nobody else; twice the half closes all. The first question of a run is
// always asked, whatever it costs. If a queue thus spends what was another's, it waits in the next runs until there is no such other,
// and then all begin anew.
//
// A gang that is nominated is asked for in every run, until it has its room. What that costs is counted apart, up to a half
// again, so that it takes nothing from questions whose answer is not known; beyond it, it is one of them.
//
// While anybody is left, the answers no of the run are remembered, so that the next run comes to those who were left: for as long as it takes to
// ask everybody, and ten seconds. An answer that is remembered and that nothing has happened since is as good as a new one. With an older one
// nobody is passed by: if there is room for a gang behind, the queue is challenged. Those before are asked again, over as many
// runs as it takes, each once, and the one behind waits; whoever comes first and has a use for the room, has it. What more comes up
// during a challenge may go to the one behind: in a cluster in which something always changes, it would wait for ever otherwise. When all
// have been asked and nobody has a use for it, because the room has gone, say, the challenge is over.
type turns struct {
	s     *engine.Session
	half  int // 0 for no bound
	part  int // of the half for questions whose answer is not known, a queue's own
	anew  int // spent on asking anew
	kept  int // spent on who was nominated before
	spent int // spent on questions whose answer is not known
	of    map[*ledger.QueueLedger]*turn
	fresh int // how many queues are not to wait
	left  int
	noes  []no

	robbed bool // somebody is left although his queue has not spent its part
}

// ratingsPerStep is how many nodes that are rated for a class count as one step. Three thousand classes have a thousand nodes
// rated before the bound of a run is half spent, and wait for none.
const ratingsPerStep = 256

// turn is one queue's part of it.
type turn struct {
	spent      int
	waits      bool   // it has spent what was another's, and there are such others
	shut       bool   // somebody is left
	passed     bool   // somebody was told an answer older than the challenge, or older than this run where there is none
	older      bool   // somebody was told an answer of the challenge to which something has happened since
	challenged uint64 // at which generation there was room for one behind; 0 for not
}

// no is an answer of this run that is worth resting.
type no struct {
	question string
	until    cluster.Instant // since an earlier run; 0 for not
	told     *recorder.Told
}

func newTurns(s *engine.Session, pending []*ledger.GangState) *turns {
	t := &turns{s: s, of: map[*ledger.QueueLedger]*turn{}}
	steps := s.Settings().SearchSteps
	if steps <= 0 {
		return t
	}
	t.half = max(1, steps/2)
	for _, g := range pending {
		if t.of[g.Leaf] == nil {
			of := &turn{}
			if r, ok := s.Snap.RememberedAnswer(challenge(g.Leaf)); ok {
				of.challenged = r.Asked
			}
			if _, of.waits = s.Snap.RememberedAnswer(debt(g.Leaf)); !of.waits {
				t.fresh++
			}
			t.of[g.Leaf] = of
		}
	}
	t.part = t.half / max(1, len(t.of))
	return t
}

// challenge names what is remembered of a queue that is challenged: when.
func challenge(q *ledger.QueueLedger) string { return "allocate of queue/" + q.Name }

// debt names what is remembered of a queue that has spent what was another's.
func debt(q *ledger.QueueLedger) string { return "allocate owed by queue/" + q.Name }

// nominated names what is remembered of a gang that is nominated.
func nominated(g *ledger.GangState) string { return "allocate nominated/" + g.UID }

// closed says whether no more of the queue's questions are asked whose answer is not known.
func (t *turns) closed(of *turn) bool {
	return of.shut || of.waits && t.fresh > 0 || t.spent >= t.half && of.spent >= t.part || t.spent >= 2*t.half
}

// try is TryGang within the bound. left says that the gang is left for the next run, and has been told.
func (t *turns) try(st *ledger.Statement, g *ledger.GangState) (d *recorder.Diagnosis, left bool) {
	if t.half == 0 || t.s.Ledger.Holds(g) { // who was promised room takes it
		return t.s.Placer.TryGang(st, g), false
	}
	of, question, asks, again := t.of[g.Leaf], "allocate/"+g.UID, "", cluster.Instant{}
	if remembered, ok := t.s.Snap.RememberedAnswer(question); ok {
		asks = t.asks(g)
		told, ok := remembered.Why.(*recorder.Told)
		fresh := remembered.Asked == t.s.Snap.Generation || of.challenged > 0 && remembered.Asked >= of.challenged
		if ok = ok && told.Asks == asks && (fresh || of.challenged == 0); ok {
			if fresh || of.shut || t.anew >= t.half {
				if !fresh { // its turn comes when those before it have fresh answers
					of.passed = true
					t.s.Recorder.WakeAt(t.s.Snap.Now)
				} else if remembered.Asked != t.s.Snap.Generation {
					of.older = true
					t.s.Recorder.WakeAt(remembered.Until)
				}
				pods, _ := t.s.Ledger.Next(g)
				return t.s.Recorder.Retell(told, pods), false
			}
			again = remembered.Until
		}
	}
	_, keeps := t.s.Snap.RememberedAnswer(nominated(g))
	keeps = keeps && !of.shut && t.kept < t.half
	if again.IsZero() && !keeps && t.closed(of) {
		t.leave(g)
		return nil, true
	}
	before, rated := t.s.Recorder.Steps(), t.s.Placer.Rated()
	d = t.s.Placer.TryGang(st, g)
	cost := t.s.Recorder.Steps() - before + t.s.Placer.Rated()/ratingsPerStep - rated/ratingsPerStep
	dear := cost > 0 || t.s.Placer.Rated() > rated
	switch {
	case !again.IsZero():
		t.anew += cost
	case keeps:
		t.kept += cost
	default:
		t.spent += cost
		of.spent += cost
	}
	switch {
	case d == nil && of.passed:
		st.Discard()
		t.remember(challenge(g.Leaf), t.s.Recorder.PassEnd(t.left, len(t.noes)), &recorder.Told{})
		t.leave(g)
		return nil, true
	case d == nil && of.challenged > 0:
		t.remember(challenge(g.Leaf), t.s.Snap.Now, &recorder.Told{}) // it is over
	}
	switch {
	case !dear:
	case d == nil && !st.Binds():
		t.remember(nominated(g), t.s.Recorder.PassEnd(0, 0), &recorder.Told{})
	case d != nil:
		if asks == "" {
			asks = t.asks(g)
		}
		t.noes = append(t.noes, no{question, again, &recorder.Told{Asks: asks, Diagnosis: *d}})
	}
	return d, false
}

// asks names what the gang asks for.
func (t *turns) asks(g *ledger.GangState) string {
	pods, _ := t.s.Ledger.Next(g)
	return string(t.s.Placer.AppendKinds([]byte(g.Shape()), g, pods))
}

// leave leaves a gang, and with it all of its queue whose answer is not known.
func (t *turns) leave(g *ledger.GangState) {
	of := t.of[g.Leaf]
	t.robbed = t.robbed || !of.waits && of.spent < max(1, t.part) // with more queues than steps, a part is nothing
	of.shut = true
	t.left++
	t.s.Recorder.Diagnose(g, &recorder.Diagnosis{Verdict: policy.Verdict{Code: policy.No, Reason: policy.ReasonNextCycle}})
	t.s.Recorder.Leave(g)
}

// settle ends the action.
func (t *turns) settle() {
	until := t.s.Recorder.PassEnd(t.left, len(t.noes))
	for _, n := range t.noes {
		switch {
		case !n.until.IsZero():
			t.remember(n.question, n.until, n.told)
		case t.left > 0:
			t.remember(n.question, until, n.told)
		}
	}
	if t.left > 0 {
		t.s.Recorder.WakeAt(t.s.Snap.Now)
	}
	for leaf, of := range t.of { // order: each is remembered by itself
		if of.challenged == 0 || of.shut || of.passed {
			continue
		}
		t.remember(challenge(leaf), t.s.Snap.Now, &recorder.Told{}) // all have been asked
		if of.older {
			t.s.Recorder.WakeAt(t.s.Snap.Now) // and are asked anew about what has happened meanwhile
		}
	}
	t.owe()
}

// owe lets those wait who have spent what was another's, until nobody is left who could not spend his part.
func (t *turns) owe() {
	for leaf, of := range t.of { // order: each is remembered by itself
		switch {
		case t.robbed && (of.waits || of.spent > t.part):
			t.remember(debt(leaf), t.s.Recorder.PassEnd(t.left, len(t.noes)), &recorder.Told{})
		case of.waits:
			t.remember(debt(leaf), t.s.Snap.Now, &recorder.Told{})
		}
	}
}

// remember keeps an answer that time alone does not change.
func (t *turns) remember(question string, until cluster.Instant, told *recorder.Told) {
	t.s.Recorder.RememberAnswer(question, until, cluster.Forever, told)
}

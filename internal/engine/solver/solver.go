package solver

import (
	"slices"
	"strconv"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// The bounds of one search. Budgets are steps, not time: the same question always gets the same answer.
const (
	// exhaustive is up to how many units all choices are searched when the rules refuse some of them.
	exhaustive = 12
	// maxProbes is how many times one gang is placed in what-ifs where placing is the only way to know.
	maxProbes = 512
	// A question whose no cost this many steps or more is remembered for a time in proportion, so that searching in vain takes
	// about one part in a hundred of the scheduler's time: a step (a victim looked at) takes about a microsecond.
	costly      = 1000
	restPerStep = time.Duration(100_000)
	// linearProbes is after how many of them in vain not every prefix is tried any more, where none implies the next.
	linearProbes = 64
	// maxMovers is up to how many gangs that run it is tried to move them in the victim order, wherever they are.
	maxMovers = 1024
	// maxNodes is on how many nodes consolidation tries to make room for one pod.
	maxNodes = 64
)

// Solver searches victims for the gangs of one action of one run.
type Solver struct {
	s            *engine.Session
	cause        policy.EvictionCause
	budget       *Budget // nil for none
	victimQueues *victimQueues
	land         *land
	targets      []target                     // see leavable; nil until asked for
	lacking      map[lackKey]lacking          // see clearable
	failed       map[string]*recorder.Attempt // by question: who failed alike
	alike        map[string]alike             // by likeness: what others were told whose queues are no better off
	most         most
}

// New returns a solver for one action of one run: O(gangs) on first use. Without a budget (nil) every question is answered.
func New(s *engine.Session, cause policy.EvictionCause, budget *Budget) *Solver {
	return &Solver{s: s, cause: cause, budget: budget, failed: map[string]*recorder.Attempt{}, alike: map[string]alike{}, lacking: map[lackKey]lacking{}}
}

// search is one question while it is worked on.
type search struct {
	*Solver
	g       *ledger.GangState
	pods    []cluster.PodID
	request cluster.Resources
	st      *ledger.Statement
	w       *walk
	units   []taken
	marks   []ledger.Mark // before each unit
	spared  []bool
	probes  int
	doubt   bool // the last probe failed, and another arrangement may exist
	partial bool
	bound   bound                        // why it is partial
	asked   map[*ledger.QueueLedger]bool // the queues that had to give at some moment
	late    bool                         // who is killed is judged in the end, when it is known who moves
	untried bool                         // choices of who moves and who is killed are left
	movers  bool                         // consolidation: somebody may be moved
	cost    int                          // steps, when it has ended
}

// Solve makes room for what the gang asks for next, if it can, and accepts the decision into the running plan; it returns
// the queues of those who gave. If it cannot, it notes why, changes nothing and returns false. If the budget is spent, and
// the answer not known, the gang is left open.
func (sv *Solver) Solve(g *ledger.GangState) ([]*ledger.QueueLedger, bool) {
	q, a, answer := sv.ask(g)
	switch {
	case answer == nobody:
		return nil, false
	case answer == unasked:
		sv.s.Recorder.Postpone(g)
		return nil, false
	case answer == refused:
		a.Action = sv.s.Recorder.Action()
		sv.s.Recorder.Note(g, a)
		return nil, false
	case !q.disturbs() && q.st.Immediate():
		// The room is there: something this run did, after the gang was tried, lets it start. The next run will see.
		q.st.Discard()
		sv.budget.refund(q.cost)
		return nil, false
	}
	q = q.nearer()
	sv.most.wanted, sv.most.slack = false, nil
	return q.accept(), true
}

// Could says whether Solve would make room for the gang, and changes nothing. If the budget is spent, and the answer not
// known, asked is false.
func (sv *Solver) Could(g *ledger.GangState) (could, asked bool) {
	q, _, answer := sv.ask(g)
	if answer == granted {
		q.st.Discard()
		sv.budget.refund(q.cost)
	}
	return answer == granted, answer != unasked
}

// answer is what became of a question.
type answer uint8

const (
	nobody  answer = iota // the gang asks for nothing
	unasked               // the budget is spent
	refused
	granted // the search holds the decision, which is to be accepted or abandoned
)

// ask finds the answer to a gang's question: who asked the same before in this run was told, the answer is remembered, or it is
// searched for. A no is remembered.
func (sv *Solver) ask(g *ledger.GangState) (*search, recorder.Attempt, answer) {
	pods, request := sv.s.Ledger.Next(g)
	if len(pods) == 0 {
		return nil, recorder.Attempt{}, nobody
	}
	if v := sv.may(g, pods, request); !v.Yes() {
		return nil, recorder.Attempt{Verdict: v}, refused
	}
	a, known := sv.nobody(g, pods, request)
	if known {
		return nil, a, refused
	}
	asks := sv.asks(g, pods)
	key := sv.question(g, asks)
	if a := sv.failed[key]; a != nil {
		return nil, *a, refused
	}
	if r, remembered := sv.s.Recorder.RememberedAnswer(key); remembered {
		if a, ok := r.Why.(recorder.Attempt); ok { // a file can say otherwise
			sv.most.wanted = true // it cost much
			sv.s.Recorder.WakeAt(r.Again(sv.s.Snap.Generation))
			return nil, a, refused
		}
	}
	like := sv.likeness(g, request, asks)
	if told, known := sv.alike[like]; known && told.decisions == sv.s.Ledger.Decisions() {
		sv.remember(key, told)
		return nil, *told.answer, refused
	}
	w, none := sv.canvassed(g, pods, request)
	if w != nil && w.nobodyAsked() {
		none.Barred = w.givesNone()
		sv.told(key, like, alike{answer: &none, wake: sv.victimQueues.wake, free: true})
		return nil, none, refused
	}
	if !sv.budget.take(key) {
		return nil, recorder.Attempt{}, unasked
	}
	began, rated := sv.s.Recorder.Steps(), sv.s.Placer.Rated()
	if sv.victimQueues != nil {
		sv.victimQueues.wake = cluster.Forever
	}
	if w != nil && w.nobodyOpen() {
		none.Barred = w.givesNone()
		sv.told(key, like, alike{answer: &none, wake: sv.victimQueues.wake, cost: sv.s.Recorder.Steps() - began})
		return nil, none, refused
	}
	q := &search{Solver: sv, g: g, pods: slices.Clone(pods), request: request.Clone(), st: sv.s.Ledger.Begin()}
	a, known = q.hopeless()
	found := false
	if !known {
		a, found = q.run()
	}
	q.steps((sv.s.Placer.Rated() - rated) / nodesPerStep)
	sv.s.Recorder.Searched(found)
	q.cost = sv.s.Recorder.Steps() - began
	if found {
		return q, a, granted
	}
	q.st.Discard()
	a.Action = sv.s.Recorder.Action()
	wake := cluster.Forever
	if sv.victimQueues != nil {
		wake = sv.victimQueues.wake
	}
	if a.Verdict.Code == policy.Wait {
		wake = cluster.Earliest(wake, a.Verdict.WakeAt)
	}
	sv.told(key, like, alike{answer: &a, wake: wake, cost: q.cost})
	return nil, a, refused
}

// told keeps a no that was found, also for those who are alike.
func (sv *Solver) told(key, like string, told alike) {
	told.decisions = sv.s.Ledger.Decisions()
	sv.remember(key, told)
	if like != "" {
		sv.alike[like] = told
	}
}

// remember keeps a no for those who ask the same, in this run or, where it cost much, in others.
func (sv *Solver) remember(key string, told alike) {
	sv.failed[key] = told.answer
	if told.free {
		return
	}
	if told.cost >= costly {
		sv.most.wanted = true
		sv.s.Recorder.RememberAnswer(key, sv.s.Snap.Now.Add(min(time.Duration(told.cost)*restPerStep, recorder.LongestRemembered)), told.wake, *told.answer)
	}
	sv.budget.answered(no{key, told.wake, told.answer})
}

// may says whether there is a question at all: the pods could run somewhere, and the queue may take.
func (sv *Solver) may(g *ledger.GangState, pods []cluster.PodID, request cluster.Resources) policy.Verdict {
	if v := sv.s.Placer.CheckPods(pods); !v.Yes() {
		return v
	}
	if v := sv.s.Placer.CheckNear(g, pods); !v.Yes() {
		return v
	}
	if sv.cause != policy.Consolidation {
		if v := sv.s.Rules.CheckStarving(g); !v.Yes() {
			return v
		}
	}
	switch sv.cause {
	case policy.Reclaim:
		return sv.s.Rules.CheckReclaim(g, request)
	case policy.Consolidation:
		return sv.mayRearrange(g, pods, request)
	}
	return policy.Verdict{}
}

// nobody answers, without a search, the question of a gang that has nobody below it to take from: of most queues, no gang runs
// that is less important than those that wait. It is the answer that the search would find. It costs no step of the budget, which is for what
// is found out, and this is not remembered. The nodes that it has rated allocate has had rated, too.
func (sv *Solver) nobody(g *ledger.GangState, pods []cluster.PodID, request cluster.Resources) (recorder.Attempt, bool) {
	if sv.cause != policy.Preempt || sv.s.Placer.Constrained(g) {
		return recorder.Attempt{}, false
	}
	l := sv.everyone().byID[g.Leaf.ID]
	if l != nil && l.below(g.Priority) > 0 {
		return recorder.Attempt{}, false
	}
	v := sv.s.Rules.CheckGates(g, request)
	if v.Yes() {
		if enough, _ := sv.s.Placer.Room(g, pods); enough {
			return recorder.Attempt{}, false
		}
		v = policy.Verdict{Code: policy.No, Reason: policy.ReasonNoVictims}
	}
	a := recorder.Attempt{Verdict: v}
	if l != nil {
		w := walk{queues: sv.victimQueues, cause: sv.cause, g: g, request: request}
		if v := sv.s.Rules.CheckVictimQueue(sv.cause, g, request, l.queue); !v.Yes() {
			w.barAll(&l.raw, v)
		} else {
			w.barAll(&l.never, policy.Verdict{Code: policy.No, Reason: policy.ReasonNotPreemptible})
			w.barAll(&l.raw, policy.Verdict{Code: policy.No, Reason: policy.ReasonHigherPriority})
		}
		a.Barred = w.told()
	}
	return a, true
}

// canvassed asks about all queues for a gang that would reclaim, and returns what it is told if none of those that may be asked has
// anybody who may be touched: it is what a search would find. Where a search is needed to tell, there is no walk. It costs O(kinds of
// siblings) at each level, and nothing of the budget.
func (sv *Solver) canvassed(g *ledger.GangState, pods []cluster.PodID, request cluster.Resources) (*walk, recorder.Attempt) {
	none := recorder.Attempt{Action: sv.s.Recorder.Action(), Verdict: policy.Verdict{Code: policy.No, Reason: policy.ReasonNoVictims}}
	began := sv.s.Recorder.Steps()
	defer func() { sv.budget.refund(sv.s.Recorder.Steps() - began) }()
	if sv.cause != policy.Reclaim || !sv.s.Rules.BySiblings(g) || sv.s.Placer.Constrained(g) {
		return nil, none
	}
	if gate := sv.s.Rules.CheckGates(g, request); !gate.Yes() {
		none.Verdict = gate
	} else if enough, _ := sv.s.Placer.Room(g, pods); enough {
		return nil, none
	}
	w := sv.everyone().walk(sv.cause, g, request)
	w.queues.wake = cluster.Forever
	w.canvass()
	return w, none
}

// fewOpen is up to how many leaves may be asked where it is looked whether one of them has anybody to give before a search begins.
const fewOpen = 16

// nobodyOpen says, after canvassed, whether it is seen at once that of the queues that may be asked nobody may be touched.
func (w *walk) nobodyOpen() bool {
	looked, anybody := 0, false
	for _, o := range w.wide {
		for _, b := range o.kind.of {
			if anybody {
				return false
			}
			if b == o.own {
				continue
			}
			b.each(func(l *leaf) {
				if anybody = anybody || looked == fewOpen; !anybody {
					looked++
					anybody = !w.cursor(l).closed
				}
			})
		}
	}
	return !anybody
}

// givesNone ends a walk of which nobody gives anything.
func (w *walk) givesNone() []recorder.Barrier {
	w.finish()
	return w.told()
}

// disturbs says whether anybody has to go or move, or loses a promise. Who was to move may be back where it was.
func (q *search) disturbs() bool {
	for i := range q.units {
		u := &q.units[i].VictimUnit
		if q.s.Ledger.Given(u) > 0 || slices.ContainsFunc(u.Pods, func(p *cluster.Pod) bool {
			fate := q.s.Ledger.Fate(p)
			return fate == ledger.Evict || fate == ledger.Move
		}) {
			return true
		}
	}
	return false
}

// everyone returns who may have to give, built when the first search gets that far.
func (sv *Solver) everyone() *victimQueues {
	if sv.victimQueues == nil {
		sv.victimQueues = newVictimQueues(sv.s)
	}
	return sv.victimQueues
}

// question names what is asked, for which cause, so that gangs that ask the same share the answer no for the rest of the action,
// whoever wants to know. What a decision in between leaves over, the next run sees.
func (sv *Solver) question(g *ledger.GangState, asks string) string {
	cause := string(sv.cause)
	if sv.s.Rules.InBundles(g) {
		cause += " in bundles"
	}
	return cause + "/" + g.Leaf.Name + "/" + asks
}

// asks names what is asked, and what the gang's own rights to it are, its queue apart.
func (sv *Solver) asks(g *ledger.GangState, pods []cluster.PodID) string {
	key := make([]byte, 0, 256)
	key = strconv.AppendInt(key, int64(g.Priority), 36)
	if g.Preemptible {
		key = append(key, 'p')
	}
	if g.Yields {
		key = append(key, 'y')
	}
	key = append(key, '@')
	age, own := sv.s.Rules.Age(g)
	own = own || sv.cause == policy.Consolidation && sv.s.Ledger.Live(g) > 0 // it does not move itself, and others may move it
	key = strconv.AppendInt(key, int64(age), 36)
	if choices := sv.s.Placer.ChoiceKey(g); choices != "" {
		key = append(append(key, '/'), choices...)
	}
	if own || sv.s.Placer.Filtered(pods) {
		key = append(append(key, '/'), g.UID...)
	}
	constrained := sv.s.Placer.Constrained(g)
	if constrained {
		key = append(append(key, '/'), g.Shape()...)
		if g.Rooted() && !own { // it goes where its members are
			key = append(append(key, '/'), g.UID...)
		}
	}
	return string(sv.s.Placer.AppendKinds(key, g, pods))
}

// run searches. On success the statement holds the decision.
func (q *search) run() (recorder.Attempt, bool) {
	if q.cause == policy.Consolidation {
		return q.rearrange()
	}
	looked, wake := q.s.Rules.OpenLaw(q.cause, q.g, q.request)
	q.steps(looked / gangsPerStep)
	if q.begin(); wake.Before(cluster.Forever) {
		q.w.wait(policy.Verdict{Code: policy.Wait, WakeAt: wake})
	}
	if q.grow() {
		return q.made()
	}
	q.w.finish()
	barred, count, refused, hinges := q.w.told(), int64(q.gangs()), q.w.refused, q.w.hinges
	gate := q.s.Rules.CheckGates(q.g, q.request)                                                           // with all of them gone
	moves := refused && q.cause == policy.Reclaim && q.s.Settings().MovedAreFree && !q.s.Rules.OwnLaw(q.g) // which protects from moving too
	choices := refused || q.s.Placer.Filtered(q.pods)
	if moves { // who may not be killed has to have room beside the gang
		q.back(0)
		kill := q.mortals()
		moves, choices = q.couldAllFit(kill), choices && len(kill.gangs) > 0
	}
	if moves && q.withMoves() {
		return recorder.Attempt{}, true
	}
	if choices {
		all, found := q.choose(hinges)
		if found || !all && gate.Yes() && q.fromPlaces(false) {
			return q.made()
		}
	}
	if moves && gate.Yes() && q.fromPlaces(true) {
		return recorder.Attempt{}, true
	}
	v := policy.Verdict{Code: policy.No, Reason: policy.ReasonVictimsTooFew, Have: count, Partial: q.partial || q.doubt, Detail: string(q.bound)}
	switch {
	case !gate.Yes():
		v = gate
	case count == 0:
		v.Reason, v.Have = policy.ReasonNoVictims, 0
	}
	return recorder.Attempt{Verdict: v, Barred: barred}, false
}

// begin starts the walk over the victims.
func (q *search) begin() {
	q.w = q.everyone().walk(q.cause, q.g, q.request)
	q.asked = q.w.asked
}

// made finishes a search whose units suffice.
func (q *search) made() (recorder.Attempt, bool) {
	q.reduce()
	q.elsewhere()
	return recorder.Attempt{}, true
}

// evict takes one more unit.
func (q *search) evict(t taken) {
	q.marks = append(q.marks, q.st.Mark())
	q.units = append(q.units, t)
	q.spared = append(q.spared, false)
	q.st.EvictUnit(&t.VictimUnit)
}

// back undoes everything after the first n units.
func (q *search) back(n int) {
	if n < len(q.units) {
		q.st.RollbackTo(q.marks[n])
		q.marks, q.units, q.spared = q.marks[:n], q.units[:n], q.spared[:n]
	}
}

// fits says whether the gang fits as the statement stands, which stays as it is.
func (q *search) fits() bool {
	if !q.s.Rules.CheckGates(q.g, q.request).Yes() {
		q.s.Recorder.Scenario(true)
		return false
	}
	q.doubt = false
	if q.s.Placer.Constrained(q.g) { // each domain is looked at
		q.steps(len(q.s.Snap.NodeOrder) / nodesPerStep)
	}
	enough, exact := q.s.Placer.Room(q.g, q.pods)
	q.s.Recorder.Scenario(!enough)
	if !enough || exact {
		return enough
	}
	return q.probe()
}

// probe places the gang and takes it back.
func (q *search) probe() bool {
	q.probes++
	q.steps(len(q.pods) + len(q.s.Snap.NodeOrder)/nodesPerStep)
	mark := q.st.Mark()
	d := q.s.Placer.Promise(q.st, q.g)
	q.st.RollbackTo(mark)
	q.doubt = d != nil && d.Verdict.Partial
	return d == nil
}

// grow takes units in policy order until the gang fits. On success the units are a prefix of what may be taken, as short
// as probing could tell; the gang is not placed yet.
func (q *search) grow() bool {
	_, exact := q.s.Placer.Room(q.g, q.pods)
	linear := exact || q.s.Placer.Filtered(q.pods)
	failed, next := 0, 0
	for {
		if q.s.Aborted() || q.probes > maxProbes {
			q.cut(boundProbes)
			return false
		}
		if n := len(q.units); linear || n >= next {
			before := q.probes
			if q.fits() {
				if !linear {
					q.bisect(failed)
				}
				return true
			}
			failed, next = n, max(1, 2*n)
			if linear && q.probes > before && q.probes > linearProbes { // a quarter more, or a no would take for ever
				linear, next = false, n+max(1, n/4)
				q.cut(boundPrefixes)
			} else if q.partial {
				next = n + max(1, n/4)
			}
		}
		t, ok := q.w.next()
		if !ok {
			return !linear && len(q.units) > failed && q.fits()
		}
		q.evict(t)
		q.w.gave(&t)
	}
}

// bisect shortens the prefix: with failed units the gang does not fit, with all it does.
func (q *search) bisect(failed int) {
	all := slices.Clone(q.units)
	lo, hi := failed, len(all)
	set := func(n int) {
		q.back(n)
		for _, t := range all[len(q.units):n] {
			q.evict(t)
		}
	}
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if set(mid); q.fits() {
			hi = mid
		} else {
			lo = mid
		}
	}
	set(hi)
}

// reduce gives back what proved unnecessary, the last units first, and places the gang: what remains is irreducible, none
// of the units can be given back with the others gone. It then places the gang for good.
func (q *search) reduce() {
	q.release(true, func(t *ledger.VictimUnit) bool {
		if q.probes > maxProbes && (q.s.Placer.Constrained(q.g) || !q.s.Placer.Exact(q.pods)) {
			q.cut(boundProbes)
			return false
		}
		q.st.Return(t)
		return q.fits()
	})
	if d := q.s.Placer.Promise(q.st, q.g); d != nil {
		panic("solver: a gang that fitted does not: " + d.String())
	}
}

// release lets go of units that need not be killed, the last ones first, as try finds a way for each. Where what a gang,
// or a set, needs to run has to go, of what it gave before only so much is let go that it can run with that, or nothing. It may be
// that other pods of it would have done, then these stay taken alone, if parts says so.
func (q *search) release(parts bool, try func(u *ledger.VictimUnit) bool) {
	farthest := q.farthest()
	// What is taken from a queue near the beneficiary's own makes room under the share of a queue above both, and may be what gives
	// the right to take from queues farther away.
	lawful := func(v *ledger.GangState) bool {
		return q.cause != policy.Reclaim || q.late || q.nearness(v) == farthest || q.lawful()
	}
	let := func(i int) bool {
		mark := q.st.Mark()
		if try(&q.units[i].VictimUnit) {
			if q.spared[i] = true; lawful(q.units[i].Gang) {
				return true
			}
			q.spared[i] = false
		}
		q.st.RollbackTo(mark)
		return false
	}
	of := map[*ledger.GangState][]int{}
	for i := range q.units {
		of[q.units[i].Gang] = append(of[q.units[i].Gang], i)
	}
	seen := make([]bool, len(q.units))
	var visit func(i int)
	visit = func(i int) {
		t := &q.units[i]
		if seen[i] = true; q.spared[i] || let(i) || len(of[t.Gang]) == 1 {
			return
		}
		var under []int
		for _, k := range slices.Backward(of[t.Gang]) {
			if !seen[k] && t.Includes(&q.units[k].VictimUnit) {
				under = append(under, k)
			}
		}
		if len(under) == 0 {
			return
		}
		mark, before, whole := q.st.Mark(), slices.Clone(q.spared), t.VictimUnit
		for _, k := range under {
			if !seen[k] {
				visit(k)
			}
		}
		if after := q.st.Mark(); parts {
			if q.part(t, try) && lawful(t.Gang) {
				return
			}
			q.st.RollbackTo(after)
			t.VictimUnit = whole
		}
		if !t.Gang.SetSatisfied(whole.Set) {
			q.st.RollbackTo(mark)
			q.spared = before
		}
	}
	for i := len(q.units) - 1; i >= 0; i-- {
		if !seen[i] {
			visit(i)
		}
	}
}

// part lets go of single pods of a unit, as try finds a way for each, and says whether its gang can run then and no set of it has
// pods that cannot.
func (q *search) part(t *taken, try func(u *ledger.VictimUnit) bool) bool {
	rest, all := ledger.VictimUnit{Gang: t.Gang}, t.Pods
	for _, p := range all {
		one, mark := ledger.VictimUnit{Gang: t.Gang, Pods: []*cluster.Pod{p}, Charge: p.Charge}, q.st.Mark()
		if !try(&one) {
			q.st.RollbackTo(mark)
			rest.Pods = append(rest.Pods, p)
			rest.Charge.AddCapped(p.Charge)
		}
	}
	runs := t.Gang.SetSatisfied(t.Set)
	t.VictimUnit = rest
	return runs && len(rest.Pods) > 0 && len(rest.Pods) < len(all) && !slices.ContainsFunc(all, func(p *cluster.Pod) bool {
		return p.Set != cluster.None && t.Gang.SetActive(p.Set) > 0 && !t.Gang.SetSatisfied(p.Set)
	})
}

// farthest is the smallest nearness of a victim.
func (q *search) farthest() int {
	least := 0
	for i := range q.units {
		if n := q.nearness(q.units[i].Gang); i == 0 || n < least {
			least = n
		}
	}
	return least
}

// nearness is how many queues a gang has in common with the beneficiary.
func (q *search) nearness(v *ledger.GangState) int { return nearness(q.g.Leaf, v.Leaf) }

// elsewhere moves victims that have room elsewhere now, those of the best right first, as far as their queues may hold them
// beside the gang, and unless others are taken by the right that their going gives.
func (q *search) elsewhere() {
	before := slices.Clone(q.spared)
	q.release(false, func(t *ledger.VictimUnit) bool {
		return q.s.Rules.CheckGates(t.Gang, t.Charge).Yes() && q.s.Placer.MoveUnit(q.st, t)
	})
	q.spared = before // they go, if only to come back
}

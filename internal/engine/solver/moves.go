package solver

import (
	"cmp"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// withMoves looks for a decision in which some victims only move: those are not taken from their queue, so the rules of
// shares need not allow them. It takes units whatever those rules say, and keeps the first decision whose remaining
// victims they do allow.
func (q *search) withMoves() bool {
	q.back(0)
	if q.everyone().count > maxMovers {
		q.cut(boundMovers)
		return false
	}
	q.w = q.everyone().walk(q.cause, q.g, q.request)
	q.w.asked, q.w.strict = q.asked, false
	q.late = true
	defer func() { q.late = false }()
	for tries := 0; tries < maxNodes; {
		if q.fits() {
			tries++
			units := slices.Clone(q.units)
			mark := q.st.Mark()
			q.reduce()
			q.elsewhere()
			if q.lawful() {
				return true
			}
			q.st.RollbackTo(mark)
			q.units, q.spared = units, make([]bool, len(units))
		}
		t, ok := q.w.next()
		if !ok {
			q.untried = tries > 0 // who moves and who is killed could be chosen otherwise
			return false
		}
		q.evict(t)
		q.w.gave(&t)
	}
	q.cut(boundMoves)
	return false
}

// opsPerStep is how many operations that are played back and again count as one step.
const opsPerStep = 4

// lawful checks the victims against the rules about units, in the order in which they were taken: it plays the statement
// again, with only those gone that are killed. Those that move are asked about too: shares do not protect them, but what
// protects a gang from starting again does, and for a move no promise may be broken, once the others are gone. What was taken in
// one piece, and of which the gang can do without each pod as it turned out, is asked about pod by pod.
func (q *search) lawful() bool {
	gone := make([]*taken, 0, len(q.units))
	pieces := map[*taken]*taken{} // of which unit
	for i := range q.units {
		t := &q.units[i]
		if q.spared[i] {
			continue
		}
		if t.Moved = !q.killed(t); (t.BelowMinimum || t.Set != 0) && len(t.Pods) > 1 && t.Gang.SetSatisfied(t.Set) {
			for _, p := range t.Pods {
				one := &taken{VictimUnit: ledger.VictimUnit{Gang: t.Gang, Pods: []*cluster.Pod{p}, Charge: p.Charge}, rule: t.rule, budget: t.budget}
				one.Moved = !q.killed(one)
				gone, pieces[one] = append(gone, one), t
			}
			continue
		}
		gone = append(gone, t)
	}
	ok := true
	q.steps(len(q.st.Ops()) / opsPerStep)
	what := q.s.Ledger.Begin()
	q.st.Suspend(func() {
		for _, t := range gone {
			rule, v := q.legal(&t.VictimUnit)
			if ok = v.Yes(); !ok {
				break
			}
			if t.rule = rule; t.Moved {
				t.rule = ruleMoved
			} else {
				what.EvictUnit(&t.VictimUnit)
			}
			if of := pieces[t]; of != nil && of.Moved == t.Moved {
				of.rule = t.rule
			}
		}
		for _, t := range gone {
			if ok && t.Moved {
				tier, _ := q.s.Rules.Tier(&t.VictimUnit)
				ok = tier == 0
				what.EvictUnit(&t.VictimUnit)
			}
		}
		what.Discard()
	})
	return ok
}

// killed says whether some pod of the unit has no room elsewhere, or a promise is given for good.
func (q *search) killed(t *taken) bool {
	return q.s.Ledger.Given(&t.VictimUnit) > 0 || slices.ContainsFunc(t.Pods, func(p *cluster.Pod) bool { return q.s.Ledger.Fate(p) == ledger.Evict })
}

// rearrange makes room for the gang by moving others, all of whom keep room: pod by pod, on the node where the least has
// to move. What was found is a legal rearrangement; that none was found does not prove that there is none.
func (q *search) rearrange() (recorder.Attempt, bool) {
	bound := q.s.Settings().ConsolidationVictims
	no := func() (recorder.Attempt, bool) {
		return recorder.Attempt{Verdict: policy.Verdict{Code: policy.No, Reason: policy.ReasonNothingToMove, Partial: q.partial}}, false
	}
	if q.s.Placer.Constrained(q.g) { // room for one pod after the other is no room for all of them together
		if q.together(bound) {
			return recorder.Attempt{}, true
		}
		q.partial = q.everyone().count > 0
		a, ok := no()
		if q.w != nil {
			q.w.finish()
			a.Barred = q.w.told()
		}
		return a, ok
	}
	// Pods of different sizes get in each other's way when they are given room one by one.
	if first, then := q.piecemeal, q.together; q.s.Placer.Exact(q.pods) && (first(bound) || then(bound)) || !q.s.Placer.Exact(q.pods) && (then(bound) || first(bound)) {
		return recorder.Attempt{}, true
	}
	q.partial = q.movers // rearrangements that neither way finds may exist
	a, ok := no()
	q.w.finish()
	a.Barred = q.w.told()
	return a, ok
}

// mayRearrange says whether it is to be tried at all to move others.
func (sv *Solver) mayRearrange(g *ledger.GangState, pods []cluster.PodID, request cluster.Resources) policy.Verdict {
	switch {
	case sv.s.Settings().ConsolidationVictims == 0:
		return policy.Verdict{Code: policy.No, Reason: policy.ReasonSwitchedOff}
	case !g.Preemptible:
		return policy.Verdict{Code: policy.No, Reason: policy.ReasonNotPreemptible}
	}
	if v := sv.s.Rules.CheckGates(g, request); !v.Yes() {
		return v
	}
	if dim, short := sv.s.Ledger.Needs(pods).Short(sv.s.Ledger.TotalLater()); short {
		return policy.Verdict{Code: policy.No, Reason: policy.ReasonInsufficient, Dim: sv.s.Snap.Dims.Name(dim)}
	}
	return policy.Verdict{}
}

// piecemeal makes room pod by pod.
func (q *search) piecemeal(bound int) bool {
	q.w = &walk{queues: &victimQueues{s: q.s}, cause: q.cause, g: q.g, request: q.request}
	m := &movers{bound: bound, on: map[cluster.NodeID][]*ledger.GangState{}, moved: map[*ledger.GangState]bool{}, shielded: map[*ledger.GangState]bool{}}
	for _, id := range q.pods {
		if p := q.s.Snap.Pod(id); !q.s.Placer.PromisePod(q.st, p) && !q.clear(p, m) {
			for _, gangs := range m.on { // order: a question of any
				q.movers = q.movers || len(gangs) > 0
			}
			q.back(0)
			q.st.RollbackTo(0)
			return false
		}
	}
	q.settle()
	return true
}

// settle tries to have the gang and those who move placed in one go, in the usual order, rather than pod by pod. The
// result serves the same, and is what people expect.
func (q *search) settle() {
	units, spared := q.units, q.spared
	found := q.st.Cut(0)
	q.units, q.spared, q.marks = nil, nil, nil
	for i, t := range units {
		if !spared[i] {
			q.evict(t)
		}
	}
	if q.s.Placer.Promise(q.st, q.g) == nil && q.moveAll() {
		return
	}
	q.st.RollbackTo(0)
	q.st.Redo(found)
	q.units, q.spared = units, spared
}

// moveAll moves all units that are not spared, and says whether everyone has room; if not, the statement is as before.
func (q *search) moveAll() bool {
	mark := q.st.Mark()
	for i := range q.units {
		if !q.spared[i] && !q.s.Placer.MoveUnit(q.st, &q.units[i].VictimUnit) {
			q.st.RollbackTo(mark)
			return false
		}
	}
	return true
}

// together takes units in the victim order until the gang fits, and moves them all; if some cannot move, it takes more.
func (q *search) together(bound int) bool {
	vq := q.everyone()
	if vq.count > maxMovers {
		return false
	}
	q.w = vq.walk(q.cause, q.g, q.request)
	stuck, spent := false, 0 // the gang fitted already, and those cannot move who would have to; who that is took so many probes
	for tries := 0; tries < maxNodes; {
		before := q.probes
		fits := q.fits()
		each := q.probes - before
		stuck = stuck && fits
		switch {
		case !fits:
		case stuck && q.probes+spent < maxProbes:
			// Whoever is taken when it fits already is the first who is let go of: the same would have to move as before.
			tries++
			spent += each
			q.probes += spent // as if it had been found out again
		default:
			tries++
			mark, units, before := q.st.Mark(), slices.Clone(q.units), q.probes
			q.reduce()
			if (q.gangs() <= bound || bound < 0) && q.moveAll() {
				return true
			}
			q.st.RollbackTo(mark)
			q.units, q.spared = units, make([]bool, len(units))
			stuck, spent = true, q.probes-before
		}
		t, ok := q.w.next()
		if !ok {
			break
		}
		if t.budget != "" { // for a move no promise is broken
			q.w.bar(t.Gang, broken(t.budget))
			break
		}
		t.rule = ruleMoved
		q.evict(t)
		q.w.gave(&t)
	}
	q.back(0)
	q.st.RollbackTo(0)
	return false
}

// ruleMoved is why a pod may be moved, as the record says it.
const ruleMoved = "it has room elsewhere"

// gangs counts the gangs that have to go or move.
func (q *search) gangs() int {
	seen := map[*ledger.GangState]bool{}
	for i := range q.units {
		if !q.spared[i] {
			seen[q.units[i].Gang] = true
		}
	}
	return len(seen)
}

// movers is who may be moved, looked up node by node, and who is.
type movers struct {
	bound int
	on    map[cluster.NodeID][]*ledger.GangState // first victim first
	moved map[*ledger.GangState]bool

	shielded map[*ledger.GangState]bool // by a promise to their owner
}

// broken says that a promise to the owner would be broken.
func broken(budget string) policy.Verdict {
	return policy.Verdict{Code: policy.No, Reason: policy.ReasonBudget, Object: budget}
}

// podsPerStep is how many pods of a node that are looked at once count for a step.
const podsPerStep = 8

// onNode lists the gangs that may be moved off a node.
func (q *search) onNode(m *movers, n cluster.NodeID) []*ledger.GangState {
	if list, known := m.on[n]; known {
		return list
	}
	var list []*ledger.GangState
	q.steps(1 + len(q.s.Snap.Node(n).Pods)/podsPerStep)
	for _, id := range q.s.Snap.Node(n).Pods {
		p := q.s.Snap.Pod(id)
		if p.Gang == cluster.None || !p.Phase.Active() {
			continue
		}
		v := q.s.Ledger.Gang(p.Gang)
		if v == q.g || slices.Contains(list, v) {
			continue
		}
		if verdict := q.s.Rules.CheckVictim(q.cause, q.g, q.request, v); !verdict.Yes() {
			q.w.bar(v, verdict)
			continue
		}
		list = append(list, v)
		q.movers = true
	}
	slices.SortFunc(list, func(a, b *ledger.GangState) int { return q.s.Rules.CompareAnyGangs(b, a) })
	m.on[n] = list
	return list
}

// target is a node on which room might be made.
type target struct {
	node cluster.NodeID
	lack int64        // how much is missing
	last *cluster.Pod // the pod there that would be the first to go
}

// clear makes room for one pod on some node by moving gangs away from it: where the least is missing, and of equal ones
// where who has to go has the least right to stay.
func (q *search) clear(p *cluster.Pod, m *movers) bool {
	targets := q.clearable(p)
	for _, t := range targets {
		gangs := q.onNode(m, t.node)
		if q.clearNode(p, t.node, gangs, m) {
			return true
		}
		bySize := slices.Clone(gangs) // who is small finds room more easily
		slices.SortStableFunc(bySize, func(a, b *ledger.GangState) int { return cmp.Compare(q.size(a, t.node), q.size(b, t.node)) })
		if !slices.Equal(gangs, bySize) && q.clearNode(p, t.node, bySize, m) {
			return true
		}
	}
	return false
}

// clearable returns the nodes that might be cleared for a pod, the first to try first. As long as nothing is decided, and nothing tried,
// it is the same list for all who ask for as much and may use the same nodes.
func (q *search) clearable(p *cluster.Pod) []target {
	c := p.Class
	key := lackKey{c.Alone().ID, c.Site().ID}
	fresh := q.st.Mark() == 0
	if fresh {
		if known, ok := q.lacking[key]; ok && known.decisions == q.s.Ledger.Decisions() {
			q.s.Recorder.Step()
			return known.targets
		}
	}
	var targets []target
	for _, t := range q.leavable() {
		n := q.s.Snap.Node(t.node)
		if !q.s.Placer.Allows(c, t.node) {
			continue
		}
		q.s.Recorder.Step()
		if !c.Share.None() && !q.s.Ledger.FitsLater(c, t.node) {
			t.lack += weight(cluster.GPU)
		}
		for d, x := range c.Requests {
			if missing := x - q.s.Ledger.Later(t.node).At(d); missing > 0 {
				t.lack += missing * weight(d) / max(1, n.Allocatable.At(d))
			}
		}
		targets = append(targets, t)
	}
	slices.SortStableFunc(targets, func(a, b target) int {
		if c := cmp.Compare(a.lack, b.lack); c != 0 {
			return c
		}
		return policy.First(q.before(a.last, b.last), q.before(b.last, a.last))
	})
	targets = targets[:min(len(targets), maxNodes)]
	if fresh {
		q.lacking[key] = lacking{q.s.Ledger.Decisions(), targets}
	}
	return targets
}

// lackKey names pods that ask for as much and may use the same nodes, as far as the two alone decide.
type lackKey struct{ alone, site uint64 }

// lacking is where to make room for such pods, after so many decisions.
type lacking struct {
	decisions int
	targets   []target
}

// leavable returns the nodes with pods that might go, and which of a node's would be the first to: O(pods), once.
func (sv *Solver) leavable() []target {
	if sv.targets == nil {
		sv.targets = []target{}
		for _, id := range sv.s.Snap.NodeOrder {
			t := target{node: id}
			for _, pid := range sv.s.Snap.Node(id).Pods {
				if o := sv.s.Snap.Pod(pid); o.Gang != cluster.None && sv.s.Rules.Yields(sv.s.Snap.Gang(o.Gang)) && (t.last == nil || sv.before(o, t.last)) {
					t.last = o
				}
			}
			if t.last != nil {
				sv.targets = append(sv.targets, t)
			}
		}
	}
	return sv.targets
}

// before says whether pod a has less right to stay than b, by what is cheap to compare: priority, age, name.
func (sv *Solver) before(a, b *cluster.Pod) bool {
	l, r := sv.s.Snap.Gang(a.Gang), sv.s.Snap.Gang(b.Gang)
	return cmp.Or(cmp.Compare(l.Priority, r.Priority), r.Created.Compare(l.Created), cmp.Compare(r.UID, l.UID), cmp.Compare(b.Name, a.Name)) < 0
}

// size is what a gang has on a node, comparable between gangs.
func (q *search) size(v *ledger.GangState, n cluster.NodeID) int64 {
	sum := int64(0)
	for _, p := range q.s.Ledger.LivePods(v) {
		if p.Node == n {
			for d, x := range p.Charge {
				sum += x * weight(d) / max(1, q.s.Snap.Node(n).Allocatable.At(d))
			}
		}
	}
	return sum
}

// weight makes what is missing of different dimensions comparable: parts of a node, GPUs first.
func weight(dim int) int64 {
	if dim == cluster.GPU {
		return 1 << 20
	}
	return 1 << 10
}

// clearNode takes gangs off the node, in the order given, until the pod fits, and moves them.
func (q *search) clearNode(p *cluster.Pod, n cluster.NodeID, gangs []*ledger.GangState, m *movers) bool {
	start, first := q.st.Mark(), len(q.units)
	undo := func() bool {
		q.back(first)
		q.st.RollbackTo(start)
		return false
	}
	for _, v := range gangs {
		q.s.Recorder.Step()
		if q.s.Ledger.FitsLater(p.Class, n) {
			break
		}
		if m.moved[v] || q.s.Ledger.Live(v) == 0 {
			continue
		}
		for q.s.Ledger.Live(v) > 0 && !q.s.Ledger.FitsLater(p.Class, n) {
			u, _ := q.s.Ledger.NextUnit(v)
			if tier, budget := q.s.Rules.Tier(&u); tier > 0 { // for a move no promise is broken
				if !m.shielded[v] {
					m.shielded[v] = true
					q.w.bar(v, broken(budget))
				}
				break
			}
			q.evict(taken{VictimUnit: u, rule: ruleMoved})
		}
	}
	fits := q.s.Ledger.FitsLater(p.Class, n)
	q.s.Recorder.Scenario(!fits)
	if !fits {
		return undo()
	}
	for i := len(q.units) - 1; i >= first; i-- { // what need not move stays
		mark := q.st.Mark()
		if q.s.Placer.SpareUnit(q.st, &q.units[i].VictimUnit) && q.s.Ledger.FitsLater(p.Class, n) {
			q.spared[i] = true
			continue
		}
		q.st.RollbackTo(mark)
	}
	if !q.s.Placer.PromiseOn(q.st, p, n) {
		return undo()
	}
	count := len(m.moved)
	for i := first; i < len(q.units); i++ {
		if q.spared[i] {
			continue
		}
		if !q.s.Placer.MoveUnit(q.st, &q.units[i].VictimUnit) {
			return undo()
		}
		if !m.moved[q.units[i].Gang] {
			count++
		}
	}
	if m.bound > 0 && count > m.bound {
		return undo()
	}
	for i := first; i < len(q.units); i++ {
		if !q.spared[i] {
			m.moved[q.units[i].Gang] = true
		}
	}
	return true
}

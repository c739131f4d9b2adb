package solver

import (
	"cmp"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// The bounds of a search from places.
const (
	// policySteps and thriftySteps are how many nodes and units it looks at in each of its two orders of places, and
	// stepsPerPod how many more for each pod that it places.
	policySteps  = 1 << 11
	thriftySteps = 1 << 13
	stepsPerPod  = 16
	// localTries is how many decisions with moves it makes, to see whether they are legal.
	localTries = 16
)

// local is the search that starts from where the request fits: see the package comment. It places the gang pod by pod, in
// room that is there or on a spot, within the domains that its sets are given one after another. A choice that leads nowhere
// is taken back.
type local struct {
	*search
	moves  bool                // take what may move, whatever queues hold, and see in the end whether who is killed may be
	pods   []*cluster.Pod      // the gang's, large ones first
	asks   []cluster.Resources // what the gang asks for without the pods before the k-th, who count as placed
	plain  bool                // the pods are alike and only room decides: a place that costs more has no better chance
	land   *land
	may    []int8 // by gang: whether it may be touched; 0 is unknown
	spots  map[*cluster.Class][]spot
	chains map[int32][]int32          // by set: the sets from the top that must be in one domain
	spare  cluster.Resources          // with moves: what is free in all
	given  map[int32]cluster.DomainID // by set that must be in one domain
	used   map[cluster.NodeID]int     // pods that were given spots there
	left   int                        // steps
	tries  int                        // of decisions with moves
	others int                        // refusals for other reasons than what queues hold
}

// fromPlaces searches for room place by place: first in the victim order, then where the least would be lost. On success
// the units suffice; with moves, they are judged, and placed, already.
func (q *search) fromPlaces(moves bool) bool {
	q.back(0)
	partial, probes := q.partial, q.probes
	q.partial, q.probes = false, 0 // what was found does not depend on what was not before
	l := &local{
		search: q, moves: moves, plain: q.s.Placer.Exact(q.pods), land: q.lay(q.asked), may: make([]int8, q.s.Snap.MaxGangID()),
		spots: map[*cluster.Class][]spot{}, chains: map[int32][]int32{}, given: map[int32]cluster.DomainID{}, used: map[cluster.NodeID]int{},
	}
	for _, id := range q.pods {
		l.pods = append(l.pods, q.s.Snap.Pod(id))
	}
	slices.SortStableFunc(l.pods, func(a, b *cluster.Pod) int {
		size := func(d int) int { return cmp.Compare(b.Class.Charge.At(d), a.Class.Charge.At(d)) }
		return cmp.Or(size(cluster.GPU), size(cluster.RAM), size(cluster.CPU))
	})
	if moves {
		l.spare = q.s.Ledger.TotalLater()
	}
	rest := q.request.Clone()
	for _, p := range l.pods {
		l.asks = append(l.asks, rest.Clone())
		rest.Sub(q.s.Snap.ChargeWaiting(p.Class))
		if l.spots[p.Class] == nil {
			l.spots[p.Class] = l.find(p.Class)
		}
	}
	for _, steps := range [...]int{policySteps, thriftySteps} {
		if steps == thriftySteps {
			if moves {
				break
			}
			for _, spots := range l.spots { // order: each on its own
				slices.SortStableFunc(spots, func(a, b spot) int { return slices.Compare(a.lose[:], b.lose[:]) })
			}
		}
		l.left = steps + stepsPerPod*len(l.pods)
		if l.place(0, 0) {
			return true
		}
		q.back(0)
		q.st.RollbackTo(0)
		if l.left >= 0 { // every choice was tried
			break
		}
	}
	q.partial, q.probes = q.partial || partial, max(q.probes, probes)
	if l.left < 0 {
		q.cut(boundPlaces)
	}
	return false
}

// place finds room for the pods from the k-th on; those like the one before begin with the spot that it got.
func (l *local) place(k, from int) bool {
	if k == len(l.pods) {
		return l.done()
	}
	p := l.pods[k]
	if set := l.unsettled(p); set != cluster.None {
		for _, d := range l.domains(set, p) {
			if l.left < 0 {
				break
			}
			l.given[set] = d
			if l.place(k, 0) {
				return true
			}
			delete(l.given, set)
		}
		return false
	}
	next := func(i int) int {
		if k+1 < len(l.pods) && l.pods[k+1].Class == p.Class && l.pods[k+1].Set == p.Set {
			return i
		}
		return 0
	}
	n, mark := len(l.units), l.st.Mark()
	undo := func() {
		l.back(n)
		l.st.RollbackTo(mark)
	}
	if l.idle(p) {
		if l.place(k+1, next(from)) {
			return true
		}
		if undo(); l.plain {
			return false
		}
	}
	var failed []failure
	spots := l.spots[p.Class]
	for i := from; i < len(spots) && l.left >= 0; i++ {
		at := &spots[i]
		if !l.inside(p, at.node) || l.used[at.node] == 0 && slices.ContainsFunc(failed, at.noBetter) {
			continue
		}
		before := l.others
		cleared := l.clear(k, at.node)
		if cleared {
			l.used[at.node]++
			ok := l.place(k+1, next(i))
			if l.used[at.node]--; ok {
				return true
			}
		}
		if l.plain && at.leaf != nil && l.used[at.node] == 0 && l.others == before {
			f := failure{leaf: at.leaf, cleared: cleared}
			for j := n; j < len(l.units); j++ {
				f.gave.Add(l.units[j].Charge)
			}
			failed = append(failed, f)
		}
		undo()
	}
	return false
}

// failure is a spot that led nowhere, for nothing but what queues hold: to clear it, or before somebody was refused, the leaf
// gave so much.
type failure struct {
	leaf    *ledger.QueueLedger
	gave    cluster.Resources
	cleared bool
}

// noBetter says whether a spot on which the same leaf has to give as much, or more, leads nowhere either.
func (at *spot) noBetter(f failure) bool {
	need := at.before
	if f.cleared {
		need = at.need
	}
	return at.leaf == f.leaf && f.gave.Fits(need)
}

// idle gives the pod room that is there.
func (l *local) idle(p *cluster.Pod) bool {
	if len(l.given) == 0 {
		return l.s.Placer.PromisePod(l.st, p)
	}
	for _, n := range l.s.Snap.NodeOrder {
		if l.inside(p, n) && l.s.Placer.PromiseOn(l.st, p, n) {
			return true
		}
	}
	return false
}

// clear takes units that free room on a node until the k-th pod fits there, and gives it the room: in policy order, and if that
// leads nowhere, one shared device after another, as who goes from several of them may free none.
func (l *local) clear(k int, n cluster.NodeID) bool {
	units, mark := len(l.units), l.st.Mark()
	if l.clearOf(k, n, func(p *cluster.Pod) bool { return p.Node == n }) {
		return true
	}
	devices := l.devices(n)
	if len(devices) == 0 {
		return false
	}
	l.others++ // what was given does not say what other nodes would have to
	l.back(units)
	l.st.RollbackTo(mark)
	for _, d := range devices {
		of := func(p *cluster.Pod) bool { return p.Node == n && slices.Contains(p.Groups, d) }
		units, mark := len(l.units), l.st.Mark()
		if l.clearOf(k, n, of) {
			return true
		}
		if slices.ContainsFunc(l.s.Snap.Node(n).Pods, func(id cluster.PodID) bool { // somebody stays
			p := l.s.Snap.Pod(id)
			return of(p) && p.Phase.Active() && l.s.Ledger.Fate(p) != ledger.Evict
		}) {
			l.back(units)
			l.st.RollbackTo(mark)
		}
	}
	return false
}

// devices lists the shared devices of a node of which somebody may have to go, in the victim order.
func (l *local) devices(n cluster.NodeID) []string {
	gangs := l.holders(n)
	slices.SortFunc(gangs, func(a, b *ledger.GangState) int { return cmp.Compare(l.land.rank(a), l.land.rank(b)) })
	var out []string
	for _, v := range gangs {
		for _, p := range l.s.Ledger.LivePods(v) {
			for _, d := range p.Groups {
				if p.Node == n && !slices.Contains(out, d) {
					out = append(out, d)
				}
			}
		}
	}
	return out
}

// clearOf takes units with certain pods of a node, in policy order, until the k-th pod fits there.
func (l *local) clearOf(k int, n cluster.NodeID, of func(*cluster.Pod) bool) bool {
	w := l.everyone().part(l.holders(n)).walk(l.cause, l.g, l.asks[k])
	w.asked, w.strict, w.on, w.of = l.asked, !l.moves, func(o cluster.NodeID) bool { return o == n }, of
	for l.left--; l.left >= 0; l.left-- {
		t, ok := w.next()
		if !ok {
			break
		}
		l.evict(t)
		w.gave(&t)
		if l.s.Placer.PromiseOn(l.st, l.pods[k], n) {
			return true
		}
	}
	w.finish()
	l.everyone().wake = cluster.Earliest(l.everyone().wake, w.queues.wake)
	for _, b := range w.barred {
		if b.Verdict.Reason != policy.ReasonVictimWithinShare && b.Verdict.Reason != policy.ReasonSaturation {
			l.others++
		}
	}
	return false
}

// done says whether the gang fits when all units are taken that were found pod by pod, however it is placed then, and
// whether each of them may be, at its moment, for all that the gang asks for; with moves, whether a legal decision can be
// made of them.
func (l *local) done() bool {
	units, marks := l.units, l.marks
	found := l.st.Cut(0)
	l.units, l.marks, l.spared = nil, nil, nil
	l.left -= len(units)
	legal := true
	for i := 0; legal && i < len(units); i++ {
		if !l.moves {
			_, v := l.search.legal(&units[i].VictimUnit)
			legal = v.Yes()
		}
		l.evict(units[i])
	}
	if legal && l.fits() && (!l.moves || l.judged()) {
		return true
	}
	l.st.RollbackTo(0)
	l.st.Redo(found)
	l.units, l.marks, l.spared = units, marks, make([]bool, len(units))
	return false
}

// judged makes a decision of the units in which some may only move, and says whether it is legal.
func (l *local) judged() bool {
	if l.tries++; l.tries > localTries {
		l.left = -1
		return false
	}
	l.late = true
	defer func() { l.late = false }()
	l.reduce()
	l.elsewhere()
	return l.lawful()
}

// needsDomain lists the sets above the pod, the widest first, that must be in one domain.
func (l *local) needsDomain(p *cluster.Pod) []int32 {
	if !l.s.Placer.Constrained(l.g) {
		return nil
	}
	out, known := l.chains[p.Set]
	if known {
		return out
	}
	for i := p.Set; i != cluster.None; i = l.g.Sets[i].Parent {
		if _, _, ok := l.level(i); ok {
			out = append(out, i)
		}
	}
	slices.Reverse(out)
	l.chains[p.Set] = out
	return out
}

// unsettled returns the widest set above the pod that has no domain yet and needs one; None if there is none.
func (l *local) unsettled(p *cluster.Pod) int32 {
	for _, set := range l.needsDomain(p) {
		if _, ok := l.given[set]; !ok {
			return set
		}
	}
	return cluster.None
}

// inside says whether a node is in all the domains that the pod's sets were given.
func (l *local) inside(p *cluster.Pod, n cluster.NodeID) bool {
	if len(l.given) == 0 {
		return true
	}
	for _, set := range l.needsDomain(p) {
		if d, ok := l.given[set]; ok {
			if t, level, _ := l.level(set); t.DomainOf(n, level) != d {
				return false
			}
		}
	}
	return true
}

// domains lists the domains that a set may go to, within those that wider sets were given: the one first in which the last
// spot that it needs comes first. Left out are those that could not hold each kind of its pods for itself.
func (l *local) domains(set int32, p *cluster.Pod) []cluster.DomainID {
	t, level, _ := l.level(set)
	need := map[*cluster.Class]int{}
	var classes []*cluster.Class
	for _, o := range l.pods {
		if slices.Contains(l.needsDomain(o), set) {
			if need[o.Class] == 0 {
				classes = append(classes, o.Class)
			}
			need[o.Class]++
		}
	}
	home := l.members(set, t, level)
	last, short := map[cluster.DomainID]int{}, map[cluster.DomainID]bool{}
	var order []cluster.DomainID
	for _, c := range classes {
		have := map[cluster.DomainID]int{}
		in := func(n cluster.NodeID) cluster.DomainID {
			d := t.DomainOf(n, level)
			if d == cluster.None || len(home) > 0 && !home[d] || !l.inside(p, n) {
				return cluster.None
			}
			return d
		}
		for _, n := range l.s.Snap.NodeOrder {
			if d := in(n); d != cluster.None {
				if _, known := last[d]; !known {
					last[d] = -1
					order = append(order, d)
				}
				if l.s.Placer.Allows(c, n) {
					have[d] += c.Requests.CountIn(l.s.Ledger.Later(n), len(l.pods))
				}
			}
		}
		for i, at := range l.spots[c] {
			if d := in(at.node); d != cluster.None && have[d] < need[c] {
				have[d] += at.more
				last[d] = max(last[d], i)
			}
		}
		for _, d := range order {
			short[d] = short[d] || have[d] < need[c]
		}
		l.left -= len(l.s.Snap.NodeOrder) / 16
	}
	order = slices.DeleteFunc(order, func(d cluster.DomainID) bool { return short[d] })
	slices.SortStableFunc(order, func(a, b cluster.DomainID) int { return cmp.Compare(last[a], last[b]) })
	return order
}

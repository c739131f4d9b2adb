package engine

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Unit is what a gang gives in one piece: one pod above a minimum, the pods of a set that the gang can do without, or all
// that it has left.
type Unit struct {
	Gang *GangState
	Pods []*cluster.Pod
	// Core says that the gang is below its minimum without the unit.
	Core bool
	// Set is the set of which the unit is all that is left, and that the gang can do without; 0 for a unit of another kind.
	Set int32
	// Moved says that all its pods have room elsewhere: its queue loses nothing by it, but they start again.
	Moved bool
	// Charge is what their queue is charged for them together.
	Charge cluster.Resources

	// holds are what the gang gives when it gives room that is promised to it, and no pod.
	holds []int
}

// buildHeld lists, once, the gang's active pods on known nodes.
func (s *Session) buildHeld(g *GangState) {
	if g.victim {
		return
	}
	g.victim = true
	for _, id := range g.Pods {
		p := s.Snap.Pod(id)
		if p.Ours && p.Phase.Active() && p.Node != cluster.None {
			set := &g.sets[g.leaf(p)]
			set.held = append(set.held, id)
		}
	}
	for i := range g.sets {
		set := &g.sets[i]
		if len(set.held) > 1 {
			s.sortPods(set.held)
		}
		set.live = len(set.held)
	}
}

// Live returns how many pods the gang could give.
func (s *Session) Live(g *GangState) int {
	s.buildHeld(g)
	n := 0
	for i := range g.sets {
		n += g.sets[i].live
	}
	for _, k := range s.holders[g.ID] {
		if !s.holds[k].open {
			n++
		}
	}
	return n
}

// Given returns how many of the promises that the unit gives are given.
func (s *Session) Given(u *Unit) int {
	n := 0
	for _, k := range u.holds {
		if s.holds[k].open {
			n++
		}
	}
	return n
}

// Promised returns how many pods the unit leaves without the room that was promised to them; it has no others then.
func (u *Unit) Promised() int { return len(u.holds) }

// NextUnit returns what the gang gives next, as the session stands: it gives up room that is promised to it, then the pods that
// are of none of its sets, one by one, then shrinks to its minimum pod by pod, last pods of the last sets first, then gives sets it can do without, those that are
// below their minimum first, then the rest in one piece. False when it has nothing left.
func (s *Session) NextUnit(g *GangState) (Unit, bool) { return s.nextUnit(g, nil, nil) }

// NextUnitOn is NextUnit for who needs room on certain nodes, of certain pods, only: which of its pods above the minimum a gang
// gives is open, and it gives those there. Where only all that is left has something there, what goes before that goes first. False
// when it has nothing there.
func (s *Session) NextUnitOn(g *GangState, on func(cluster.NodeID) bool, of func(*cluster.Pod) bool) (Unit, bool) {
	u, ok := s.nextUnit(g, on, of)
	if ok && u.Core && len(g.Sets) > 2 && g.satisfied(0) {
		return s.nextUnit(g, on, nil)
	}
	return u, ok
}

// GentleUnit is NextUnit, or with certain pods where of is not nil, for who would rather break no promise: of what the gang could
// give instead, the first that breaks none. False when it has nothing of the kind.
func (s *Session) GentleUnit(g *GangState, of func(*cluster.Pod) bool) (Unit, bool) {
	gentle := func(u *Unit) bool {
		tier, _ := s.Tier(u)
		return tier == 0 && !u.Core
	}
	want := func(p *cluster.Pod) bool {
		return (of == nil || of(p)) && gentle(&Unit{Gang: g, Pods: []*cluster.Pod{p}})
	}
	u, ok := s.nextUnit(g, nil, want)
	if !ok || u.Core || gentle(&u) {
		return u, ok && !u.Core
	}
	for _, u := range s.Units(g, false) { // of the sets that it can do without, another
		if gentle(&u) && slices.ContainsFunc(u.Pods, want) {
			return u, true
		}
	}
	return Unit{}, false
}

// Units returns everything the gang could give next: NextUnit's first, and where that is one of several pods, or sets, any
// other instead. Pods of one set, node and class stand for each other, unless it matters which of them goes: for the devices
// that they have, for who makes them anew, for promises about them and, if labels says so, for their labels.
func (s *Session) Units(g *GangState, labels bool) []Unit {
	first, ok := s.NextUnit(g)
	if !ok {
		return nil
	}
	out := []Unit{first}
	if first.Core || len(first.holds) > 0 {
		return out
	}
	type kind struct {
		set   int32
		node  cluster.NodeID
		of    *cluster.Class
		anew  bool
		apart string
	}
	kindOf := func(p *cluster.Pod) kind {
		_, broken := s.Tier(&Unit{Gang: g, Pods: []*cluster.Pod{p}})
		apart := broken + "/" + strings.Join(p.Groups, ",")
		if len(p.DeviceClaims) > 0 {
			apart += "/" + p.UID
		}
		if labels && len(p.Labels) > 0 {
			apart += fmt.Sprint(p.Labels) // in the order of keys
		}
		return kind{p.Set, p.Node, p.Class, p.Recreated, apart}
	}
	seen := map[kind]bool{}
	note := func(u *Unit) {
		for _, p := range u.Pods {
			seen[kindOf(p)] = true
		}
	}
	note(&first)
	for i := range g.sets {
		for _, p := range s.livePods(g, int32(i)) {
			if seen[kindOf(p)] {
				continue
			}
			u, ok := s.nextUnit(g, nil, func(o *cluster.Pod) bool { return o == p })
			if note(&Unit{Pods: []*cluster.Pod{p}}); ok && !u.Core {
				out = append(out, u)
				note(&u)
			}
		}
	}
	return out
}

// nextUnit is NextUnit for promises on certain nodes and units with a pod that is wanted; nil is for all.
func (s *Session) nextUnit(g *GangState, on func(cluster.NodeID) bool, want func(*cluster.Pod) bool) (Unit, bool) {
	s.buildHeld(g)
	u := Unit{Gang: g}
	for _, k := range s.holders[g.ID] { // a promise costs least
		if h := &s.holds[k]; !h.open && (on == nil || on(h.node)) {
			u.holds = append(u.holds, k)
			u.Charge.AddCapped(h.Charge)
		}
	}
	if len(u.holds) > 0 {
		return u, true
	}
	u.Pods = s.strays(g, want)
	if len(u.Pods) == 0 && g.satisfied(0) {
		u.Pods, u.Set = s.surplus(g, 0, want)
	}
	if len(u.Pods) == 0 {
		u.Core = true
		for i := range g.sets {
			u.Pods = append(u.Pods, s.livePods(g, int32(i))...)
		}
		if want != nil && !slices.ContainsFunc(u.Pods, want) {
			return Unit{}, false
		}
	}
	for _, p := range u.Pods {
		u.Charge.AddCapped(p.Charge)
	}
	return u, len(u.Pods) > 0
}

// strays returns the last pod, of those that are wanted, that is of no set of the gang: it does as well without.
func (s *Session) strays(g *GangState, want func(*cluster.Pod) bool) []*cluster.Pod {
	st := &g.sets[len(g.Sets)]
	for k := st.live - 1; k >= 0; k-- {
		if p := s.Snap.Pod(st.held[k]); want == nil || want(p) {
			return []*cluster.Pod{p}
		}
	}
	return nil
}

// surplus returns pods that set i can give and stay satisfied, the last of them, or of them with one that is wanted; it is
// satisfied now. Where they are all that a set has, that is named, otherwise 0.
func (s *Session) surplus(g *GangState, i int32, want func(*cluster.Pod) bool) ([]*cluster.Pod, int32) {
	st := &g.sets[i]
	if g.Sets[i].Leaf {
		if st.active > st.need {
			for k := st.live - 1; k >= 0; k-- {
				if p := s.Snap.Pod(st.held[k]); want == nil || want(p) {
					return []*cluster.Pod{p}, 0
				}
			}
		}
		return nil, 0
	}
	order := s.setOrder(g, i)
	for _, c := range slices.Backward(order) {
		if !g.satisfied(c) {
			continue
		}
		if pods, set := s.surplus(g, c, want); len(pods) > 0 {
			return pods, set
		}
	}
	for _, whole := range []bool{false, true} { // what there is of a set that is not satisfied helps nobody
		if whole && st.satisfied <= st.need {
			break
		}
		for _, c := range slices.Backward(order) {
			if g.satisfied(c) != whole {
				continue
			}
			if pods := s.allLive(g, c); len(pods) > 0 && (want == nil || slices.ContainsFunc(pods, want)) {
				return pods, c
			}
		}
	}
	return nil, 0
}

// Includes says whether the unit is all that is left of a gang, or of a set, that the other is of: of what the other gives, only so
// much can stay as can run without it.
func (u *Unit) Includes(o *Unit) bool {
	return u.Gang == o.Gang && (u.Core || u.Set != 0 && len(o.Pods) > 0 &&
		!slices.ContainsFunc(o.Pods, func(p *cluster.Pod) bool { return p.Set == cluster.None || !u.Gang.below(p.Set, u.Set) }))
}

func (s *Session) allLive(g *GangState, i int32) []*cluster.Pod {
	if g.Sets[i].Leaf {
		return s.livePods(g, i)
	}
	var out []*cluster.Pod
	for _, c := range g.Sets[i].Children {
		out = append(out, s.allLive(g, c)...)
	}
	return out
}

// livePods returns the pods of a leaf that can be evicted, last ones first.
func (s *Session) livePods(g *GangState, i int32) []*cluster.Pod {
	st := &g.sets[i]
	out := make([]*cluster.Pod, 0, st.live)
	for k := st.live - 1; k >= 0; k-- {
		out = append(out, s.Snap.Pod(st.held[k]))
	}
	return out
}

// LivePods returns all pods the gang could give, set by set, last ones of each first.
func (s *Session) LivePods(g *GangState) []*cluster.Pod {
	s.buildHeld(g)
	var out []*cluster.Pod
	for i := range g.sets {
		out = append(out, s.livePods(g, int32(i))...)
	}
	return out
}

// Fate is what this run did with a pod: Bind, Nominate, Evict, Move, or "" for nothing.
func (s *Session) Fate(p *cluster.Pod) Verb { return s.where[p.ID].verb }

// Age orders gangs by which displacements they were there for: of two gangs of equal age, the same victims have been
// displaced while both waited.
//
// The second result says that some were displaced for this very gang, or must not be for it, which makes its case its own.
func (s *Session) Age(g *GangState) (age int, own bool) {
	if s.aged == nil {
		s.aged = []int64{}
		s.Snap.EachGang(func(v *cluster.Gang) {
			if v.Displaced != 0 {
				s.aged = append(s.aged, v.Displaced)
			}
			for _, d := range v.Displacements {
				s.aged = append(s.aged, d.At)
				s.takers[d.By] = true
			}
			if len(v.Displacements) == cluster.MaxDisplacements { // earlier ones are forgotten, so what counts is since when pods are back
				for _, id := range v.Pods {
					s.aged = append(s.aged, s.Snap.Pod(id).Held)
				}
			}
		})
		slices.Sort(s.aged)
		s.Snap.Barred(func(taker cluster.Key) { s.takers[taker] = true })
	}
	age = sort.Search(len(s.aged), func(i int) bool { return s.aged[i] >= s.waits(g) })
	return age, s.takers[g.Key]
}

// ShareMoved is when a share last moved that matters to what the gang may take from gangs that were displaced; 0 where none was.
func (s *Session) ShareMoved(g *GangState) int64 {
	if s.Age(g); len(s.aged) == 0 {
		return 0
	}
	at := int64(0)
	for q := g.Leaf; q != nil; q = q.Parent {
		at = max(at, q.ShareMoved)
	}
	return at
}

// waits is since when a gang has waited, by what is known.
func (s *Session) waits(g *GangState) int64 { return max(s.Snap.Past(g.Created), g.Since) }

// EvictUnit evicts all pods of a unit, or opens its promises.
func (st *Statement) EvictUnit(u *Unit) {
	for _, k := range u.holds {
		st.do(Op{Verb: open, Node: st.s.holds[k].node, hold: k})
	}
	for _, p := range u.Pods {
		st.Evict(p)
	}
}

// keep gives a unit of promises its room again, if it is still there, and says whether it was.
func (st *Statement) keep(u *Unit) bool {
	mark := st.Mark()
	for _, k := range u.holds {
		h := &st.s.holds[k]
		if !st.s.returns(h.node, h.Requests, h.Share, h.groups) {
			st.rollback(mark)
			return false
		}
		st.do(Op{Verb: shut, Node: h.node, hold: k})
	}
	return true
}

// Return takes the eviction of a unit back while the statement has placed nobody: all is as if it had not been taken.
func (st *Statement) Return(u *Unit) {
	for _, k := range u.holds {
		st.do(Op{Verb: shut, Node: st.s.holds[k].node, hold: k})
	}
	for _, p := range u.Pods {
		st.Spare(p)
	}
}

// SpareUnit takes the eviction of a unit back, if the room of all its pods is still there, and says whether it was.
func (st *Statement) SpareUnit(u *Unit) bool {
	if len(u.holds) > 0 {
		return st.keep(u)
	}
	if st.s.overAgain(u) {
		return false
	}
	mark := st.Mark()
	for _, p := range u.Pods {
		if !st.s.mayStay(p) {
			st.rollback(mark)
			return false
		}
		st.Spare(p)
	}
	return true
}

// filtersAllow asks the filters about an evicted pod and the node it had or may get.
func (s *Session) filtersAllow(p *cluster.Pod, n cluster.NodeID) bool {
	for _, f := range s.points.filters {
		if f.it.Wants(p.Class) && !f.it.CheckNode(p, s.Snap.Node(n)).Yes() {
			return false
		}
	}
	return true
}

// mayStay says whether the room that an evicted pod had is still there.
func (s *Session) mayStay(p *cluster.Pod) bool {
	if !s.returns(p.Node, p.Class.Requests, p.Class.Share, p.Groups) {
		return false
	}
	n := s.Snap.Node(p.Node)
	for _, f := range s.points.filters {
		if !f.it.Wants(p.Class) {
			continue
		}
		stay, part := f.it.(NodeStay)
		if part && !stay.CheckStay(p, n) || !part && !f.it.CheckNode(p, n).Yes() {
			return false
		}
	}
	return true
}

// strays says whether pods of the unit are of no set, so that nobody knows where they should be.
func (u *Unit) strays() bool {
	return slices.ContainsFunc(u.Pods, func(p *cluster.Pod) bool { return p.Set == cluster.None })
}

// MoveUnit gives every pod of an evicted unit room elsewhere, or back where it was, and says whether it could; if not,
// the statement is as before. Pods that nobody recreates are not moved.
func (st *Statement) MoveUnit(u *Unit) bool {
	if len(u.holds) > 0 {
		return st.keep(u)
	}
	s, mark := st.s, st.Mark()
	if !s.CheckGates(u.Gang, u.Charge).Yes() || s.overAgain(u) { // it had to go because of a limit, not for want of room
		return false
	}
	if s.Constrained(u.Gang) && (!s.CheckGates(u.Gang, s.chargeAnywhere(u)).Yes() || u.Gang.Key.Remnant() || u.Gang.StrayActive() > 0 || u.strays()) {
		return false
	}
	if s.Constrained(u.Gang) {
		ids := make([]cluster.PodID, len(u.Pods))
		for i, p := range u.Pods {
			ids[i] = p.ID
		}
		s.moving = true
		d := s.placeGang(st, u.Gang, ids)
		s.moving = false
		if d != nil {
			st.rollback(mark)
		}
		return d == nil
	}
	for _, p := range u.Pods {
		if s.mayStay(p) {
			st.Spare(p)
			continue
		}
		i, ok := int32(-1), s.succeeded(u.Gang, p)
		if ok {
			i, ok = s.bestFor(p)
		}
		if !ok {
			st.rollback(mark)
			return false
		}
		if n := s.Snap.NodeOrder[i]; p.Class.Share.MemoryMiB > 0 && !s.CheckGates(u.Gang, p.Class.ChargeOn(s.Snap.Node(n))).Yes() {
			st.rollback(mark)
			return false
		}
		st.Move(p, s.Snap.NodeOrder[i])
	}
	return true
}

// chargeAnywhere returns the most that the queue of a unit is charged for it wherever it goes: GPU memory is a larger part of
// smaller devices.
func (s *Session) chargeAnywhere(u *Unit) cluster.Resources {
	var sum cluster.Resources
	for _, p := range u.Pods {
		sum.AddCapped(s.Snap.ChargeWaiting(p.Class))
	}
	return sum
}

// bestFor returns the best node for one pod, filters included.
func (s *Session) bestFor(p *cluster.Pod) (int32, bool) {
	r := s.rankingFor(p, s.all())
	var aside []int32
	var kept []int64
	chosen, found := int32(-1), false
	for !found {
		i, ok := r.best(s.everywhere())
		if !ok {
			break
		}
		if s.filtersAllow(p, s.Snap.NodeOrder[i]) {
			chosen, found = i, true
			break
		}
		aside, kept = append(aside, i), append(kept, r.setAside(i))
	}
	for k := len(aside) - 1; k >= 0; k-- {
		r.restore(aside[k], kept[k])
	}
	return chosen, found
}

// CheckGiver says whether anything may be taken from the gangs of a leaf queue.
func (s *Session) CheckGiver(r Right, g *GangState, request cluster.Resources, leaf *QueueLedger) Verdict {
	if r == Preempt && leaf != g.Leaf || r == Reclaim && leaf == g.Leaf {
		return Verdict{Code: No, Reason: ReasonOtherQueue, Object: leaf.Name}
	}
	for _, f := range s.points.leaves {
		if v := f.it.CheckGiver(r, g, request, leaf); !v.Yes() {
			v.Plugin = f.name
			return v
		}
	}
	return Verdict{}
}

// CheckVictim says whether anything of v may be taken for g by this right: the published table, plugins included, but for
// what CheckGiver says of its queue.
func (s *Session) CheckVictim(r Right, g *GangState, request cluster.Resources, v *GangState) Verdict {
	no := func(reason Reason) Verdict { return Verdict{Code: No, Reason: reason, Object: v.Key.String()} }
	switch {
	case v.Leaf == nil, r == Consolidation && !v.QueueVerdict.Yes(): // which could not start anew
		return v.QueueVerdict
	case !v.Preemptible && (r == Consolidation || !s.Yields(v.Gang)):
		return no(ReasonNotPreemptible)
	case r == Preempt && v.Priority >= g.Priority, r == Consolidation && v.Priority > g.Priority:
		return no(ReasonHigherPriority)
	case r == Consolidation && !s.recreated(v):
		return no(ReasonNotRecreated)
	case v.binding > 0:
		// Its bundle is bound whole or not at all: without one of them the others would wait for the binder to give up.
		return no(ReasonBeingBound)
	}
	if s.Snap.Frozen(g.Key, v.Key) {
		return no(ReasonFrozen)
	}
	if s.returned(r, g, v) {
		return no(ReasonReturned)
	}
	if n, until := s.recent(v); r == Reclaim && n >= maxEvictionsPerHour {
		return Verdict{Code: Wait, Reason: ReasonEvictionRate, Object: v.Key.String(), Have: int64(n), WakeAt: until}
	}
	for _, f := range s.points.victims {
		if verdict := f.it.CheckVictim(r, g, request, v); !verdict.Yes() {
			verdict.Plugin = f.name
			return verdict
		}
	}
	return Verdict{}
}

// BySiblings says whether CheckGiver has one answer for all leaves below a queue that is not on the taker's way; see
// [SiblingFilter].
func (s *Session) BySiblings() bool {
	for _, f := range s.points.leaves {
		if _, ok := f.it.(SiblingFilter); !ok {
			return false
		}
	}
	return true
}

// Standing appends to key what CheckGiver looks at of a queue that is not on the taker's way, where BySiblings.
func (s *Session) Standing(key []byte, q *QueueLedger) []byte {
	for _, f := range s.points.leaves {
		if x, ok := f.it.(SiblingFilter); ok {
			key = x.Standing(append(key, '/'), q.ID)
		}
	}
	return key
}

// AnyTaker says that CheckVictim has nothing against anybody's reclaiming from a gang, until its queue is charged. It may say
// false although it has nothing.
func (s *Session) AnyTaker(v *GangState) bool {
	if v.Leaf == nil || !v.Preemptible || v.binding > 0 || v.Displaced > 0 || len(v.Displacements) > 0 || s.Snap.AnyFrozen() {
		return false
	}
	for _, f := range s.points.victims {
		if a, ok := f.it.(AnyTaker); !ok || !a.AnyTaker(Reclaim, v) {
			return false
		}
	}
	return true
}

// placedNow says whether this run found room for a pod of the gang, a new one or one that moves: it must not be torn apart
// by the same run.
func (s *Session) placedNow(v *GangState) bool {
	for i := range v.sets {
		if v.sets[i].head > 0 || v.sets[i].nominated > 0 {
			return true
		}
	}
	return false
}

// succeeded says whether a pod that is made anew can take the place of p: somebody makes one, and it is of the same gang and set.
func (s *Session) succeeded(v *GangState, p *cluster.Pod) bool {
	return p.Recreated && p.Set != cluster.None && !v.Key.Remnant() && v.QueueVerdict.Yes()
}

func (s *Session) recreated(v *GangState) bool {
	s.buildHeld(v)
	for i := range v.sets {
		for _, id := range v.sets[i].held[:v.sets[i].live] {
			if !s.succeeded(v, s.Snap.Pod(id)) {
				return false
			}
		}
	}
	return true
}

// returned says whether pods of v came back after an eviction during which g was waiting already. Evicting them again
// could go on for ever: see docs/concepts/disruption.md. They may be, to reclaim, when a share that matters has moved to
// stay; and otherwise, if it was not for g that they had to go, when the cluster has changed since by other than our own
// decisions, and a while has passed.
//
// It is the first such eviction that counts: a gang that shrinks and grows all the time would otherwise lose the same pod
// again and again, as each loss makes the others' returns look old.
func (s *Session) returned(r Right, g, v *GangState) bool {
	waits := s.waits(g)
	news := waits
	if r == Reclaim {
		for _, leaf := range [...]*QueueLedger{g.Leaf, v.Leaf} {
			for q := leaf; q != nil; q = q.Parent {
				news = max(news, q.ShareMoved)
			}
		}
	}
	if v.Displaced == 0 || v.Displaced < news {
		return false
	}
	first, forG := v.Displaced, false
	for _, d := range v.Displacements {
		if d.At >= news {
			first = min(first, d.At)
		}
		forG = forG || d.At >= waits && d.By == g.Key
	}
	if len(v.Displacements) == cluster.MaxDisplacements && v.Displacements[0].At >= news {
		first, forG = news, true // earlier ones are forgotten
	}
	if !forG && s.Snap.News > v.Displaced && s.Snap.Now-v.Displaced >= cluster.Dwell {
		return false
	}
	s.buildHeld(v)
	for i := range v.sets {
		for _, id := range v.sets[i].held[:v.sets[i].live] {
			if p := s.Snap.Pod(id); p.Held >= first || p.Held == 0 && p.Created >= first { // there since before we were
				return true
			}
		}
	}
	return false
}

// maxEvictionsPerHour is how often one gang may lose pods to moving shares.
const maxEvictionsPerHour = 4

// recent counts the gang's evictions in the last hour, if shares move with usage, and says when they will be fewer than
// allowed.
func (s *Session) recent(v *GangState) (n int, until int64) {
	const hour = 3_600_000_000_000
	if len(v.Leaf.Usage) == 0 {
		return 0, 0
	}
	last := int64(-1)
	for i := len(v.Displacements) - 1; i >= 0 && s.Snap.Now-v.Displacements[i].At < hour; i-- {
		if at := v.Displacements[i].At; at != last {
			last = at
			if n++; n == maxEvictionsPerHour {
				until = at + hour
			}
		}
	}
	return n, until
}

// CheckUnit says whether one more unit may be taken, and by which rule; see [UnitCheck].
func (s *Session) CheckUnit(r Right, g *GangState, request cluster.Resources, u *Unit) (string, Verdict) {
	rule := ""
	if u.Core && s.placedNow(u.Gang) {
		return "", Verdict{Code: No, Reason: ReasonJustPlaced, Object: u.Gang.Key.String()}
	}
	if v := s.checkExcess(u); !v.Yes() {
		return "", v
	}
	for _, c := range s.points.units {
		why, v := c.it.CheckUnit(r, g, request, u)
		if !v.Yes() {
			v.Plugin = c.name
			return "", v
		}
		rule = cmp.Or(rule, why)
	}
	switch {
	case u.Moved:
		rule = cmp.Or(rule, "it has room elsewhere")
	case r == Preempt:
		rule = cmp.Or(rule, "its priority is lower")
	}
	return rule, Verdict{}
}

// CheckReclaim says whether the gang's queue may take from others. Without anybody to say so, it may not.
func (s *Session) CheckReclaim(g *GangState, request cluster.Resources) Verdict {
	if len(s.points.reclaim) == 0 {
		return Verdict{Code: NoForever, Reason: ReasonSwitchedOff, Object: string(PointReclaimGate)}
	}
	for _, gate := range s.points.reclaim {
		if v := gate.it.CheckReclaim(g, request); !v.Yes() {
			v.Plugin = gate.name
			return v
		}
	}
	return Verdict{}
}

// Tier says how reluctantly a unit is taken, and what it breaks.
func (s *Session) Tier(u *Unit) (int, string) {
	tier, broken := 0, ""
	for _, p := range s.points.tiers {
		if t, b := p.Tier(u); t > tier {
			tier, broken = t, b
		}
	}
	return tier, broken
}

// CompareGivers orders two sibling queues to take from: negative when l gives before r.
func (s *Session) CompareGivers(l, r *QueueLedger, lUnit, rUnit cluster.Resources) int {
	for _, o := range s.points.givers {
		if c := o.CompareGivers(l.ID, r.ID, lUnit, rUnit); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(r.Created, l.Created), cmp.Compare(r.Name, l.Name))
}

package engine

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Fate is what this run did with a pod: Bind, Nominate, Evict, Move, or "" for nothing.
func (s *Session) Fate(p *cluster.Pod) Verb { return s.where[p.ID].verb }

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
			st.RollbackTo(mark)
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
			st.RollbackTo(mark)
			return false
		}
		st.Spare(p)
	}
	return true
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
			st.RollbackTo(mark)
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
			st.RollbackTo(mark)
			return false
		}
		if n := s.Snap.NodeOrder[i]; p.Class.Share.MemoryMiB > 0 && !s.CheckGates(u.Gang, p.Class.ChargeOn(s.Snap.Node(n))).Yes() {
			st.RollbackTo(mark)
			return false
		}
		st.Move(p, s.Snap.NodeOrder[i])
	}
	return true
}

// strays says whether pods of the unit are of no set, so that nobody knows where they should be.
func (u *Unit) strays() bool {
	return slices.ContainsFunc(u.Pods, func(p *cluster.Pod) bool { return p.Set == cluster.None })
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

// succeeded says whether a pod that is made anew can take the place of p: somebody makes one, and it is of the same gang and set.
func (s *Session) succeeded(v *GangState, p *cluster.Pod) bool {
	return p.Recreated && p.Set != cluster.None && !v.Key.Remnant() && v.QueueVerdict.Yes()
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
	aside, kept, none := s.refusedLeaves(r, p, s.everywhere())
	if none {
		return 0, false
	}
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
	r.restore(aside, kept)
	return chosen, found
}

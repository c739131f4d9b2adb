package placer

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// SpareUnit takes the eviction of a unit back, if the room of all its pods is still there, and says whether it was.
func (pl *Placer) SpareUnit(st *ledger.Statement, u *ledger.VictimUnit) bool {
	if u.Promised() > 0 {
		return st.Keep(u)
	}
	if pl.rules.OverAgain(u) {
		return false
	}
	mark := st.Mark()
	for _, p := range u.Pods {
		if !pl.mayStay(p) {
			st.RollbackTo(mark)
			return false
		}
		st.Spare(p)
	}
	return true
}

// MoveUnit gives every pod of an evicted unit room elsewhere, or back where it was, and says whether it could; if not,
// the statement is as before. Pods that nobody recreates are not moved.
func (pl *Placer) MoveUnit(st *ledger.Statement, u *ledger.VictimUnit) bool {
	if u.Promised() > 0 {
		return st.Keep(u)
	}
	mark := st.Mark()
	if !pl.rules.CheckReturn(u.Gang, u.Charge).Yes() || pl.rules.OverAgain(u) { // it had to go because of a limit, not for want of room
		return false
	}
	if pl.Constrained(u.Gang) && (!pl.rules.CheckReturn(u.Gang, pl.chargeAnywhere(u)).Yes() || u.Gang.Key.Remnant() || u.Gang.StrayActive() > 0 || strays(u)) {
		return false
	}
	if pl.Constrained(u.Gang) {
		ids := make([]cluster.PodID, len(u.Pods))
		for i, p := range u.Pods {
			ids[i] = p.ID
		}
		tr := trial{Placer: pl, st: st, mode: elsewhere}
		d, _ := tr.placeGang(u.Gang, ids)
		if d != nil {
			st.RollbackTo(mark)
		}
		return d == nil
	}
	for _, p := range u.Pods {
		if pl.mayStay(p) {
			st.Spare(p)
			continue
		}
		i, ok := int32(-1), u.Gang.Succeeds(p)
		if ok {
			i, ok = pl.bestFor(p)
		}
		if !ok {
			st.RollbackTo(mark)
			return false
		}
		if n := pl.snap.NodeOrder[i]; p.Class.Share.MemoryMiB > 0 && !pl.rules.CheckReturn(u.Gang, p.Class.ChargeOn(pl.snap.Node(n))).Yes() {
			st.RollbackTo(mark)
			return false
		}
		st.Move(p, pl.snap.NodeOrder[i])
	}
	return true
}

// MoveTo gives the successor of an evicted pod room on the best of the nodes that may takes, other than the one where the pod was, and says whether there is one; if not, the statement
// is as before. Whether the queue may have it there is looked at too. Of a gang whose pods have to be near each other none moves by itself.
func (pl *Placer) MoveTo(st *ledger.Statement, g *ledger.GangState, p *cluster.Pod, may func(n *cluster.Node) bool) bool {
	u := ledger.VictimUnit{Gang: g, Pods: []*cluster.Pod{p}, Charge: p.Charge}
	if !g.Succeeds(p) || pl.Constrained(g) || pl.rules.OverAgain(&u) {
		return false
	}
	r, in := pl.rankingFor(p, pl.all()), pl.everywhere()
	var aside []int32
	var scores []int64
	i, ok := pl.choose(r, p, in, func() (int32, bool) {
		for {
			i, ok := r.best(in)
			if n := pl.snap.NodeOrder[i]; !ok || n != p.Node && may(pl.snap.Node(n)) {
				return i, ok
			}
			pl.rec.Step()
			aside, scores = append(aside, i), append(scores, r.setAside(i))
		}
	}, func(int) { pl.rec.Step() })
	r.restore(aside, scores)
	if !ok || !pl.rules.CheckReturn(g, p.Class.ChargeOn(pl.snap.Node(pl.snap.NodeOrder[i]))).Yes() {
		return false
	}
	st.Move(p, pl.snap.NodeOrder[i])
	return true
}

// strays says whether pods of the unit are of no set, so that nobody knows where they should be.
func strays(u *ledger.VictimUnit) bool {
	return slices.ContainsFunc(u.Pods, func(p *cluster.Pod) bool { return p.Set == cluster.None })
}

// chargeAnywhere returns the most that the queue of a unit is charged for it wherever it goes: GPU memory is a larger part of
// smaller devices.
func (pl *Placer) chargeAnywhere(u *ledger.VictimUnit) cluster.Resources {
	var sum cluster.Resources
	for _, p := range u.Pods {
		sum.AddCapped(pl.snap.ChargeWaiting(p.Class))
	}
	return sum
}

// bestFor returns the best node for one pod, filters included.
func (pl *Placer) bestFor(p *cluster.Pod) (int32, bool) {
	r, in := pl.rankingFor(p, pl.all()), pl.everywhere()
	return pl.choose(r, p, in, func() (int32, bool) { return r.best(in) }, func(int) {})
}

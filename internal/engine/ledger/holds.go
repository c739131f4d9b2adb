package ledger

import (
	"iter"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// heldRoom is a hold in a session: room that counts as taken for everyone but its gang, and as allocated to its queue.
type heldRoom struct {
	cluster.Hold
	node           cluster.NodeID
	gang           cluster.GangID
	leaf           *QueueLedger
	nonPreemptible bool
	groups         []string // the shared devices it is of
	open           bool     // given back to its gang by a statement, or void
}

// layHolds takes the promised room out of the ledgers. A promise that no longer has room behind it (a victim refuses to
// go, the node is gone or was filled by others) is void, the last ones of a node first.
func (l *Ledger) layHolds() {
	if len(l.snap.Holds) == 0 {
		return
	}
	gangs := map[cluster.Key]*cluster.Gang{}
	for i := range l.snap.Holds {
		gangs[l.snap.Holds[i].Gang] = nil
	}
	l.snap.EachGang(func(g *cluster.Gang) {
		if _, asked := gangs[g.Key]; asked {
			gangs[g.Key] = g
		}
	})
	for i := range l.snap.Holds {
		h, n := l.snap.Holds[i], l.snap.NodeByName(l.snap.Holds[i].Node)
		g := gangs[h.Gang]
		if g == nil || n == nil {
			l.void = append(l.void, h.ID())
			continue
		}
		if !l.roomLater(h.Requests, h.Share, n.ID) {
			l.void = append(l.void, h.ID())
			continue
		}
		held := heldRoom{Hold: h, node: n.ID, gang: g.ID, nonPreemptible: !g.Preemptible}
		if !h.Share.None() {
			c := &cluster.Class{ClassSpec: cluster.ClassSpec{Requests: h.Requests, Charge: h.Charge, Share: h.Share}}
			held.groups = l.pickFor(c, h.ID(), n.ID, false)
		}
		l.move(n.ID, h.Requests, h.Share, held.groups, 0, -1)
		if held.leaf, _ = l.queues.leafFor(g); held.leaf != nil {
			held.leaf.charge(h.Charge, held.nonPreemptible, true)
		}
		l.holders[g.ID] = append(l.holders[g.ID], len(l.holds))
		if l.heldOn == nil {
			l.heldOn = map[cluster.NodeID][]int{}
		}
		l.heldOn[n.ID] = append(l.heldOn[n.ID], len(l.holds))
		l.holds = append(l.holds, held)
	}
}

// turn opens a hold, or shuts it again.
func (l *Ledger) turn(h *heldRoom, free bool) {
	h.open = free
	sign := int64(-1)
	if free {
		sign = 1
	}
	l.move(h.node, h.Requests, h.Share, h.groups, 0, sign)
	if h.leaf != nil {
		l.charge(h.leaf, h.Charge, h.nonPreemptible, !free)
	}
	l.hooks.Turned(&h.Hold, free)
}

// Promises says whether room is promised to a gang, by ID.
func (l *Ledger) Promises(g cluster.GangID) bool { return len(l.holders[g]) > 0 }

// EachPromise calls f for the promises on a node that stand, in their order, with the most that they keep: of devices that
// are to be shared, the whole.
func (l *Ledger) EachPromise(n cluster.NodeID, f func(to cluster.GangID, room cluster.Resources)) {
	for _, k := range l.heldOn[n] {
		h := &l.holds[k]
		if h.open {
			continue
		}
		room := h.Requests
		if !h.Share.None() {
			room = room.Clone()
			room.Add(cluster.Resources{cluster.GPU: int64(max(1, h.Share.Devices)) * cluster.Whole})
		}
		f(h.gang, room)
	}
}

// Holds says whether room is promised to the gang.
func (l *Ledger) Holds(g *GangState) bool {
	return slices.ContainsFunc(l.holders[g.ID], func(k int) bool { return !l.holds[k].open })
}

// OpenHolds gives the pods that are about to be tried the room that is held for them, and says whether there was any.
func (st *Statement) OpenHolds(g *GangState, pods []cluster.PodID) bool {
	l := st.l
	mine := l.holders[g.ID]
	if len(mine) == 0 {
		return false
	}
	own := map[string]int{}
	for _, k := range mine {
		if l.holds[k].Pod != "" && !l.holds[k].open {
			own[l.holds[k].Pod] = k
		}
	}
	any := false
	for _, id := range pods {
		p := l.snap.Pod(id)
		k, ok := own[p.UID]
		for i := 0; !ok && i < len(mine); i++ {
			h := &l.holds[mine[i]]
			if ok = h.Moved != "" && !h.open && h.Set == p.SetName() && h.Requests.Equal(p.Class.Requests) && h.Share == p.Class.Share; ok {
				k = mine[i]
			}
		}
		if ok {
			st.do(Op{Verb: open, Pod: p, Node: l.holds[k].node, hold: k})
			l.keeps[id] = k
			any = true
		}
	}
	return any
}

// HoldFor returns the open promise that a pod goes for, and its node; nil for none.
func (l *Ledger) HoldFor(p *cluster.Pod) (*cluster.Hold, cluster.NodeID) {
	if len(l.holds) == 0 {
		return nil, cluster.None
	}
	if k, ok := l.keeps[p.ID]; ok && l.holds[k].open {
		return &l.holds[k].Hold, l.holds[k].node
	}
	return nil, cluster.None
}

// EachHold calls f for every promise of room that counts: open ones are free for whom they are promised to, just now.
func (l *Ledger) EachHold(f func(h *cluster.Hold, open bool)) {
	for i := range l.holds {
		f(&l.holds[i].Hold, l.holds[i].open)
	}
}

// Held yields the promises of room on a node that stand: nobody has been given their room in this run.
func (l *Ledger) Held(n cluster.NodeID) iter.Seq[*cluster.Hold] {
	return func(yield func(*cluster.Hold) bool) {
		for _, k := range l.heldOn[n] {
			if h := &l.holds[k]; !h.open && !yield(&h.Hold) {
				return
			}
		}
	}
}

// HeldFor yields the promises to a gang that stand, and their nodes.
func (l *Ledger) HeldFor(g *GangState) iter.Seq2[*cluster.Hold, cluster.NodeID] {
	return func(yield func(*cluster.Hold, cluster.NodeID) bool) {
		for _, k := range l.holders[g.ID] {
			if h := &l.holds[k]; !h.open && !yield(&h.Hold, h.node) {
				return
			}
		}
	}
}

// Void gives up what is held for the gang: the gang cannot use it.
func (l *Ledger) Void(g *GangState) {
	for _, k := range l.holders[g.ID] {
		h := &l.holds[k]
		if h.open {
			continue
		}
		l.turn(h, true)
		l.decisions++
		l.void = append(l.void, h.ID())
		l.freed++
	}
}

// Immediate says whether the room of all that the statement nominates is there already.
func (st *Statement) Immediate() bool {
	l, there, n := st.l, true, 0
	for ; n < len(st.ops) && there; n++ {
		if op := &st.ops[n]; op.Verb == Nominate {
			if there = l.again(op.Node, op.Pod.Class.Requests, op.Pod.Class.Share, op.Groups, true); there {
				l.move(op.Node, op.Pod.Class.Requests, op.Pod.Class.Share, op.Groups, -1, 0)
			}
		}
	}
	if !there {
		n-- // the last was not taken
	}
	for i := n - 1; i >= 0; i-- {
		if op := &st.ops[i]; op.Verb == Nominate {
			l.move(op.Node, op.Pod.Class.Requests, op.Pod.Class.Share, op.Groups, 1, 0)
		}
	}
	return there
}

// Binds says whether the statement places anybody at once.
func (st *Statement) Binds() bool { return st.BindsSince(0) }

// BindsSince says whether the statement places anybody at once since the mark.
func (st *Statement) BindsSince(m Mark) bool {
	return slices.ContainsFunc(st.ops[m:], func(op Op) bool { return op.Verb == Bind })
}

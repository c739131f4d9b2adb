package engine

import (
	"fmt"
	"slices"
	"strings"

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
func (s *Session) layHolds() {
	if len(s.Snap.Holds) == 0 {
		return
	}
	gangs := map[cluster.Key]*cluster.Gang{}
	for i := range s.Snap.Holds {
		gangs[s.Snap.Holds[i].Gang] = nil
	}
	s.Snap.EachGang(func(g *cluster.Gang) {
		if _, asked := gangs[g.Key]; asked {
			gangs[g.Key] = g
		}
	})
	for i := range s.Snap.Holds {
		h, n := s.Snap.Holds[i], s.Snap.NodeByName(s.Snap.Holds[i].Node)
		g := gangs[h.Gang]
		if g == nil || n == nil {
			s.void = append(s.void, h.ID())
			continue
		}
		if !s.roomLater(h.Requests, h.Share, n.ID) {
			s.void = append(s.void, h.ID())
			continue
		}
		held := heldRoom{Hold: h, node: n.ID, gang: g.ID, nonPreemptible: !g.Preemptible}
		if !h.Share.None() {
			c := &cluster.Class{ClassSpec: cluster.ClassSpec{Requests: h.Requests, Charge: h.Charge, Share: h.Share}}
			held.groups = s.pickFor(c, h.ID(), n.ID, false)
		}
		s.move(n.ID, h.Requests, h.Share, held.groups, 0, -1)
		if held.leaf, _ = s.queues.leafFor(g); held.leaf != nil {
			held.leaf.charge(h.Charge, held.nonPreemptible, true)
		}
		s.holders[g.ID] = append(s.holders[g.ID], len(s.holds))
		if s.heldOn == nil {
			s.heldOn = map[cluster.NodeID][]int{}
		}
		s.heldOn[n.ID] = append(s.heldOn[n.ID], len(s.holds))
		s.holds = append(s.holds, held)
	}
}

// turn opens a hold, or shuts it again.
func (s *Session) turn(h *heldRoom, free bool) {
	h.open = free
	sign := int64(-1)
	if free {
		sign = 1
	}
	s.move(h.node, h.Requests, h.Share, h.groups, 0, sign)
	if h.leaf != nil {
		s.charge(h.leaf, h.Charge, h.nonPreemptible, !free)
	}
	for _, o := range s.points.promises {
		o.Turned(&h.Hold, free)
	}
}

// Promises says whether room is promised to a gang, by ID.
func (s *Session) Promises(g cluster.GangID) bool { return len(s.holders[g]) > 0 }

// EachPromise calls f for the promises on a node that stand, in their order, with the most that they keep: of devices that
// are to be shared, the whole.
func (s *Session) EachPromise(n cluster.NodeID, f func(to cluster.GangID, room cluster.Resources)) {
	for _, k := range s.heldOn[n] {
		h := &s.holds[k]
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
func (s *Session) Holds(g *GangState) bool {
	for _, k := range s.holders[g.ID] {
		if !s.holds[k].open {
			return true
		}
	}
	return false
}

// openHolds gives the pods that are about to be tried the room that is held for them, and says whether there was any.
func (s *Session) openHolds(st *Statement, g *GangState, pods []cluster.PodID) bool {
	mine := s.holders[g.ID]
	if len(mine) == 0 {
		return false
	}
	own := map[string]int{}
	for _, k := range mine {
		if s.holds[k].Pod != "" && !s.holds[k].open {
			own[s.holds[k].Pod] = k
		}
	}
	any := false
	for _, id := range pods {
		p := s.Snap.Pod(id)
		k, ok := own[p.UID]
		for i := 0; !ok && i < len(mine); i++ {
			h := &s.holds[mine[i]]
			if ok = h.Moved != "" && !h.open && h.Set == p.SetName() && h.Requests.Equal(p.Class.Requests) && h.Share == p.Class.Share; ok {
				k = mine[i]
			}
		}
		if ok {
			st.do(Op{Verb: open, Pod: p, Node: s.holds[k].node, hold: k})
			s.keeps[id] = k
			any = true
		}
	}
	return any
}

// holdFor returns the index of the open hold a pod goes for, -1 for none.
func (s *Session) holdFor(p *cluster.Pod) int {
	if len(s.holds) == 0 {
		return -1
	}
	if k, ok := s.keeps[p.ID]; ok && s.holds[k].open {
		return k
	}
	return -1
}

// Awaits says whether the room that is held for the gang may be of use once those have gone who had to go for it: filters have a
// say about its pods, and who is leaving may be what they mind.
func (s *Session) Awaits(g *GangState) bool {
	for _, k := range s.holders[g.ID] {
		h := &s.holds[k]
		if p := s.Snap.Pod(h.Waits); !h.open && p != nil && !(s.wanted(p.Class) && s.Allows(p.Class, h.node)) {
			return false
		}
	}
	leaving := false
	s.Snap.EachGang(func(v *cluster.Gang) {
		if leaving || !slices.ContainsFunc(v.Displacements, func(d cluster.Displacement) bool { return d.By == g.Key }) {
			return
		}
		leaving = slices.ContainsFunc(v.Pods, func(id cluster.PodID) bool { return s.Snap.Pod(id).Phase == cluster.Releasing })
	})
	return leaving
}

// Void gives up what is held for the gang: the gang cannot use it.
func (s *Session) Void(g *GangState) {
	for _, k := range s.holders[g.ID] {
		h := &s.holds[k]
		if h.open {
			continue
		}
		s.turn(h, true)
		s.accepted++
		s.void = append(s.void, h.ID())
		clear(s.failed)
	}
}

// StillReleasing is the diagnosis of a gang whose promised room is not there yet.
func (s *Session) StillReleasing(g *GangState) *Diagnosis {
	n := int64(0)
	var nodes []string
	for _, k := range s.holders[g.ID] {
		if h := &s.holds[k]; !h.open {
			n++
			nodes = append(nodes, h.Node)
		}
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	const shown = 8
	where := "held on " + strings.Join(nodes[:min(len(nodes), shown)], ", ")
	if len(nodes) > shown {
		where += fmt.Sprintf(" and %d more nodes", len(nodes)-shown)
	}
	return &Diagnosis{Verdict: Verdict{Code: No, Reason: ReasonReleasing, Object: g.Key.String(), Have: n, Detail: where}}
}

// Immediate says whether the room of all that the statement nominates is there already.
func (st *Statement) Immediate() bool {
	s, there, n := st.s, true, 0
	for ; n < len(st.ops) && there; n++ {
		if op := &st.ops[n]; op.Verb == Nominate {
			if there = s.again(op.Node, op.Pod.Class.Requests, op.Pod.Class.Share, op.Groups, true); there {
				s.move(op.Node, op.Pod.Class.Requests, op.Pod.Class.Share, op.Groups, -1, 0)
			}
		}
	}
	if !there {
		n-- // the last was not taken
	}
	for i := n - 1; i >= 0; i-- {
		if op := &st.ops[i]; op.Verb == Nominate {
			s.move(op.Node, op.Pod.Class.Requests, op.Pod.Class.Share, op.Groups, 1, 0)
		}
	}
	return there
}

// Binds says whether the statement places anybody at once.
func (st *Statement) Binds() bool { return st.bindsSince(0) }

func (st *Statement) bindsSince(m Mark) bool {
	for i := range st.ops[m:] {
		if st.ops[int(m)+i].Verb == Bind {
			return true
		}
	}
	return false
}

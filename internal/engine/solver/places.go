package solver

import (
	"cmp"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// land is where those are who may have to give, for one action of one run: O(gangs + pods) once.
type land struct {
	queues *victimQueues
	most   []cluster.Resources           // by node: what would be there if all went who may be preempted; never too little
	leaves map[*ledger.QueueLedger]int64 // the place of a leaf in the victim order
	within map[*ledger.GangState]int64   // the place of a gang in its leaf
}

// lay returns the land, with these leaves in it. The victim order is that which the action found when it first asked: the
// queue first that would give first as things stood, and within a queue the gang.
func (sv *Solver) lay(asked map[*ledger.QueueLedger]bool) *land {
	if sv.land == nil {
		sv.land = &land{queues: sv.everyone(), leaves: map[*ledger.QueueLedger]int64{}, within: map[*ledger.GangState]int64{}}
		sv.land.most = mostRoom(sv.s, sv.s.Rules.Yields)
	}
	d, known := sv.land, true
	for leaf := range asked { // order: whether one is missing
		_, ok := d.leaves[leaf]
		known = known && ok
	}
	if known {
		return d
	}
	for leaf := range asked { // order: each on its own
		d.leaves[leaf] = 0
	}
	order, _ := d.sorted(d.queues.top)
	for i, l := range order {
		d.leaves[l.queue] = int64(i)
		for k, v := range l.gangs[l.start:] {
			if _, ranked := d.within[v]; !ranked {
				d.within[v] = int64(k)
			}
		}
	}
	return d
}

// freed is the most that becomes free on its node when a pod goes: of devices that it shares, the whole, and the slots of the
// pods that are still to come to reserve them.
func freed(p *cluster.Pod) cluster.Resources {
	if p.Class.Share.None() {
		return p.Class.Requests
	}
	r, devices := p.Class.Requests.Clone(), int64(max(1, p.Class.Share.Devices))
	r.Add(cluster.Resources{cluster.GPU: devices * cluster.Whole, cluster.Slots: devices})
	return r
}

// sorted returns the leaves of the land below queues in the victim order, and what the first of them would give.
func (d *land) sorted(bs []*branch) ([]*leaf, cluster.Resources) {
	type part struct {
		queue  *ledger.QueueLedger
		leaves []*leaf
		gives  cluster.Resources
	}
	var parts []part
	for _, b := range bs {
		p := part{queue: b.queue}
		if b.leaf == nil {
			p.leaves, p.gives = d.sorted(b.kids)
		} else if _, ok := d.leaves[b.queue]; ok {
			d.queues.ready(b.leaf)
			if b.leaf.start < len(b.leaf.gangs) {
				u, _ := d.queues.s.Ledger.NextUnit(b.leaf.gangs[b.leaf.start])
				p.leaves, p.gives = []*leaf{b.leaf}, u.Charge
			}
		}
		if len(p.leaves) > 0 {
			parts = append(parts, p)
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return d.queues.s.Rules.CompareVictimQueues(a.queue, b.queue, a.gives, b.gives) })
	var out []*leaf
	for _, p := range parts {
		out = append(out, p.leaves...)
	}
	if len(parts) == 0 {
		return nil, nil
	}
	return out, parts[0].gives
}

// rank is the place of a gang in the victim order.
func (d *land) rank(v *ledger.GangState) int64 { return d.leaves[v.Leaf]<<32 | d.within[v] }

// spot is a node on which room can be made for pods of a class.
type spot struct {
	node   cluster.NodeID
	last   int64               // the rank of the last who has to go for one pod
	lose   [2]int64            // what they hold: GPUs and cores, in thousandths
	more   int                 // for how many pods, at most, room can be made besides that which is there
	leaf   *ledger.QueueLedger // whose all are who hold something there; nil if they are of several
	need   cluster.Resources   // what those have to give at least for one pod
	before cluster.Resources   // and before the last of them gives
}

// find lists the nodes on which room can be made for a pod of the class, in the victim order: the one first on which the
// last who has to go is first. A node on which all who may be touched leave no room for one pod is none.
func (l *local) find(c *cluster.Class) []spot {
	spots := []spot{}
	for _, n := range l.s.Snap.NodeOrder {
		if !l.s.Placer.Allows(c, n) || !c.Requests.Fits(l.land.most[n]) {
			continue
		}
		l.s.Recorder.Step()
		if at, ok := l.spot(c, n); ok {
			spots = append(spots, at)
		}
	}
	slices.SortStableFunc(spots, func(a, b spot) int { return cmp.Compare(a.last, b.last) })
	return spots
}

// spot looks at one node.
func (l *local) spot(c *cluster.Class, n cluster.NodeID) (spot, bool) {
	type part struct {
		rank         int64
		room, charge cluster.Resources
	}
	at := spot{node: n}
	var parts []part
	add := func(id cluster.GangID, room, charge cluster.Resources) {
		if v := l.s.Snap.Gang(id); l.mayTouch(v) {
			g := l.s.Ledger.Gang(id)
			if len(parts) == 0 {
				at.leaf = g.Leaf
			} else if at.leaf != g.Leaf {
				at.leaf = nil
			}
			parts = append(parts, part{l.land.rank(g), room, charge})
		}
	}
	for _, id := range l.s.Snap.Node(n).Pods {
		if p := l.s.Snap.Pod(id); p.Gang != cluster.None && p.Phase.Active() && l.s.Ledger.Fate(p) == "" {
			add(p.Gang, freed(p), p.Charge)
		}
	}
	l.s.Ledger.EachPromise(n, func(to cluster.GangID, room cluster.Resources) { add(to, room, nil) })
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.rank, b.rank) })
	room := l.s.Ledger.Later(n).Clone()
	have := c.Requests.CountIn(room, len(l.pods))
	for i, x := range parts {
		if i == 0 || !c.Requests.Fits(room) {
			at.last, at.before = x.rank, at.need.Clone()
			at.need.Add(x.charge)
		}
		room.Add(x.room)
	}
	if len(parts) == 0 || !c.Requests.Fits(room) {
		return spot{}, false
	}
	at.lose = [2]int64{at.need.At(cluster.GPU), at.need.At(cluster.CPU)}
	at.more = max(1, c.Requests.CountIn(room, len(l.pods))-have)
	if l.moves { // who moves needs room that is left, beside the pod, of what is free in all and what comes free here
		left := l.spare.Clone()
		left.Sub(c.Requests)
		for _, x := range parts {
			left.Add(x.room)
		}
		return at, slices.ContainsFunc(parts, func(x part) bool {
			_, short := x.charge.Short(left)
			return !short
		})
	}
	return at, true
}

// mayTouch says whether a gang may have to give.
func (l *local) mayTouch(v *cluster.Gang) bool {
	if l.may[v.ID] == 0 {
		l.may[v.ID] = -1
		if leaf := l.s.Ledger.LeafOf(v); l.s.Rules.Yields(v) && leaf != nil && l.asked[leaf] {
			if g := l.s.Ledger.Gang(v.ID); g != l.g && l.s.Rules.CheckVictim(l.cause, l.g, l.request, g).Yes() {
				l.may[v.ID] = 1
			}
		}
	}
	return l.may[v.ID] > 0
}

// holders lists the gangs that may have to give something on a node.
func (l *local) holders(n cluster.NodeID) []*ledger.GangState {
	var out []*ledger.GangState
	add := func(id cluster.GangID) {
		if v := l.s.Snap.Gang(id); l.mayTouch(v) && !slices.Contains(out, l.s.Ledger.Gang(id)) {
			out = append(out, l.s.Ledger.Gang(id))
		}
	}
	for _, id := range l.s.Snap.Node(n).Pods {
		if p := l.s.Snap.Pod(id); p.Gang != cluster.None && p.Phase.Active() {
			add(p.Gang)
		}
	}
	l.s.Ledger.EachPromise(n, func(to cluster.GangID, _ cluster.Resources) { add(to) })
	return out
}

// part returns the victim queues as if these gangs were all.
func (vq *victimQueues) part(gangs []*ledger.GangState) *victimQueues {
	out := &victimQueues{s: vq.s, wake: cluster.Forever, byID: map[cluster.QueueID]*leaf{}, nodes: map[cluster.QueueID]*branch{}, count: len(gangs)}
	for _, v := range gangs {
		l := out.byID[v.Leaf.ID]
		if l == nil {
			l = &leaf{queue: v.Leaf, branch: out.branch(v.Leaf), built: true}
			out.byID[v.Leaf.ID] = l
			l.branch.leaf = l
		}
		l.raw.gangs, l.gangs = append(l.raw.gangs, v.Gang), append(l.gangs, v)
	}
	for _, l := range out.byID { // order: each on its own
		slices.SortFunc(l.gangs, func(a, b *ledger.GangState) int { return vq.s.Rules.CompareGangs(b, a) })
	}
	return out
}

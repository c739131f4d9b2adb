package solver

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// most is the most room that nodes could have: what is free, and all that anybody holds there who may be a victim at all.
// Where that is too little, no search needs to be made. It is looked at once a search of the action has cost much in vain, as
// it costs about as much: many gangs that fail for the same want of room, and are not alike, then cost a look at the nodes
// each.
type most struct {
	wanted bool
	rooms  map[mostFor][]cluster.Resources // by node ID
	slack  map[slackOf]map[int64]int64     // by size, see couldAllFit
}

// slackOf is of what, and beside whom: who may be killed keeps no room.
type slackOf struct {
	dim  int
	kill string
}

// mostFor is for whom: by preemption, queue and priority decide who may be a victim.
type mostFor struct {
	leaf  *ledger.QueueLedger
	below int // see leaf.below
}

// nodesPerStep is how many nodes that are looked at for it, or to place a gang in a what-if, count as one step, gangsPerStep how
// many gangs or pods.
const (
	nodesPerStep = 64
	gangsPerStep = 8
)

// maxSizes is how many sizes are counted of a dimension.
const maxSizes = 16

// hopeless says whether the gang would not fit if everybody went of whom it is conceivable that they go, or, where all of those
// have to be elsewhere then, not beside them, and if so what to tell it: the same rules about gangs and queues are asked as in
// a search, and nobody is evicted. Of a question that it cannot decide it says no.
func (q *search) hopeless() (recorder.Attempt, bool) {
	moves := q.cause == policy.Consolidation
	if !q.most.wanted || !q.s.Rules.CheckGates(q.g, q.request).Yes() ||
		q.couldFit(q.rooms()) && (!moves || q.couldAllFit(mortals{})) {
		return recorder.Attempt{}, false
	}
	q.w = q.everyone().walk(q.cause, q.g, q.request)
	v := policy.Verdict{Code: policy.No, Reason: policy.ReasonVictimsTooFew, Have: int64(q.w.countAll())}
	switch {
	case moves:
		v.Reason, v.Have = policy.ReasonNothingToMove, 0
	case v.Have == 0:
		v.Reason = policy.ReasonNoVictims
	}
	q.s.Recorder.Scenario(true)
	return recorder.Attempt{Verdict: v, Barred: q.w.told()}, true
}

// couldFit says whether the nodes would have places for each kind of pod, each kind for itself, with everybody gone, and the
// domains for those of each set that has to be in one.
func (q *search) couldFit(rooms []cluster.Resources) bool {
	q.steps(len(q.s.Snap.NodeOrder) / nodesPerStep)
	if q.s.Placer.RefusedAll(q.pods) {
		return false
	}
	for i := 0; i < len(q.pods); {
		c := q.s.Snap.Pod(q.pods[i]).Class
		n := 1
		for i+n < len(q.pods) && q.s.Snap.Pod(q.pods[i+n]).Class == c {
			n++
		}
		i += n
		for _, id := range q.s.Snap.NodeOrder {
			if n <= 0 {
				break
			}
			n -= q.placesOn(c, id, rooms[id], n)
		}
		if n > 0 {
			return false
		}
	}
	return q.couldBeNear(rooms)
}

// couldAllFit says whether the nodes would have places for the gang beside all who may be moved, who all keep room somewhere, but
// for those who may be killed.
// Pods larger than a size are counted as the whole sizes that are in them, and so are the nodes with those gone who may be
// moved: what is left over on a node is lost. What holds for one of the sizes that there are is enough for a no.
func (q *search) couldAllFit(kill mortals) bool {
	rooms := q.rooms()
	for d := range q.request {
		asks := map[int64]int64{}
		largest := int64(0)
		for _, id := range q.pods {
			x := q.s.Snap.Pod(id).Class.Requests.At(d)
			asks[x]++
			largest = max(largest, x)
		}
		for size, left := range q.slack(d, rooms, kill) { // order: a question of any
			if size > largest {
				continue
			}
			for x, n := range asks { // order: a sum
				left -= x / size * n
			}
			if left < 0 {
				return false
			}
		}
	}
	return true
}

// slack returns, by each size in a dimension that somebody has who may be moved, how many more of it there are places for than
// those take who keep room: O(pods × sizes), once for those who may be killed until a decision is accepted.
func (q *search) slack(d int, rooms []cluster.Resources, kill mortals) map[int64]int64 {
	key := slackOf{d, kill.name}
	if out, known := q.most.slack[key]; known {
		return out
	}
	out := map[int64]int64{}
	there := make([][]int64, len(rooms))
	for _, n := range q.s.Snap.NodeOrder {
		for _, id := range q.s.Snap.Node(n).Pods {
			p := q.s.Snap.Pod(id)
			if x := p.Class.Requests.At(d); x > 0 && mayGo(q.s, p, q.s.Rules.Yields) && p.Class.Share.None() && !kill.has(p.Gang) {
				there[n] = append(there[n], x)
				if _, known := out[x]; known || len(out) < maxSizes {
					out[x] = 0
				}
			}
		}
	}
	for size := range out { // order: each on its own
		for _, n := range q.s.Snap.NodeOrder {
			taken := int64(0)
			for _, x := range there[n] {
				taken += x / size
			}
			out[size] += max(0, rooms[n].At(d)/size-taken) // where more is than there is room for, it may stay
		}
	}
	q.steps((1 + len(out)) * (len(q.s.Snap.NodeOrder) + q.everyone().count) / gangsPerStep)
	if q.most.slack == nil {
		q.most.slack = map[slackOf]map[int64]int64{}
	}
	q.most.slack[key] = out
	return out
}

// placesOn returns for how many pods of a class, up to most, a node has places in a room. That their devices come together is
// not in it.
func (q *search) placesOn(c *cluster.Class, n cluster.NodeID, room cluster.Resources, most int) int {
	if !q.s.Placer.Allows(c, n) {
		return 0
	}
	return c.Requests.CountIn(room, most)
}

// rooms returns the most room there could be for the gang: O(nodes + pods), once for each kind of beneficiary.
func (q *search) rooms() []cluster.Resources {
	key := mostFor{}
	if q.cause == policy.Preempt {
		key = mostFor{leaf: q.g.Leaf}
		if l := q.everyone().byID[q.g.Leaf.ID]; l != nil {
			key.below = l.below(q.g.Priority)
		}
	}
	rooms := q.most.rooms[key]
	if rooms == nil {
		rooms = mostRoom(q.s, func(v *cluster.Gang) bool {
			return q.s.Rules.Yields(v) && (q.cause != policy.Preempt || v.Priority < q.g.Priority && v.Queue == q.g.Leaf.Name)
		})
		q.steps((len(q.s.Snap.NodeOrder) + q.everyone().count) / gangsPerStep)
		if q.most.rooms == nil {
			q.most.rooms = map[mostFor][]cluster.Resources{}
		}
		q.most.rooms[key] = rooms
	}
	return rooms
}

// mostRoom returns, by node, what would be there if all gangs went that may, and all promises were broken: never too little,
// whatever else the action decides.
func mostRoom(s *engine.Session, may func(*cluster.Gang) bool) []cluster.Resources {
	out := make([]cluster.Resources, s.Snap.MaxNodeID())
	for _, n := range s.Snap.NodeOrder {
		room := s.Ledger.Later(n).Clone()
		for _, id := range s.Snap.Node(n).Pods {
			if p := s.Snap.Pod(id); mayGo(s, p, may) {
				room.Add(freed(p))
			}
		}
		s.Ledger.EachPromise(n, func(_ cluster.GangID, r cluster.Resources) { room.Add(r) })
		out[n] = room
	}
	return out
}

// mayGo says whether a pod holds room that it would leave if all gangs went that may.
func mayGo(s *engine.Session, p *cluster.Pod, may func(*cluster.Gang) bool) bool {
	return p.Gang != cluster.None && p.Phase.Active() && may(s.Snap.Gang(p.Gang)) && s.Ledger.Fate(p) == ""
}

func (q *search) steps(n int) {
	for range n {
		q.s.Recorder.Step()
	}
}

// countAll asks the rules about queues and gangs of everybody, and returns how many they allow.
func (w *walk) countAll() int {
	n := 0
	look := func(l *leaf) {
		if w.cause == policy.Preempt && l.queue != w.g.Leaf {
			return
		}
		c := w.enter(l)
		if w.at[l] = c; !c.closed {
			n += w.siftAll(l)
		}
	}
	if w.cause == policy.Reclaim && w.queues.s.Rules.BySiblings(w.g) {
		w.canvass()
		w.spread()
		for _, b := range w.open {
			b.each(look)
		}
	} else {
		for _, b := range w.queues.top {
			b.each(look)
		}
	}
	w.finish()
	return n
}

package solver

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// most is the most room that nodes could have: what is free, and all that anybody holds there who may be a victim at all.
// Where that is too little, no search needs to be made. It is looked at once a search of the action has cost much in vain, as
// it costs about as much: many gangs that fail for the same want of room, and are not alike, then cost a look at the nodes
// each.
type most struct {
	wanted bool
	rooms  map[mostFor][]cluster.Resources // by node ID
}

// mostFor is for whom: by preemption, queue and priority decide who may be a victim.
type mostFor struct {
	leaf  *engine.QueueLedger
	below int // see leaf.below
}

// nodesPerStep is how many nodes that are looked at for it count as one step, gangsPerStep how many gangs or pods.
const (
	nodesPerStep = 64
	gangsPerStep = 8
)

// hopeless says whether the gang would not fit if everybody went of whom it is conceivable that they go, and if so what to tell
// it: the same rules about gangs and queues are asked as in a search, and nobody is evicted. Of a question that it cannot
// decide it says no.
func (q *search) hopeless() (engine.Attempt, bool) {
	if !q.most.wanted || q.right == engine.Consolidation || !q.s.CheckGates(q.g, q.request).Yes() || q.couldFit(q.rooms()) {
		return engine.Attempt{}, false
	}
	q.w = q.everyone().walk(q.right, q.g, q.request)
	v := engine.Verdict{Code: engine.No, Reason: engine.ReasonVictimsTooFew, Have: int64(q.w.countAll())}
	if v.Have == 0 {
		v.Reason = engine.ReasonNoVictims
	}
	q.s.Scenario(true)
	return engine.Attempt{Verdict: v, Barred: sorted(q.w.barred)}, true
}

// couldFit says whether the nodes would have places for each kind of pod, each kind for itself, with everybody gone, and the
// domains for those of each set that has to be in one.
func (q *search) couldFit(rooms []cluster.Resources) bool {
	q.steps(len(q.s.Snap.NodeOrder) / nodesPerStep)
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

// placesOn returns for how many pods of a class, up to most, a node has places in a room. That their devices come together is
// not in it.
func (q *search) placesOn(c *cluster.Class, n cluster.NodeID, room cluster.Resources, most int) int {
	if !q.s.Allows(c, n) {
		return 0
	}
	return c.Requests.CountIn(room, most)
}

// rooms returns the most room there could be for the gang: O(nodes + pods), once for each kind of taker.
func (q *search) rooms() []cluster.Resources {
	key := mostFor{}
	if q.right == engine.Preempt {
		key = mostFor{leaf: q.g.Leaf}
		if l := q.everyone().byID[q.g.Leaf.ID]; l != nil {
			key.below = l.below(q.g.Priority)
		}
	}
	rooms := q.most.rooms[key]
	if rooms == nil {
		rooms = mostRoom(q.s, func(v *cluster.Gang) bool {
			return q.s.Yields(v) && (q.right != engine.Preempt || v.Priority < q.g.Priority && v.Queue == q.g.Leaf.Name)
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
		room := s.Later(n).Clone()
		for _, id := range s.Snap.Node(n).Pods {
			if p := s.Snap.Pod(id); p.Gang != cluster.None && p.Phase.Active() && may(s.Snap.Gang(p.Gang)) && s.Fate(p) == "" {
				room.Add(freed(p))
			}
		}
		s.EachPromise(n, func(_ cluster.GangID, r cluster.Resources) { room.Add(r) })
		out[n] = room
	}
	return out
}

func (q *search) steps(n int) {
	for range n {
		q.s.Step()
	}
}

// countAll asks the rules about queues and gangs of everybody, and returns how many they allow.
func (w *walk) countAll() int {
	n := 0
	for _, b := range w.gs.all {
		if b.leaf == nil || w.right == engine.Preempt && b.queue != w.g.Leaf {
			continue
		}
		if c := w.enter(b.leaf); !c.closed {
			n += w.siftAll(b.leaf)
		}
	}
	w.finish()
	return n
}

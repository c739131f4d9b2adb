package solver

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// most is the most room that nodes could have: what is free, and all that anybody holds there who may be a victim at all.
// Where that is too little, no search needs to be made. It is looked at once a search of the action has cost much in vain, as
// it costs about as much: many gangs that fail for the same want of room, and are not alike, then cost a look at the nodes
// each. It holds until a decision is accepted.
type most struct {
	wanted bool
	rooms  map[mostFor][]cluster.Resources // by node ID
}

// mostFor is for whom: by preemption, queue and priority decide who may be a victim.
type mostFor struct {
	leaf     *engine.QueueLedger
	priority int32
}

func (m *most) forget() { *m = most{} }

// nodesPerStep is how many nodes that are looked at for it count as one step, gangsPerStep how many gangs or pods.
const (
	nodesPerStep = 64
	gangsPerStep = 8
)

// hopeless says whether the gang would not fit if everybody went of whom it is conceivable that they go, and if so what to tell
// it: the same rules about gangs and queues are asked as in a search, and nobody is evicted. Of a question that it cannot
// decide it says no.
func (q *search) hopeless() (engine.Attempt, bool) {
	if !q.most.wanted || q.right == engine.Consolidation || !q.s.CheckGates(q.g, q.request).Yes() || q.couldFit() {
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

// couldFit says whether the nodes would have places for each kind of pod, each kind for itself, with everybody gone.
func (q *search) couldFit() bool {
	rooms := q.mostRooms()
	q.steps(len(q.s.Snap.NodeOrder) / nodesPerStep)
	for i := 0; i < len(q.pods); {
		c := q.s.Snap.Pod(q.pods[i]).Class
		n := 1
		for i+n < len(q.pods) && q.s.Snap.Pod(q.pods[i+n]).Class == c {
			n++
		}
		i += n
		if !c.Share.None() {
			continue // whose devices come together is not in these sums
		}
		for _, id := range q.s.Snap.NodeOrder {
			if n <= 0 {
				break
			}
			if q.s.Allows(c, id) {
				n -= c.Requests.CountIn(rooms[id], n)
			}
		}
		if n > 0 {
			return false
		}
	}
	return true
}

// mostRooms sums up the most room there could be: O(nodes + pods), once for each kind of taker.
func (q *search) mostRooms() []cluster.Resources {
	key := mostFor{}
	if q.right == engine.Preempt {
		key = mostFor{q.g.Leaf, q.g.Priority}
	}
	if rooms := q.most.rooms[key]; rooms != nil {
		return rooms
	}
	snap := q.s.Snap
	rooms := make([]cluster.Resources, snap.MaxNodeID())
	for _, id := range snap.NodeOrder {
		n := snap.Node(id)
		room := q.s.Later(id).Clone()
		for _, pid := range n.Pods {
			p := snap.Pod(pid)
			if p.Gang == cluster.None || q.s.Fate(p) != "" {
				continue
			}
			v := snap.Gang(p.Gang)
			if !v.Preemptible || q.right == engine.Preempt && (v.Priority >= q.g.Priority || v.Queue != q.g.Leaf.Name) {
				continue
			}
			if room.Add(p.Class.Requests); !p.Class.Share.None() { // its going may make a GPU whole
				room[cluster.GPU] = max(room[cluster.GPU], n.Allocatable.At(cluster.GPU))
			}
		}
		rooms[id] = room
	}
	q.s.EachPromise(func(h *cluster.Hold, n cluster.NodeID) {
		if rooms[n].Add(h.Requests); !h.Share.None() {
			rooms[n][cluster.GPU] = max(rooms[n][cluster.GPU], snap.Node(n).Allocatable.At(cluster.GPU))
		}
	})
	q.steps((len(snap.NodeOrder) + q.everyone().count) / gangsPerStep)
	if q.most.rooms == nil {
		q.most.rooms = map[mostFor][]cluster.Resources{}
	}
	q.most.rooms[key] = rooms
	return rooms
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
	return n
}

package engine

import "github.com/muster-scheduler/muster/internal/cluster"

// Ledger is what is free, who holds what and who is promised what, as a run goes on: of nodes, of the devices that pods share, of
// queues and of gangs. Only Statements change it, and what they do they can undo. It knows no policy: it is told what fits, not
// what may be.
type Ledger struct {
	snap   *cluster.Snapshot
	points *points // orders of pods, sets and devices, and who follows what is done

	dims   int
	idle   []int64    // by node, dims each: free now, and not promised to a placement of this run
	later  []int64    // by node, dims each: free once all that is being released has gone, minus promises
	shared [][]device // by node; nil until first looked at
	queues queueLedger
	gangs  []*GangState // by gang ID, nil until first touched
	states []GangState  // for gangs that are touched next, and their sets
	sets   []setState
	where  map[cluster.PodID]decision

	holds   []heldRoom
	holders map[cluster.GangID][]int // indices of holds
	heldOn  map[cluster.NodeID][]int // indices of holds
	keeps   map[cluster.PodID]int    // which hold a pod that is tried goes for
	void    []string                 // IDs of holds that are worth nothing

	decisions int               // statements that became part of a plan, or gave up what was promised
	freed     int               // how often decisions gave room back: who has failed before may find some
	touched   []cluster.NodeID  // every node whose sums changed, in order: rankings catch up from here
	charged   []*QueueLedger    // every leaf whose shares changed, in order: orders of queues catch up from here
	total     cluster.Resources // TotalLater, when that much of touched had happened
	totalOf   int
}

// decision is where a pod of this run went.
type decision struct {
	node cluster.NodeID
	verb Verb
}

// newLedger opens a ledger on what a snapshot says: O(nodes + queues).
func newLedger(snap *cluster.Snapshot, ps *points, room *slabs) *Ledger {
	l := &Ledger{
		snap: snap, points: ps, dims: snap.Dims.Len(),
		where: map[cluster.PodID]decision{}, holders: map[cluster.GangID][]int{}, keeps: map[cluster.PodID]int{},
	}
	l.gangs = cleared(&room.gangs, snap.MaxGangID())
	l.idle = cleared(&room.idle, snap.MaxNodeID()*l.dims)
	l.later = cleared(&room.later, snap.MaxNodeID()*l.dims)
	l.shared = cleared(&room.shared, snap.MaxNodeID())
	for _, id := range snap.NodeOrder {
		snap.Node(id).Free(l.Idle(id), l.Later(id))
	}
	l.queues.build(snap)
	l.layHolds()
	return l
}

// Idle is what is free on a node now, after this run's placements. Callers must not write to it.
func (l *Ledger) Idle(n cluster.NodeID) cluster.Resources {
	return l.idle[int(n)*l.dims : int(n+1)*l.dims : int(n+1)*l.dims]
}

// Later is what will be free on a node once releases have happened, after this run's placements and nominations.
// Callers must not write to it.
func (l *Ledger) Later(n cluster.NodeID) cluster.Resources {
	return l.later[int(n)*l.dims : int(n+1)*l.dims : int(n+1)*l.dims]
}

// LeafOf returns what is charged for a gang, see [GangState.Leaf]; nil for nothing.
func (l *Ledger) LeafOf(g *cluster.Gang) *QueueLedger { return l.queues.giverFor(g) }

// Charged returns every leaf queue that was charged more or less since the run began, in order. It only grows: who keeps an order of queues catches up from where it was.
func (l *Ledger) Charged() []*QueueLedger { return l.charged }

// Decisions counts what has been decided in this run: as long as it is the same, the session is as it was, but for statements
// that are open.
func (l *Ledger) Decisions() int { return l.decisions }

// charge moves what a leaf and everything above it hold; see [QueueLedger.charge].
func (l *Ledger) charge(leaf *QueueLedger, r cluster.Resources, nonPreemptible, up bool) {
	leaf.charge(r, nonPreemptible, up)
	l.charged = append(l.charged, leaf)
}

// TotalLater sums what the nodes that take pods have, once all releases have happened: O(nodes) when something changed.
// Callers must not write to it.
func (l *Ledger) TotalLater() cluster.Resources {
	if l.total != nil && l.totalOf == len(l.touched) {
		return l.total
	}
	total := make(cluster.Resources, l.dims)
	for _, id := range l.snap.NodeOrder {
		if l.snap.Node(id).Problem == "" {
			for d, x := range l.Later(id) {
				total[d] += max(0, x)
			}
			total[cluster.GPU] += l.partsLater(id)
		}
	}
	l.total, l.totalOf = total, len(l.touched)
	return total
}

// Members calls f with the node of each pod below a set of a gang that holds room in the session, or was given some by it.
func (l *Ledger) Members(g *GangState, set int32, f func(cluster.NodeID)) {
	if !g.Rooted() {
		return
	}
	for _, id := range g.Pods {
		p := l.snap.Pod(id)
		if !p.Ours || p.Set == cluster.None || !g.below(p.Set, set) {
			continue
		}
		if d, ok := l.where[id]; ok {
			if d.verb != Evict {
				f(d.node)
			}
		} else if p.Phase.Active() && p.Node != cluster.None {
			f(p.Node)
		}
	}
}

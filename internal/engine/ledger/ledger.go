// Package ledger keeps what is free, who holds what and who is promised what, as a run of the engine goes on: of nodes, of the devices
// that pods share, of queues and of gangs.
//
//	Snapshot ──► New ──► Ledger ──Begin──► Statement: Place, Nominate, Evict, Spare, Move ──► Settle
//	                                                   └──► RollbackTo, Discard: as if nothing had been done
//
// Only Statements change a ledger, and every operation has its exact inverse. The package knows no policy: what is asked of orders,
// and who follows what is done, are Hooks.
package ledger

import "github.com/muster-scheduler/muster/internal/cluster"

// Ledger is the state of one run. Slices that it returns are its own and must not be written to. It is not safe for concurrent use.
type Ledger struct {
	snap  *cluster.Snapshot
	hooks Hooks

	dims   int
	idle   []int64    // by node, dims each: free now, and not promised to a placement of this run
	later  []int64    // by node, dims each: free once all that is being released has gone, minus promises
	shared [][]device // by node; nil until first looked at
	queues queueForest
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

	admissions admissions
}

// decision is where a pod of this run went.
type decision struct {
	node cluster.NodeID
	verb Verb
}

// Hooks are what a ledger asks, and who it tells, of policy: how pods, sets and devices are ordered, and who follows what is done. All
// are set.
type Hooks struct {
	ComparePods func(a, b *cluster.Pod) int                                                       // of one set: negative when a is placed before b
	CompareSets func(g *GangState, a, b int32) int                                                // below one parent: negative when a is filled before b
	ScoreDevice func(c *cluster.Class, n *cluster.Node, used, capacity cluster.DeviceUnits) int64 // larger is better
	Done        func(op Op)                                                                       // an operation has been done
	Undone      func(op Op)                                                                       // it is about to be undone
	Turned      func(h *cluster.Hold, open bool)                                                  // a promise was opened, or shut
}

// Slabs are the large arrays of a ledger, kept from run to run.
type Slabs struct {
	gangs       []*GangState
	idle, later []int64
	shared      [][]device
}

// New opens a ledger on what a snapshot says: O(nodes + queues). Nobody is asked and nobody told before Follow.
func New(snap *cluster.Snapshot, room *Slabs) *Ledger {
	l := &Ledger{
		snap: snap, dims: snap.Dims.Len(),
		where: map[cluster.PodID]decision{}, holders: map[cluster.GangID][]int{}, keeps: map[cluster.PodID]int{},
	}
	l.hooks = Hooks{
		ComparePods: func(_, _ *cluster.Pod) int { return 0 },
		CompareSets: func(_ *GangState, _, _ int32) int { return 0 },
		ScoreDevice: func(*cluster.Class, *cluster.Node, cluster.DeviceUnits, cluster.DeviceUnits) int64 { return 0 },
		Done:        func(Op) {}, Undone: func(Op) {}, Turned: func(*cluster.Hold, bool) {},
	}
	l.gangs = Cleared(&room.gangs, snap.MaxGangID())
	l.idle = Cleared(&room.idle, snap.MaxNodeID()*l.dims)
	l.later = Cleared(&room.later, snap.MaxNodeID()*l.dims)
	l.shared = Cleared(&room.shared, snap.MaxNodeID())
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

// Follow says whom the ledger asks and tells from now on.
func (l *Ledger) Follow(h Hooks) { l.hooks = h }

// LeafOf returns what is charged for a gang, see [GangState.Leaf]; nil for nothing.
func (l *Ledger) LeafOf(g *cluster.Gang) *QueueLedger { return l.queues.victimQueueFor(g) }

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

// Members calls f with the node of each pod below a set of a gang that holds room in the session, or was given some by it, in no order. It looks at
// the gang's pods only if some had room before, and else at those that were given some.
func (l *Ledger) Members(g *GangState, set int32, f func(cluster.NodeID)) {
	for i := range g.Sets {
		if of := &g.sets[i]; of.head > 0 && g.below(int32(i), set) {
			for _, id := range of.pods[:of.head] {
				f(l.where[id].node)
			}
		}
	}
	if !g.hadRoom {
		return
	}
	for _, id := range g.Pods {
		p := l.snap.Pod(id)
		if !p.Ours || !p.Phase.Active() || p.Set == cluster.None || !g.below(p.Set, set) {
			continue
		}
		if n := l.NodeOf(p); n != cluster.None {
			f(n)
		}
	}
}

// Touched returns every node whose sums changed since the run began, in order. It only grows: who keeps an order of nodes catches up
// from where it was.
func (l *Ledger) Touched() []cluster.NodeID { return l.touched }

// Freed counts how often decisions gave room back: as long as it is the same, who found none finds none.
func (l *Ledger) Freed() int { return l.freed }

// Voided returns the IDs of the promises that are worth nothing any more.
func (l *Ledger) Voided() []string { return l.void }

// Queue returns the ledger of a queue; nil for None.
func (l *Ledger) Queue(id cluster.QueueID) *QueueLedger { return l.queues.get(id) }

// MaxQueueID is the exclusive upper bound of the IDs of queues.
func (l *Ledger) MaxQueueID() int { return len(l.queues.byID) }

// Queues returns all sound queues, and what stands for others; parents before children.
func (l *Ledger) Queues() []*QueueLedger { return l.queues.order }

// Tops returns the queues without a parent.
func (l *Ledger) Tops() []*QueueLedger { return l.queues.tops }

// EachDevice calls f for the shared devices of a node as they stand: what is held of each now, and will be once releases have
// happened, in units of the node's devices.
func (l *Ledger) EachDevice(n cluster.NodeID, f func(group string, now, later cluster.DeviceUnits)) {
	for _, d := range l.devices(n) {
		f(d.group, d.now, d.later)
	}
}

// NodeOf returns where a pod is: the node it holds room on, or was placed, nominated or moved to by this run; None once it has been
// evicted.
func (l *Ledger) NodeOf(p *cluster.Pod) cluster.NodeID {
	if d, ok := l.where[p.ID]; ok {
		if d.verb == Evict {
			return cluster.None
		}
		return d.node
	}
	return p.Node
}

// StillFits says whether the room that an evicted pod had is still there, once releases have happened.
func (l *Ledger) StillFits(p *cluster.Pod) bool {
	return l.returns(p.Node, p.Class.Requests, p.Class.Share, p.Groups)
}

// Cleared returns n zeros in a buffer that is kept from run to run, and grows as needed.
func Cleared[T any](buffer *[]T, n int) []T {
	if cap(*buffer) < n {
		*buffer = make([]T, n, n+n/4)
	}
	*buffer = (*buffer)[:n]
	clear(*buffer)
	return *buffer
}

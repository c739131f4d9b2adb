package engine

import (
	"context"
	"iter"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Session is one run's overlay over a snapshot: what is free, who holds what, which gangs have what. Actions drive it;
// only Statements change it. It is not safe for concurrent use.
type Session struct {
	Snap *cluster.Snapshot

	ctx    context.Context
	engine *Engine
	points points
	view   *View
	emit   func(Plan)

	dims   int
	idle   []int64    // by node, dims each: free now, and not promised to a placement of this run
	later  []int64    // by node, dims each: free once all that is being released has gone, minus promises
	shared [][]device // by node; nil until first looked at
	rank   []int32    // by node ID: position in Snap.NodeOrder
	queues queueLedger
	gangs  []*GangState // by gang ID, nil until first touched
	states []GangState  // for gangs that are touched next, and their sets
	sets   []setState
	where  map[cluster.PodID]decision

	holds    []heldRoom
	holders  map[cluster.GangID][]int // indices of holds
	heldOn   map[cluster.NodeID][]int // indices of holds
	keeps    map[cluster.PodID]int    // which hold a pod that is tried goes for
	broken   map[cluster.PodID]string // promises to owners that evictions break
	takers   map[cluster.Key]bool     // gangs for which others were displaced, or must not be; filled with aged
	aged     []int64                  // the moments that a gang may have waited at or not, sorted; nil until asked for
	void     []string                 // IDs of holds that are worth nothing
	promised map[string]struct{}      // IDs of holds that this run promises anew
	accepted int                      // statements that became part of a plan, or gave up what was promised
	moving   bool                     // pods that are placed are evicted ones, who go elsewhere or stay
	promise  bool                     // what-ifs of the solver: nobody is placed before all is released

	touched  []cluster.NodeID  // every node whose ledger changed, in order: rankings catch up from here
	charged  []*QueueLedger    // every leaf whose shares changed, in order: orders of queues catch up from here
	total    cluster.Resources // TotalLater, when that much of touched had happened
	totalOf  int
	rankings map[rankingKey]*ranking
	rated    int     // nodes that were, see Rated
	views    []*view // the first is all nodes by name
	nested   map[viewKey]*view
	failed   map[string]*Diagnosis
	tallies  map[tallyKey]Tally
	excess   map[cluster.GangID]bool // see Yields
	gateMemo map[uint64]Verdict
	refused  []*Verdict      // room for checkStatics
	changed  []*cluster.Node // room for maskOf
	masked   *cluster.Class
	mask     *mask // of masked, who is often asked about node by node
	said     sayings

	plan    Plan
	bundles map[cluster.GangID]int
	trace   traceBuilder
}

// decision is where a pod of this run went.
type decision struct {
	node cluster.NodeID
	verb Verb
}

// newSession lays an empty overlay over snap: O(nodes + queues).
func newSession(ctx context.Context, e *Engine, snap *cluster.Snapshot, emit func(Plan)) *Session {
	s := &Session{
		Snap: snap, ctx: ctx, engine: e, emit: emit, dims: snap.Dims.Len(),
		where: map[cluster.PodID]decision{}, promised: map[string]struct{}{}, broken: map[cluster.PodID]string{}, takers: map[cluster.Key]bool{},
		holders: map[cluster.GangID][]int{}, keeps: map[cluster.PodID]int{},
		rankings: map[rankingKey]*ranking{}, nested: map[viewKey]*view{}, failed: map[string]*Diagnosis{}, tallies: map[tallyKey]Tally{}, gateMemo: map[uint64]Verdict{},
	}
	s.gangs = cleared(&e.slabs.gangs, snap.MaxGangID())
	s.idle = cleared(&e.slabs.idle, snap.MaxNodeID()*s.dims)
	s.later = cleared(&e.slabs.later, snap.MaxNodeID()*s.dims)
	s.shared = cleared(&e.slabs.shared, snap.MaxNodeID())
	s.rank = cleared(&e.slabs.rank, snap.MaxNodeID())
	for i, id := range snap.NodeOrder {
		n := snap.Node(id)
		s.rank[id] = int32(i)
		n.Free(s.Idle(id), s.Later(id))
	}
	s.queues.build(snap)
	s.layHolds()
	s.view = &View{s: s}
	s.trace.init(snap)
	e.statics.open(snap)
	s.points = e.open(s.view)
	s.findExcess()
	return s
}

// Idle is what is free on a node now, after this run's placements. Callers must not write to it.
func (s *Session) Idle(n cluster.NodeID) cluster.Resources {
	return s.idle[int(n)*s.dims : int(n+1)*s.dims : int(n+1)*s.dims]
}

// Later is what will be free on a node once releases have happened, after this run's placements and nominations.
// Callers must not write to it.
func (s *Session) Later(n cluster.NodeID) cluster.Resources {
	return s.later[int(n)*s.dims : int(n+1)*s.dims : int(n+1)*s.dims]
}

// LeafOf returns what is charged for a gang, see [GangState.Leaf]; nil for nothing.
func (s *Session) LeafOf(g *cluster.Gang) *QueueLedger { return s.queues.giverFor(g) }

// Charged returns every leaf queue that was charged more or less since the run began, in order. It only grows: who keeps an order of queues catches up from where it was.
func (s *Session) Charged() []*QueueLedger { return s.charged }

// Decisions counts what has been decided in this run: as long as it is the same, the session is as it was, but for statements
// that are open.
func (s *Session) Decisions() int { return s.accepted }

// charge moves what a leaf and everything above it hold; see [QueueLedger.charge].
func (s *Session) charge(leaf *QueueLedger, r cluster.Resources, nonPreemptible, up bool) {
	leaf.charge(r, nonPreemptible, up)
	s.charged = append(s.charged, leaf)
}

// Aborted says whether the caller gave up on the run; actions return as soon as they see it.
func (s *Session) Aborted() bool { return s.ctx.Err() != nil }

// View is the read-only face of a session. Slices it returns are the session's own and must not be written to.
type View struct{ s *Session }

// Snapshot is what the run decides on.
func (v *View) Snapshot() *cluster.Snapshot { return v.s.Snap }

// Step counts one step of what a plugin searches; see [Session.Step].
func (v *View) Step() { v.s.Step() }

// Idle is Session.Idle.
func (v *View) Idle(n cluster.NodeID) cluster.Resources { return v.s.Idle(n) }

// Later is Session.Later.
func (v *View) Later(n cluster.NodeID) cluster.Resources { return v.s.Later(n) }

// FitsIdle is Session.FitsIdle.
func (v *View) FitsIdle(c *cluster.Class, n cluster.NodeID) bool { return v.s.FitsIdle(c, n) }

// FitsLater is Session.FitsLater.
func (v *View) FitsLater(c *cluster.Class, n cluster.NodeID) bool { return v.s.FitsLater(c, n) }

// EachDevice calls f for the shared devices of a node as they stand: what is held of each now, and will be once releases
// have happened, in units of the node's devices.
func (v *View) EachDevice(n cluster.NodeID, f func(group string, now, later int64)) {
	for _, d := range v.s.devices(n) {
		f(d.group, d.now, d.later)
	}
}

// NodeOf returns where a pod is in the session: the node it holds room on, or was placed, nominated or moved to by this
// run; None once it has been evicted.
func (v *View) NodeOf(p *cluster.Pod) cluster.NodeID {
	if d, ok := v.s.where[p.ID]; ok {
		if d.verb == Evict {
			return cluster.None
		}
		return d.node
	}
	return p.Node
}

// EachHold calls f for every promise of room that counts: open ones are free for whom they are promised to, just now.
func (v *View) EachHold(f func(h *cluster.Hold, open bool)) {
	for i := range v.s.holds {
		f(&v.s.holds[i].Hold, v.s.holds[i].open)
	}
}

// Held yields the promises of room on a node that stand: nobody has been given their room in this run.
func (v *View) Held(n cluster.NodeID) iter.Seq[*cluster.Hold] {
	return func(yield func(*cluster.Hold) bool) {
		for _, k := range v.s.heldOn[n] {
			if h := &v.s.holds[k]; !h.open && !yield(&h.Hold) {
				return
			}
		}
	}
}

// Queue returns the live ledger of a queue; nil for None.
func (v *View) Queue(id cluster.QueueID) *QueueLedger { return v.s.queues.get(id) }

// MaxQueueID is the exclusive upper bound of the IDs of ledgers.
func (v *View) MaxQueueID() int { return len(v.s.queues.byID) }

// Queues returns the live ledgers of all sound queues, and of what stands for others; parents before children.
func (v *View) Queues() []*QueueLedger { return v.s.queues.order }

// slabs are the large arrays of a session, kept from run to run: a cluster that changes a little decides a hundred times
// a second, and they would be most of its garbage.
type slabs struct {
	gangs       []*GangState
	idle, later []int64
	shared      [][]device
	rank        []int32
	queues      []queueNode // of the running action
	places      []int32     // by queue ID: a guess at its place among its siblings, which is only where sorting begins
}

// cleared returns n zeros in the buffer, which grows as needed.
func cleared[T any](buffer *[]T, n int) []T {
	if cap(*buffer) < n {
		*buffer = make([]T, n, n+n/4)
	}
	*buffer = (*buffer)[:n]
	clear(*buffer)
	return *buffer
}

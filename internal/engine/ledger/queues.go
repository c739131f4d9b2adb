package ledger

import (
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// QueueLedger is a queue in a session: the object, its place in the tree, and what its subtree holds as placements go
// on. The vectors have the length of the dimension table and change in place.
type QueueLedger struct {
	*cluster.Queue
	Parent   *QueueLedger // nil at the top
	Children []*QueueLedger
	Depth    int
	// Of the whole subtree, children included.
	Allocated               cluster.Resources
	AllocatedNonPreemptible cluster.Resources
	Requested               cluster.Resources
	// Stuck is what pods hold besides that are being deleted and not known to go, see [cluster.Queue]. Holding is all that pods
	// hold now, leaving or not, with what this run places at once: nobody has gone before he is gone, and what is promised is
	// held by nobody yet.
	Stuck                 cluster.Resources
	StuckNonPreemptible   cluster.Resources
	Holding               cluster.Resources
	HoldingNonPreemptible cluster.Resources
	// Lost says that it is no queue to ask in: it stands for what pods hold of a queue that was deleted, became a parent, or lost
	// its way to the top. Nothing of it is anybody's right.
	Lost bool
	// Charges counts how often what it holds has changed in this run.
	Charges int
}

// Lack is why a gang has no queue to ask in. The zero Lack says that it has one.
type Lack struct {
	Kind LackKind
	Why  string // of LackTree: the object to mend; of LackOpen: why it is closed
}

// LackKind says what is wrong with the queue that a gang names.
type LackKind uint8

// The kinds of lacks.
const (
	LackNothing LackKind = iota
	LackQueue            // there is no such queue
	LackTree             // its parents do not lead to the top
	LackLeaf             // it has children
	LackOpen             // it is closed
)

// queueForest is the queue forest of a run.
type queueForest struct {
	byID   []*QueueLedger
	order  []*QueueLedger // parents before children
	tops   []*QueueLedger
	broken map[cluster.QueueID]string // why a queue has no place in the forest
	byName map[string]*QueueLedger
	lost   map[string]*QueueLedger // by the name of the queue that they stand for
}

// build hangs the queues into a forest: O(queues × depth). A queue whose parents do not lead to the top is broken, and
// says which object to mend.
func (l *queueForest) build(snap *cluster.Snapshot) {
	dims := snap.Dims.Len()
	l.byID = make([]*QueueLedger, snap.MaxQueueID())
	l.byName = make(map[string]*QueueLedger, len(snap.QueueOrder))
	l.order = make([]*QueueLedger, 0, len(snap.QueueOrder))
	l.broken = map[cluster.QueueID]string{}
	all := make([]*QueueLedger, 0, len(snap.QueueOrder))
	ledgers := make([]QueueLedger, len(snap.QueueOrder))
	room := make(cluster.Resources, vectors*dims*len(ledgers)) // one piece for all
	for i, id := range snap.QueueOrder {
		n := &ledgers[i]
		room = n.fill(snap.Queue(id), dims, room)
		l.byID[id], l.byName[n.Name] = n, n
		all = append(all, n)
	}
	for _, n := range all {
		if n.Queue.Parent != "" {
			n.Parent = l.byName[n.Queue.Parent]
		}
	}
	for _, n := range all {
		at, steps := n, 0
		for at.Parent != nil && steps <= len(all) {
			at, steps = at.Parent, steps+1
		}
		switch {
		case steps > len(all):
			l.broken[n.ID] = "its parents form a cycle"
		case at.Queue.Parent != "":
			l.broken[n.ID] = "parent queue \"" + at.Queue.Parent + "\" does not exist"
		default:
			n.Depth = steps
		}
	}
	all = l.stands(snap, all, dims)
	for _, n := range all {
		if l.broken[n.ID] != "" {
			continue
		}
		if n.Parent == nil {
			l.tops = append(l.tops, n)
		} else {
			n.Parent.Children = append(n.Parent.Children, n)
		}
	}
	var walk func(ns []*QueueLedger)
	walk = func(ns []*QueueLedger) {
		for _, n := range ns {
			l.order = append(l.order, n)
			walk(n.Children)
		}
	}
	walk(l.tops)
	for i := len(l.order) - 1; i >= 0; i-- {
		if n := l.order[i]; n.Parent != nil {
			n.Parent.Allocated.AddCapped(n.Allocated)
			n.Parent.AllocatedNonPreemptible.AddCapped(n.AllocatedNonPreemptible)
			n.Parent.Requested.AddCapped(n.Requested)
			n.Parent.Stuck.AddCapped(n.Stuck)
			n.Parent.StuckNonPreemptible.AddCapped(n.StuckNonPreemptible)
			n.Parent.Holding.AddCapped(n.Holding)
			n.Parent.HoldingNonPreemptible.AddCapped(n.HoldingNonPreemptible)
		}
	}
}

// vectors is how many a ledger has.
const vectors = 7

// fill makes q what a queue holds as a run begins, without what is below it. Its vectors are cut from room, and the rest is
// returned.
func (q *QueueLedger) fill(of *cluster.Queue, dims int, room cluster.Resources) cluster.Resources {
	full := func(r cluster.Resources) cluster.Resources {
		out := room[:dims:dims]
		room = room[dims:]
		copy(out, r)
		return out
	}
	*q = QueueLedger{
		Queue: of, Allocated: full(of.Allocated), Requested: full(of.Requested),
		AllocatedNonPreemptible: full(of.AllocatedNonPreemptible),
		Stuck:                   full(of.Stuck), StuckNonPreemptible: full(of.StuckNonPreemptible),
		Holding: full(of.Allocated), HoldingNonPreemptible: full(of.AllocatedNonPreemptible),
	}
	q.Holding.AddCapped(of.Leaving)
	q.HoldingNonPreemptible.AddCapped(of.LeavingNonPreemptible)
	return room
}

func newQueue(q *cluster.Queue, dims int) *QueueLedger {
	n := &QueueLedger{}
	n.fill(q, dims, make(cluster.Resources, vectors*dims))
	return n
}

// stands appends a leaf for each queue that pods hold room of and that is no leaf: it was deleted, has become a parent, or its
// parents do not lead to the top. Who holds room can be made to give it, wherever its queue has gone; so there it has what they
// hold, no quota, and may have nothing. That of a parent is below it, so that what is above goes on counting it.
func (l *queueForest) stands(snap *cluster.Snapshot, all []*QueueLedger, dims int) []*QueueLedger {
	l.lost = map[string]*QueueLedger{}
	parents := map[string]bool{}
	for _, n := range all {
		if n.Parent != nil {
			parents[n.Parent.Name] = true
		}
	}
	add := func(q *cluster.Queue, above *QueueLedger) {
		own := *q
		own.ID, own.Quota, own.Limit, own.Weight, own.Usage = cluster.QueueID(len(l.byID)), nil, make(cluster.Resources, cluster.Slots), nil, nil
		own.PreemptMinRuntime, own.ReclaimMinRuntime = cluster.Maybe[time.Duration]{}, cluster.Maybe[time.Duration]{}
		n := newQueue(&own, dims)
		if n.Parent, n.Lost = above, true; above != nil {
			n.Depth = above.Depth + 1
			rest := *q
			rest.Allocated, rest.AllocatedNonPreemptible, rest.Requested = nil, nil, nil
			rest.Leaving, rest.LeavingNonPreemptible, rest.Stuck, rest.StuckNonPreemptible = nil, nil, nil, nil
			fresh := newQueue(&rest, dims)
			fresh.Parent, fresh.Depth = above.Parent, above.Depth
			*above = *fresh
		}
		l.byID, l.lost[n.Name] = append(l.byID, n), n
		all = append(all, n)
	}
	holds := func(q *cluster.Queue) bool {
		return slices.ContainsFunc(q.Allocated, func(x int64) bool { return x > 0 })
	}
	for _, n := range slices.Clip(all) {
		switch {
		case !holds(n.Queue):
		case l.broken[n.ID] != "":
			add(n.Queue, nil)
		case parents[n.Name]:
			add(n.Queue, n)
		}
	}
	for _, q := range snap.Lost {
		add(q, nil)
	}
	return all
}

func (l *queueForest) get(id cluster.QueueID) *QueueLedger {
	if id < 0 || int(id) >= len(l.byID) {
		return nil
	}
	return l.byID[id]
}

// charge moves what the queue and everything above it hold by r, up or down.
func (q *QueueLedger) charge(r cluster.Resources, nonPreemptible bool, up bool) {
	for n := q; n != nil; n = n.Parent {
		n.Charges++
		moveSum(&n.Allocated, &n.AllocatedNonPreemptible, r, nonPreemptible, up)
	}
}

// hold moves what pods of the queue and of everything above it hold now by r, up or down.
func (q *QueueLedger) hold(r cluster.Resources, nonPreemptible bool, up bool) {
	for n := q; n != nil; n = n.Parent {
		moveSum(&n.Holding, &n.HoldingNonPreemptible, r, nonPreemptible, up)
	}
}

// moveSum moves a sum by r, up or down, and the part of it that is non-preemptible where r is.
func moveSum(all, part *cluster.Resources, r cluster.Resources, nonPreemptible, up bool) {
	by := (*cluster.Resources).Add
	if !up {
		by = (*cluster.Resources).Sub
	}
	if by(all, r); nonPreemptible {
		by(part, r)
	}
}

// leafFor finds the leaf queue a gang belongs to, or says why it has none to ask in; what pods hold of a closed one is held of it all the same.
func (l *queueForest) leafFor(g *cluster.Gang) (*QueueLedger, Lack) {
	q := l.byName[g.Queue]
	switch {
	case q == nil:
		return nil, Lack{Kind: LackQueue}
	case l.broken[q.ID] != "":
		return nil, Lack{Kind: LackTree, Why: l.broken[q.ID]}
	case len(q.Children) > 0:
		return nil, Lack{Kind: LackLeaf}
	case q.Closed != "":
		return q, Lack{Kind: LackOpen, Why: q.Closed}
	}
	return q, Lack{}
}

// victimQueueFor is leafFor of what a gang holds: of a queue that is no leaf, what stands for it.
func (l *queueForest) victimQueueFor(g *cluster.Gang) *QueueLedger {
	if leaf, _ := l.leafFor(g); leaf != nil {
		return leaf
	}
	return l.lost[g.Queue]
}

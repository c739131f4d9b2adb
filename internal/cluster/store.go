package cluster

import (
	"maps"
	"reflect"
	"slices"
	"sort"
	"strings"
	"time"
)

// Store is the single-writer state of the cluster. Create it with NewStore, feed it with Apply, take Snapshots.
type Store struct {
	opts  Options
	epoch uint64 // grows with each Snapshot: objects of an older epoch are shared and must be copied before a write
	gen   uint64
	sgen  uint64

	dims   Dims
	nodes  table[Node]
	pods   table[Pod]
	gangs  table[Gang]
	queues table[Queue]

	nodeIDs  map[string]NodeID
	podIDs   map[string]PodID // by UID
	gangIDs  map[Key]GangID
	queueIDs map[string]QueueID

	unsized        bool        // leastUnits is to be found anew
	leastUnits     DeviceUnits // see Snapshot.LeastDeviceUnits
	byName         []NodeID    // nodes by name; replaced, never edited; stale while unsorted
	queueNames     []QueueID
	unsorted       bool
	unsortedQueues bool

	strayPods map[string]map[PodID]struct{} // pods on a node name we do not know
	lostPods  map[Key]map[PodID]struct{}    // pods of a gang that is not there, or not in the queue that is charged
	remnants  []GangID                      // see Charged
	tree      []Set                         // see plant
	accounts  map[string]*account           // by queue name, whether or not the queue exists
	dirty     map[string]struct{}           // accounts changed since the last snapshot
	gone      map[string]*Queue             // see Snapshot.Lost

	classes    *interner
	demands    demands
	pending    []uint64
	partial    []uint64
	odd        []uint64
	astray     []uint64 // see Snapshot.Astray
	releasing  map[PodID]struct{}
	assumed    map[PodID]struct{}
	objects    map[ObjectKind]map[string]any
	shared     map[ObjectKind]bool // the kind's map is referred to by a snapshot
	antiTerm   int
	preferring int
	// legacySlices is how many pods have slices by annotation.
	legacySlices int
	postponed    map[PodID]struct{}
	evicting     map[PodID]struct{}          // evictions of ours that have not shown yet
	answers      map[string]RememberedAnswer // by question
	holds        map[string]Hold             // by Hold.ID
	shares       map[string]noted            // fair shares by queue name
	disturbed    bool                        // a pod has been evicted by us, ever
	frozen       map[Frozen]Instant          // until when
	usage        map[string]Resources
	served       map[string]Instant // Queue.Served by queue name

	topologies       map[string]*Topology
	topologiesShared bool // a snapshot refers to the map

	now    Instant // of the last snapshot
	news   Instant // see Snapshot.News
	origin *Origin
}

// Options are a Store's fixed settings.
type Options struct {
	// StuckAfter is how long after the end of its grace a pod that is still there stops being counted as leaving;
	// 0 means never. One whose grace ends later than any promise stands is not counted as leaving before that,
	// unless it is we who evicted it; see FarAhead.
	StuckAfter time.Duration
	// DefaultQueue is the queue that is charged for pods of ours that hold room for which nobody else can be charged; "" for
	// none.
	DefaultQueue string
	// Revisits says that moments are looked at in any order, as what-ifs do: an earlier one is no clock that was set back.
	Revisits bool
}

// account sums what the gangs of one queue name hold and ask for, exactly, whatever that is.
type account struct {
	allocated, nonPreemptible, requested sum
	leaving, stuck                       departing
	memory                               MiB // GPU memory in requested that is of no known node
	pods                                 int
}

// departing sums what pods that are being deleted hold, and the part of it that is charged as non-preemptible.
type departing struct{ all, nonPreemptible sum }

// move adds what the pod is charged to a sum of the account, or takes it away.
func (a *account) move(sum *sum, p *Pod, by int) {
	if by > 0 {
		sum.add(p.Charge)
	} else {
		sum.sub(p.Charge)
	}
	if sh := p.Class.Share; sum == &a.requested && p.Node == None && sh.Portion == 0 {
		a.memory += MiB(by) * min(MiB(sh.Devices)*min(sh.MemoryMiB, maxDeviceUnits/1024), maxDeviceUnits)
	}
}

// move adds what the pod is charged, or takes it away.
func (d *departing) move(a *account, p *Pod, fixed bool, by int) {
	a.move(&d.all, p, by)
	if fixed {
		a.move(&d.nonPreemptible, p, by)
	}
}

// assumption is a decision of ours about a pod that the API server has not confirmed yet.
type assumption struct {
	node   string
	groups []string
	zones  []ZoneShare
	until  Instant
	claims []ClaimAllocation
}

// NewStore returns an empty store.
func NewStore(o Options) *Store {
	return &Store{
		opts: o, epoch: 1, dims: BaseDims(),
		nodeIDs: map[string]NodeID{}, podIDs: map[string]PodID{}, gangIDs: map[Key]GangID{}, queueIDs: map[string]QueueID{},
		strayPods: map[string]map[PodID]struct{}{}, lostPods: map[Key]map[PodID]struct{}{},
		accounts: map[string]*account{}, dirty: map[string]struct{}{}, gone: map[string]*Queue{},
		evicting: map[PodID]struct{}{}, holds: map[string]Hold{}, answers: map[string]RememberedAnswer{}, shares: map[string]noted{}, served: map[string]Instant{},
		classes: newInterner(), demands: demands{kinds: map[string]*Demand{}}, postponed: map[PodID]struct{}{}, origin: &Origin{}, releasing: map[PodID]struct{}{}, assumed: map[PodID]struct{}{},
		objects: map[ObjectKind]map[string]any{}, shared: map[ObjectKind]bool{}, topologies: map[string]*Topology{},
	}
}

// Apply takes events in and reports whether anything changed. It costs what the event touches.
func (s *Store) Apply(events ...Event) bool {
	changed := false
	for _, e := range events {
		if e.apply(s) {
			s.gen++
			changed = true
		}
	}
	return changed
}

// Generation grows with every change.
func (s *Store) Generation() uint64 { return s.gen }

// Snapshot returns the cluster as of now. If now is earlier than the last time, by more than a second, the
// clock has been set back, and what the Store remembers goes back with it. Assumptions that expired by now are dropped first, and
// pods stuck in deletion are marked. It costs the page directories and what changed since the last one.
func (s *Store) Snapshot(now Instant) *Snapshot {
	s.advance(now)
	s.sweep()
	s.sortNodes()
	s.sortQueues()
	s.sizeDevices()
	for name := range s.dirty { // order: each account is written to its own queue
		a := s.accounts[name]
		delete(s.gone, name)
		if id, ok := s.queueIDs[name]; ok {
			if a == nil {
				a = &account{}
			}
			q := s.queue(id)
			q.Served = s.served[name]
			s.tell(q, a)
		} else if a == nil { // whoever names it is no queue's
			delete(s.served, name)
		} else if slices.ContainsFunc(a.allocated.read(nil), func(x int64) bool { return x > 0 }) {
			q := &Queue{ID: None, QueueState: QueueState{Name: name}}
			s.tell(q, a)
			s.gone[name] = q
		}
	}
	clear(s.dirty)
	snap := &Snapshot{
		Now: now, Generation: s.gen, StaticGen: s.sgen, Dims: s.dims,
		LeastDeviceUnits: s.leastUnits, NodeOrder: s.byName, QueueOrder: s.queueNames, Lost: slices.SortedFunc(maps.Values(s.gone), func(a, b *Queue) int { return strings.Compare(a.Name, b.Name) }), Origin: s.origin,
		nodes: s.nodes.freeze(), pods: s.pods.freeze(), gangs: s.gangs.freeze(), queues: s.queues.freeze(),
		pending: slices.Clone(s.pending), partial: slices.Clone(s.partial), odd: slices.Clone(s.odd), astray: slices.Clone(s.astray), objects: maps.Clone(s.objects), answers: maps.Clone(s.answers),
		antiTerm: s.antiTerm, preferring: s.preferring, legacySlices: s.legacySlices, demands: s.demands.most(), Holds: s.sortedHolds(), frozen: s.frozen, News: s.news, topologies: s.topologies, keys: &gangKeys{},
	}
	s.topologiesShared = true
	for k := range s.objects { // order: marks only
		s.shared[k] = true
	}
	s.epoch++
	return snap
}

// HasNode says whether a node of the name is known.
func (s *Store) HasNode(name string) bool {
	_, ok := s.nodeIDs[name]
	return ok
}

// GangID is the ID of a gang in the latest snapshot, as long as nothing was applied since.
func (s *Store) GangID(k Key) (GangID, bool) {
	id, ok := s.gangIDs[k]
	return id, ok
}

// tell writes an account to its queue.
func (s *Store) tell(q *Queue, a *account) {
	q.Allocated, q.AllocatedNonPreemptible, q.Requested = a.allocated.read(nil), a.nonPreemptible.read(nil), a.requested.read(nil)
	q.Leaving, q.LeavingNonPreemptible = a.leaving.all.read(nil), a.leaving.nonPreemptible.read(nil)
	q.Stuck, q.StuckNonPreemptible = a.stuck.all.read(nil), a.stuck.nonPreemptible.read(nil)
	if a.memory > 0 && s.leastUnits > 0 {
		mib, each := int64(a.memory), int64(s.leastUnits) // a unit is a MiB where the memory is known
		q.Requested.Set(GPU, capped(q.Requested.At(GPU), min(mib/each, MaxQuantity)*Whole+mib%each*Whole/each))
	}
}

// advance lets time pass: expired assumptions are forgotten, stuck pods marked. Time that went back takes along what is
// remembered.
func (s *Store) advance(now Instant) {
	back := s.now.Sub(now)
	s.now = now
	if back > Skew/60 && !s.opts.Revisits {
		s.rewind(back)
	}
	for id := range s.assumed { // order: each pod on its own
		if p := s.pods.get(int32(id)); !p.assumed.until.After(now) {
			s.Forget(p.UID)
		}
	}
	for id := range s.evicting { // order: each pod on its own
		if p := s.pods.get(int32(id)); !p.evicting.After(now) {
			s.Spare(p.UID)
		}
	}
	s.pruneHolds(now)
	for q, r := range s.answers { // order: each on its own
		if !r.Until.After(now) {
			delete(s.answers, q)
		}
	}
	s.pruneFrozen(now)
	for id := range s.postponed { // order: each pod on its own
		if p := s.pods.get(int32(id)); !p.NotBefore.After(now) {
			delete(s.postponed, id)
			s.gen++
		}
	}
	if s.opts.StuckAfter > 0 {
		for id := range s.releasing { // order: each pod on its own
			p := s.pods.get(int32(id))
			if phase := s.leaves(p); phase != p.Phase {
				s.detach(p)
				p = s.pod(id)
				p.Phase = phase
				s.attach(p)
				s.gen++
			}
		}
	}
}

// FarAhead is how long from now what comes back is still room to wait for: as long as a promise of it stands.
const FarAhead = 10 * time.Minute

// leaves returns the phase of a pod that is being deleted, as of now: it is stuck when it should have gone long ago, and as
// long as it need not go for long, whoever deleted it having given it such a grace. What we evict ourselves was promised to
// somebody, and its grace was ours to choose.
func (s *Store) leaves(p *Pod) Phase {
	switch {
	case p.goneBy.IsZero():
		return p.Phase
	case s.now.Sub(p.goneBy) > s.opts.StuckAfter, p.goneBy.Sub(s.now) > FarAhead && !p.sent:
		return StuckReleasing
	}
	return p.PodState.Phase
}

// sizeDevices finds the least GPU memory of any node after nodes have changed, and what queues ask for with it.
func (s *Store) sizeDevices() {
	if !s.unsized {
		return
	}
	s.unsized = false
	least := DeviceUnits(0)
	for _, id := range s.byName {
		if n := s.nodes.get(int32(id)); n.GPUMemoryMiB >= 100 && (least == 0 || n.DeviceUnits() < least) {
			least = n.DeviceUnits()
		}
	}
	if least == s.leastUnits {
		return
	}
	s.leastUnits = least
	for name, a := range s.accounts { // order: a set
		if a.memory > 0 {
			s.dirty[name] = struct{}{}
		}
	}
}

// Assume records our decision that a pending pod goes to a node, and to the shared devices of these groups there, until
// it is confirmed by an event, forgotten, or expired. It reports whether the pod was there and pending.
func (s *Store) Assume(uid, node string, groups []string, until Instant) bool {
	id, ok := s.podIDs[uid]
	if !ok || s.pods.get(int32(id)).Phase != Pending {
		return false
	}
	s.detach(s.pods.get(int32(id)))
	p := s.pod(id)
	p.assumed = &assumption{node: node, groups: groups, until: until}
	s.assumed[id] = struct{}{}
	p.Phase, p.NodeName, p.Held = Binding, node, s.now
	s.attach(p)
	if p.Gang != None {
		s.serve(s.gangs.get(int32(p.Gang)).Queue, s.now)
	}
	s.gen++
	return true
}

// serve notes that a queue was given room.
func (s *Store) serve(queue string, at Instant) {
	if at.After(s.served[queue]) {
		s.served[queue] = at
		s.dirty[queue] = struct{}{}
	}
}

// Forget withdraws an assumption: the pod is what the API server last said. It reports whether there was one.
func (s *Store) Forget(uid string) bool {
	id, ok := s.podIDs[uid]
	if !ok || s.pods.get(int32(id)).assumed == nil {
		return false
	}
	s.detach(s.pods.get(int32(id)))
	p := s.pod(id)
	p.assumed = nil
	delete(s.assumed, id)
	p.Phase, p.NodeName, p.Allocations = p.PodState.Phase, p.PodState.NodeName, p.PodState.Allocations
	s.attach(p)
	s.gen++
	return true
}

// Postpone asks that a pod not be placed before until: its last bind failed, and trying it again at
// once would starve others. It reports whether the pod is known.
func (s *Store) Postpone(uid string, until Instant) bool {
	id, ok := s.podIDs[uid]
	if !ok {
		return false
	}
	s.pod(id).NotBefore = until
	s.postponed[id] = struct{}{}
	s.gen++
	return true
}

// NextTimer returns when the passing of time alone will next change the state (an assumption's expiry, the end of
// a postponement, a pod becoming stuck), or Forever.
func (s *Store) NextTimer() Instant {
	next := s.nextNote()
	for id := range s.assumed { // order: minimum
		next = Earliest(next, s.pods.get(int32(id)).assumed.until)
	}
	for id := range s.evicting { // order: minimum
		next = Earliest(next, s.pods.get(int32(id)).evicting)
	}
	for _, h := range s.holds { // order: minimum
		next = Earliest(next, h.Until)
	}
	for _, until := range s.frozen { // order: minimum
		next = Earliest(next, until)
	}
	for id := range s.postponed { // order: minimum
		next = Earliest(next, s.pods.get(int32(id)).NotBefore)
	}
	if s.opts.StuckAfter > 0 {
		for id := range s.releasing { // order: minimum
			switch p := s.pods.get(int32(id)); {
			case p.goneBy.IsZero():
			case p.Phase == Releasing:
				next = Earliest(next, p.goneBy.Add(s.opts.StuckAfter+1))
			case p.goneBy.Sub(s.now) > FarAhead:
				next = Earliest(next, p.goneBy.Add(-FarAhead))
			}
		}
	}
	return next
}

// Fork returns a Store that starts as the snapshot was and goes its own way: the what-if of explanations and
// simulators. Assumptions of the original appear in it as observed facts.
func Fork(snap *Snapshot, o Options) *Store {
	return ForkWithout(snap, o, func(*Pod) bool { return false })
}

// ForkWithout is [Fork] without the pods for which absent is true, as if they had never been.
func ForkWithout(snap *Snapshot, o Options, absent func(*Pod) bool) *Store {
	s := NewStore(o)
	s.gen, s.sgen, s.dims = snap.Generation, snap.StaticGen, snap.Dims
	snap.EachPod(func(p *Pod) {
		s.classes.next = max(s.classes.next, p.Class.ID+1, p.Class.Alone().ID+1, p.Class.Site().ID+1)
	})
	s.Apply(snap.events(absent)...)
	for kind, m := range snap.objects { // order: a set
		s.objects[kind], s.shared[kind] = m, true
	}
	s.Restore(snap.Memory())
	return s
}

// State returns the event that would make this node, without the pods on it.
func (n *Node) State(d Dims) NodeState {
	st := n.NodeState
	st.Allocatable = d.quantities(n.Allocatable)
	return st
}

// State returns the event that would make this queue.
func (q *Queue) State(d Dims) QueueState {
	st := q.QueueState
	st.Quota, st.Limit, st.Weight, st.Guarantee = d.quantities(q.Quota), d.quantities(q.Limit), d.quantities(q.Weight), d.quantities(q.Guarantee)
	return st
}

// SetAside has a gang not be scheduled, for a reason that is told to its owner, until its specification changes or it is made anew.
// False: there is no such gang, or it cannot be scheduled as it is.
func (s *Store) SetAside(key Key, why string) bool {
	id, known := s.gangIDs[key]
	if !known || s.gangs.get(int32(id)).Invalid != "" {
		return false
	}
	st := s.gangs.get(int32(id)).GangState
	s.gang(id).aside, st.Invalid = why, why
	return s.Apply(st)
}

// State returns the event that would make this pod, as it stands now. Its Spec is the caller's.
func (p *Pod) State(d Dims) PodState {
	alike := p.Class.state(d)
	return p.state(&alike)
}

// state is what all pods of the class say alike.
func (c *Class) state(d Dims) (st PodState) {
	spec := c.ClassSpec
	spec.Requests, spec.Charge = nil, nil
	st.Spec, st.Requests = &spec, d.some(c.Requests)
	if !c.Charge.Equal(c.Requests) {
		st.Charge = d.some(c.Charge)
	}
	return st
}

// state is the pod's event, with what its class says.
func (p *Pod) state(alike *PodState) PodState {
	st := p.PodState
	st.Spec, st.Requests = alike.Spec, alike.Requests
	if alike.Charge != nil {
		st.Charge = alike.Charge
	}
	st.Phase, st.NodeName, st.Groups, st.Zones, st.Allocations, st.DeletedAt = p.Phase, p.NodeName, p.Groups, p.Zones, p.Allocations, p.goneBy
	if !p.recorded {
		st.Charged = Charged{}
	}
	return st
}

// some is quantities without zeros, never nil.
func (d Dims) some(r Resources) []Quantity {
	out := []Quantity{}
	for i, x := range r {
		if x != 0 {
			out = append(out, Quantity{d.Name(i), x})
		}
	}
	return out
}

func (d Dims) quantities(r Resources) []Quantity {
	out := make([]Quantity, 0, len(r))
	for i, x := range r {
		out = append(out, Quantity{d.Name(i), x})
	}
	return out
}

// asked is resources of what a pod asks for, which may have any names: see MaxAsked. Cost: the names.
func (s *Store) asked(qs []Quantity) Resources {
	rest, named := int64(0), []Quantity(nil) // nil while all have places
	for i, q := range qs {
		if _, known := s.dims.Index(q.Name); !known && s.dims.Len() >= MaxAsked {
			if named == nil {
				named = append(make([]Quantity, 0, len(qs)+1), qs[:i]...)
			}
			rest = Clamp(rest + Clamp(q.Value))
			continue
		}
		s.dims, _ = s.dims.With(q.Name)
		if named != nil {
			named = append(named, q)
		}
	}
	if named == nil {
		return s.resources(qs, 0)
	}
	return s.resources(append(named, Quantity{Further, rest}), 0)
}

// resources turns named quantities into a vector, appending dimensions as needed; missing is the value of those not named.
func (s *Store) resources(qs []Quantity, missing int64) Resources {
	for _, q := range qs {
		s.dims, _ = s.dims.With(q.Name)
	}
	n := 0
	for _, q := range qs {
		i, _ := s.dims.Index(q.Name)
		n = max(n, i+1)
	}
	r := make(Resources, n)
	for i := range r {
		r[i] = missing
	}
	for _, q := range qs {
		i, _ := s.dims.Index(q.Name)
		r[i] = q.Value
	}
	return r
}

func (s *Store) node(id NodeID) *Node {
	n := s.nodes.get(int32(id))
	if n.epoch != s.epoch {
		c := *n
		c.epoch = s.epoch
		c.Used, c.Releasing, c.Foreign, c.Pods = n.Used.Clone(), n.Releasing.Clone(), n.Foreign.Clone(), slices.Clone(n.Pods)
		c.used, c.releasing, c.foreign = slices.Clone(n.used), slices.Clone(n.releasing), slices.Clone(n.foreign)
		c.Devices = slices.Clone(n.Devices)
		n = &c
		s.nodes.set(s.epoch, int32(id), n)
	}
	return n
}

func (s *Store) pod(id PodID) *Pod {
	p := s.pods.get(int32(id))
	if p.epoch != s.epoch {
		c := *p
		c.epoch = s.epoch
		p = &c
		s.pods.set(s.epoch, int32(id), p)
	}
	return p
}

func (s *Store) gang(id GangID) *Gang {
	g := s.gangs.get(int32(id))
	if g.epoch != s.epoch {
		c := *g
		c.epoch = s.epoch
		c.Pods = slices.Clone(g.Pods)
		g = &c
		s.gangs.set(s.epoch, int32(id), g)
	}
	return g
}

func (s *Store) queue(id QueueID) *Queue {
	q := s.queues.get(int32(id))
	if q.epoch != s.epoch {
		c := *q
		c.epoch = s.epoch
		q = &c
		s.queues.set(s.epoch, int32(id), q)
	}
	return q
}

// setPending keeps the bitset of gangs with pending pods.
func (s *Store) setPending(id GangID, on bool) {
	s.pending = setBit(s.pending, id, on)
}

// setBit puts an ID into a bitset or takes it out.
func setBit[I GangID | PodID](set []uint64, id I, on bool) []uint64 {
	w := int(id) >> 6
	for len(set) <= w {
		set = append(set, 0)
	}
	if on {
		set[w] |= 1 << (id & 63)
	} else {
		set[w] &^= 1 << (id & 63)
	}
	return set
}

func (s *Store) sortNodes() {
	if !s.unsorted {
		return
	}
	s.unsorted = false
	ids := slices.AppendSeq(make([]NodeID, 0, len(s.nodeIDs)), maps.Values(s.nodeIDs))
	sort.Slice(ids, func(i, j int) bool { return s.nodes.get(int32(ids[i])).Name < s.nodes.get(int32(ids[j])).Name })
	s.byName = ids
}

func (s *Store) sortQueues() {
	if !s.unsortedQueues {
		return
	}
	s.unsortedQueues = false
	s.queueNames = slices.SortedFunc(maps.Values(s.queueIDs), func(a, b QueueID) int {
		return strings.Compare(s.queues.get(int32(a)).Name, s.queues.get(int32(b)).Name)
	})
}

// same compares API fragments that rarely change.
func same(a, b any) bool { return reflect.DeepEqual(a, b) }

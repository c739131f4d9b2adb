package cluster

import (
	"maps"
	"slices"
	"strings"
)

func (e NodeState) apply(s *Store) bool {
	alloc := s.resources(e.Allocatable, 0)
	e.Allocatable = nil
	id, known := s.nodeIDs[e.Name]
	if known {
		if n := s.nodes.get(int32(id)); n.NodeState.equal(&e) && n.Allocatable.Equal(alloc) {
			return false
		}
	} else {
		id = NodeID(s.nodes.alloc(s.epoch))
		s.nodes.set(s.epoch, int32(id), &Node{ID: id, epoch: s.epoch})
		s.nodeIDs[e.Name] = id
		s.unsorted = true
	}
	n := s.node(id)
	before := n.Labels
	s.sgen++
	s.news = s.now
	s.unsized = true
	resized := n.GPUMemoryMiB != e.GPUMemoryMiB && len(n.Devices) > 0
	on := slices.Clone(n.Pods)
	if resized { // what they share of a device is another amount now, and what their queues are charged for it
		for _, pid := range on {
			s.detach(s.pod(pid))
		}
	}
	n.NodeState, n.Allocatable, n.StaticGen = e, alloc, s.sgen
	s.relabel(n, before, n.Labels, true)
	if resized {
		for _, pid := range on {
			s.attach(s.pod(pid))
		}
	}
	if !known {
		for pid := range maps.Clone(s.strayPods[e.Name]) { // order: sums and sets
			s.detach(s.pod(pid))
			s.attach(s.pod(pid))
		}
	}
	return true
}

func (e NodeGone) apply(s *Store) bool {
	id, ok := s.nodeIDs[e.Name]
	if !ok {
		return false
	}
	on := slices.Clone(s.nodes.get(int32(id)).Pods)
	for _, pid := range on {
		s.detach(s.pod(pid))
	}
	delete(s.nodeIDs, e.Name)
	s.relabel(s.nodes.get(int32(id)), s.nodes.get(int32(id)).Labels, nil, false)
	s.nodes.release(s.epoch, int32(id))
	for _, pid := range on {
		s.attach(s.pod(pid))
	}
	s.sgen++
	s.news = s.now
	s.unsorted, s.unsized = true, true
	return true
}

func (e PodState) apply(s *Store) bool {
	var spec ClassSpec
	if e.Spec != nil {
		spec = *e.Spec
	}
	spec.Requests, spec.Charge = s.asked(e.Requests), nil
	if e.Charge != nil {
		spec.Charge = s.asked(e.Charge)
	}
	class := s.classes.acquire(&spec)
	said := e.Charged
	if !e.Ours || !e.Phase.Holds() || e.NodeName == "" || said.Queue == "" {
		said = Charged{}
	}
	e.Requests, e.Charge, e.Spec, e.Charged = nil, nil, nil, Charged{}
	id, known := s.podIDs[e.UID]
	if known {
		p := s.pods.get(int32(id))
		e.Charged = p.PodState.Charged
		e.Returning = e.Returning || p.Returning // an eviction of ours may show nothing but the end
		if p.Class == class && p.PodState.equal(&e) && (said == Charged{} || p.recorded) {
			s.classes.release(class)
			return false
		}
		s.detach(p)
		if p.Phase.Active() && !e.Phase.Active() && p.evicting.IsZero() {
			s.lost(p)
		}
		s.classes.release(p.Class)
		s.countClass(p.Class, -1)
	} else {
		id = PodID(s.pods.alloc(s.epoch))
		s.pods.set(s.epoch, int32(id), &Pod{ID: id, Node: None, Gang: None, Set: None, epoch: s.epoch})
		s.podIDs[e.UID] = id
	}
	s.countClass(class, 1)
	p := s.pod(id)
	held := p.Phase.Holds() && known
	if p.DeletedAt != e.DeletedAt {
		p.goneBy = e.DeletedAt
	}
	p.PodState, p.Class, p.Phase, p.NodeName, p.Allocations = e, class, e.Phase, e.NodeName, e.Allocations
	if p.assumed != nil {
		if e.Phase == Pending && e.NodeName == "" { // not confirmed yet: our decision still stands
			p.Phase, p.NodeName, p.Allocations = Binding, p.assumed.node, p.assumed.claims
		} else {
			p.assumed = nil
			delete(s.assumed, id)
		}
	}
	switch {
	case p.evicting.IsZero():
	case p.Phase.Active(): // the eviction has not shown yet
		p.Phase = Releasing
	default:
		p.evicting = Instant{}
		delete(s.evicting, id)
	}
	if p.Phase.Holds() && !held {
		p.Held = s.now
	}
	p.record(said)
	s.attach(p)
	return true
}

func (e PodGone) apply(s *Store) bool {
	id, ok := s.podIDs[e.UID]
	if !ok {
		return false
	}
	p := s.pods.get(int32(id))
	s.detach(p)
	if p.Phase.Active() {
		s.lost(p)
	}
	s.classes.release(p.Class)
	s.countClass(p.Class, -1)
	delete(s.assumed, id)
	delete(s.evicting, id)
	delete(s.postponed, id)
	delete(s.podIDs, e.UID)
	s.pods.release(s.epoch, int32(id))
	return true
}

func (e GangState) apply(s *Store) bool {
	if len(e.Sets) == 0 {
		e.Sets = FlatTree(1)
	}
	id, known := s.gangIDs[e.Key]
	var members []PodID
	if known {
		g := s.gangs.get(int32(id))
		if g.UID == e.UID { // what we know before the object says so
			e.LastStart, e.LastEviction = Latest(e.LastStart, g.Started), Latest(e.LastEviction, g.Evicted)
			if g.Stale.Set {
				e.StaleSince = g.Stale.Value
			}
			if g.aside != "" && g.Generation == e.Generation {
				e.Invalid = g.aside
			}
		}
		if g.GangState.equal(&e) {
			return false
		}
		members = slices.Clone(g.Pods)
	} else {
		id = GangID(s.gangs.alloc(s.epoch))
		s.gangs.set(s.epoch, int32(id), &Gang{ID: id, epoch: s.epoch})
		s.gangIDs[e.Key] = id
	}
	members = slices.AppendSeq(members, maps.Keys(s.lostPods[e.Key]))
	for _, pid := range members {
		s.detach(s.pods.get(int32(pid)))
	}
	g := s.gang(id)
	if !known || g.UID != e.UID || g.Generation != e.Generation || g.Queue != e.Queue || g.Priority != e.Priority || g.Preemptible != e.Preemptible {
		s.news = s.now
	}
	if known && g.UID != e.UID {
		g.GangHistory = GangHistory{}
	}
	if g.aside != e.Invalid {
		g.aside = ""
	}
	g.GangState = e
	if g.asks = nil; e.Asks != nil {
		g.asks = s.asked(e.Asks)
	}
	s.plant(g, e.Sets)
	s.serve(e.Queue, e.LastStart)
	if e.LastEviction.After(g.Displaced) { // by whoever led before us; for whom is not on record
		g.Displaced, s.disturbed = e.LastEviction, true
	}
	for _, pid := range members {
		s.attach(s.pod(pid))
	}
	return true
}

// FlatTree is the tree of a gang without sub-sets: one pod set called DefaultSet that needs min pods.
func FlatTree(min int32) []Set {
	tree := &struct { // one piece of memory, as nearly every gang has such a tree
		sets  [2]Set
		child [1]int32
	}{[2]Set{{Parent: None, Min: 1}, {Name: DefaultSet, Parent: 0, Leaf: true, Min: min}}, [1]int32{1}}
	tree.sets[0].Children = tree.child[:]
	return tree.sets[:]
}

func (e GangGone) apply(s *Store) bool {
	id, ok := s.gangIDs[e.Key]
	if !ok {
		return false
	}
	members := slices.Clone(s.gangs.get(int32(id)).Pods)
	members = slices.AppendSeq(members, maps.Keys(s.lostPods[e.Key]))
	for _, pid := range members {
		s.detach(s.pods.get(int32(pid)))
	}
	delete(s.gangIDs, e.Key)
	s.news = s.now
	s.gangs.release(s.epoch, int32(id))
	s.setPending(id, false)
	s.partial, s.odd = setBit(s.partial, id, false), setBit(s.odd, id, false)
	for _, pid := range members {
		s.attach(s.pod(pid))
	}
	return true
}

func (e QueueState) apply(s *Store) bool {
	quota, limit, weight, guarantee := s.resources(e.Quota, 0), s.resources(e.Limit, Unlimited), s.resources(e.Weight, 0), s.resources(e.Guarantee, 0)
	e.Quota, e.Limit, e.Weight, e.Guarantee = nil, nil, nil, nil
	id, known := s.queueIDs[e.Name]
	if known {
		q := s.queues.get(int32(id))
		if q.QueueState.equal(&e) && q.Quota.Equal(quota) && slices.Equal(q.Limit, limit) && q.Weight.Equal(weight) && q.Guarantee.Equal(guarantee) {
			return false
		}
	} else {
		id = QueueID(s.queues.alloc(s.epoch))
		s.queues.set(s.epoch, int32(id), &Queue{ID: id, epoch: s.epoch})
		s.queueIDs[e.Name] = id
		s.unsortedQueues = true
	}
	q := s.queue(id)
	q.QueueState, q.Quota, q.Limit, q.Weight, q.Guarantee = e, quota, limit, weight, guarantee
	if !known {
		q.Usage = s.usage[e.Name].Clone()
	}
	s.dirty[e.Name] = struct{}{}
	s.news = s.now
	return true
}

func (e UsageState) apply(s *Store) bool {
	next := make(map[string]Resources, len(e.Queues))
	for name, qs := range e.Queues { // order: each queue on its own
		next[name] = s.resources(slices.SortedFunc(slices.Values(qs), func(a, b Quantity) int { return strings.Compare(a.Name, b.Name) }), 0)
	}
	changed := false
	for name, id := range s.queueIDs { // order: each queue on its own
		old, have := s.usage[name]
		now, will := next[name]
		if have != will || !old.Equal(now) {
			s.queue(id).Usage = now.Clone()
			changed = true
		}
	}
	s.usage = next
	return changed
}

func (e QueueGone) apply(s *Store) bool {
	id, ok := s.queueIDs[e.Name]
	if !ok {
		return false
	}
	delete(s.queueIDs, e.Name)
	delete(s.served, e.Name)
	s.dirty[e.Name] = struct{}{}
	s.news = s.now
	s.queues.release(s.epoch, int32(id))
	s.unsortedQueues = true
	return true
}

func (e ObjectState) apply(s *Store) bool {
	if old, ok := s.objects[e.Kind][e.Key]; ok && same(old, e.Object) {
		return false
	}
	s.writableObjects(e.Kind)[e.Key] = e.Object
	return true
}

func (e ObjectGone) apply(s *Store) bool {
	if _, ok := s.objects[e.Kind][e.Key]; !ok {
		return false
	}
	delete(s.writableObjects(e.Kind), e.Key)
	return true
}

func (s *Store) writableObjects(kind ObjectKind) map[string]any {
	if s.objects[kind] == nil {
		s.objects[kind] = map[string]any{}
	} else if s.shared[kind] {
		s.objects[kind] = maps.Clone(s.objects[kind])
	}
	s.shared[kind] = false
	return s.objects[kind]
}

// countClass counts a pod in what snapshots say of all pods.
func (s *Store) countClass(c *Class, by int) {
	s.demands.count(s.dims, c, by)
	if c.LegacySlices {
		s.legacySlices += by
	}
	if c.PodAntiAffinity != nil && len(c.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		s.antiTerm += by
	}
	if c.PrefersPods() {
		s.preferring += by
	}
}

// attach adds everything the pod stands for to its node, gang and account. The pod must be writable and detached.
func (s *Store) attach(p *Pod) {
	p.Node, p.Groups, p.Zones = None, nil, p.PodState.Zones
	if p.assumed != nil {
		p.Zones = p.assumed.zones
	}
	if p.Phase.Holds() && p.NodeName != "" {
		p.Groups = p.groupsHeld(p.PodState.Groups)
		if p.assumed != nil {
			p.Groups = p.groupsHeld(p.assumed.groups)
		}
		if id, ok := s.nodeIDs[p.NodeName]; ok {
			p.Node = id
			s.hold(p)
		} else {
			s.stray(p)
		}
	}
	p.Charge = p.Class.ChargeOn(s.nodes.get(int32(p.Node)))
	if p.Phase == Releasing || p.Phase == StuckReleasing {
		s.releasing[p.ID] = struct{}{}
	}
	p.Gang, p.Set = None, None
	s.join(p)
}

// detach removes everything attach added. The pod itself is not written to.
func (s *Store) detach(p *Pod) {
	if p.Phase.Holds() && p.NodeName != "" {
		if p.Node != None {
			n := s.node(p.Node)
			n.share(p, -1)
			n.used.sub(p.Class.Requests)
			if p.Phase == Releasing {
				n.releasing.sub(p.Class.Requests)
			}
			if !p.Ours && !p.Utility {
				n.foreign.sub(p.Class.Requests)
			}
			n.tell()
			n.Pods = without(n.Pods, p.ID)
		} else if m := s.strayPods[p.NodeName]; m != nil {
			delete(m, p.ID)
			if len(m) == 0 {
				delete(s.strayPods, p.NodeName)
			}
		}
	}
	delete(s.releasing, p.ID)
	s.part(p)
}

func (s *Store) hold(p *Pod) {
	n := s.node(p.Node)
	n.used.add(p.Class.Requests)
	if p.Phase == Releasing {
		n.releasing.add(p.Class.Requests)
	}
	n.share(p, 1)
	if !p.Ours && !p.Utility {
		n.foreign.add(p.Class.Requests)
	}
	n.tell()
	n.Pods = append(n.Pods, p.ID)
}

func (s *Store) stray(p *Pod) {
	m := s.strayPods[p.NodeName]
	if m == nil {
		m = map[PodID]struct{}{}
		s.strayPods[p.NodeName] = m
	}
	m[p.ID] = struct{}{}
}

// count moves the gang's counters and its queue's account by one pod. Pods of other schedulers are nobody's usage.
func (s *Store) count(g *Gang, p *Pod, by int32) {
	if !p.Ours {
		return
	}
	acc := s.accounts[g.Queue]
	if acc == nil {
		acc = &account{}
		s.accounts[g.Queue] = acc
	}
	move := func(r *sum) { acc.move(r, p, int(by)) }
	acc.pods += int(by)
	switch {
	case p.Phase == Pending:
		g.PendingPods += by
		move(&acc.requested)
	case p.Phase == Gated:
		g.GatedPods += by
		if p.Entry == EntryAsked { // its queue is asked, which could give nothing of what nobody asks for
			move(&acc.requested)
		}
	case p.Phase.Active():
		g.ActivePods += by
		if p.Set == None {
			g.StrayPods += by
		}
		move(&acc.requested)
		move(&acc.allocated)
		if g.FixedCharge(p) {
			move(&acc.nonPreemptible)
		}
	case p.Phase.Holds() && p.NodeName != "":
		if p.Returning { // or shares would dip with each eviction, and what dips long enough would be news
			move(&acc.requested)
		}
		fixed := g.FixedCharge(p)
		acc.leaving.move(acc, p, fixed, int(by))
		if p.Phase == StuckReleasing {
			acc.stuck.move(acc, p, fixed, int(by))
		}
	case p.Returning:
		move(&acc.requested)
	}
	s.setWaiting(g)
	s.setPartial(g)
	if acc.pods == 0 {
		delete(s.accounts, g.Queue)
	}
	s.dirty[g.Queue] = struct{}{}
}

// setWaiting notes whether the gang has pods that wait, or waits for its pods to be made.
func (s *Store) setWaiting(g *Gang) {
	s.setPending(g.ID, g.PendingPods+g.GatedPods > 0 || g.BeforePods && len(g.Pods) == 0)
}

// setPartial notes whether the gang is worth a look by whoever cares for incomplete gangs: a tree of sets may be
// incomplete however many pods it has; and whether its pods hold room otherwise than its object reads.
func (s *Store) setPartial(g *Gang) {
	s.partial = setBit(s.partial, g.ID, !g.StaleSince.IsZero() || g.ActivePods > 0 && (g.ActivePods-g.StrayPods < g.least || len(g.Sets) > 2 && !s.filled(g)))
	s.odd = setBit(s.odd, g.ID, g.StrayPods > 0 || g.Key.Remnant() && g.ActivePods > 0)
}

// countedPods is of how many pods a gang may be to be counted by set at each change of one of them. Larger ones of several sets are always worth a look.
const countedPods = 256

// filled says that each set of a gang's tree has its minimum of pods with room. False may be said of one that has: while pods wait, and of what takes long to count.
func (s *Store) filled(g *Gang) bool {
	if g.PendingPods+g.GatedPods > 0 || len(g.Pods) > countedPods {
		return false
	}
	var few [4 * fewSets]int32
	have := few[:]
	if len(g.Sets) > len(few) {
		have = make([]int32, len(g.Sets))
	}
	for _, id := range g.Pods {
		if p := s.pods.get(int32(id)); p.Ours && p.Phase.Active() && p.Set != None {
			have[p.Set]++
		}
	}
	for i := range g.Sets {
		switch set := &g.Sets[i]; {
		case set.Leaf && have[i] < set.Min, !set.Leaf && int(set.Min) > len(set.Children):
			return false
		case set.Pods > 0 && (i > 0 || g.ActivePods-g.StrayPods < set.Pods):
			return false
		}
	}
	return true
}

func without(ids []PodID, id PodID) []PodID {
	for i, x := range ids {
		if x == id {
			ids[i] = ids[len(ids)-1]
			return ids[:len(ids)-1]
		}
	}
	return ids
}

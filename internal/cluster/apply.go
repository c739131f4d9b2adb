package cluster

import (
	"maps"
	"slices"
)

func (e NodeState) apply(s *Store) bool {
	alloc := s.resources(e.Allocatable, 0)
	id, known := s.nodeIDs[e.Name]
	if known {
		n := s.nodes.get(int32(id))
		if n.UID == e.UID && n.Problem == e.Problem && n.GPUMemoryMiB == e.GPUMemoryMiB && n.Allocatable.Equal(alloc) &&
			maps.Equal(n.Labels, e.Labels) && same(n.Taints, e.Taints) {
			return false
		}
	} else {
		id = NodeID(s.nodes.alloc(s.epoch))
		s.nodes.set(s.epoch, int32(id), &Node{ID: id, Name: e.Name, epoch: s.epoch})
		s.nodeIDs[e.Name] = id
		s.unsorted = true
	}
	n := s.node(id)
	s.sgen++
	n.UID, n.Labels, n.Taints, n.Problem, n.GPUMemoryMiB = e.UID, e.Labels, e.Taints, e.Problem, e.GPUMemoryMiB
	n.Allocatable, n.StaticGen = alloc, s.sgen
	if !known {
		stray := s.strayPods[e.Name]
		delete(s.strayPods, e.Name)
		for pid := range stray { // order: sums and a set
			s.pod(pid).Node = id
			s.hold(s.pods.get(int32(pid)))
		}
	}
	return true
}

func (e NodeGone) apply(s *Store) bool {
	id, ok := s.nodeIDs[e.Name]
	if !ok {
		return false
	}
	for _, pid := range slices.Clone(s.nodes.get(int32(id)).Pods) {
		p := s.pod(pid)
		p.Node = None
		s.stray(p)
	}
	delete(s.nodeIDs, e.Name)
	s.nodes.release(s.epoch, int32(id))
	s.sgen++
	s.unsorted = true
	return true
}

func (e PodState) apply(s *Store) bool {
	e.Spec.Requests = s.resources(e.Requests, 0)
	class := s.classes.acquire(&e.Spec)
	id, known := s.podIDs[e.UID]
	if known {
		p := s.pods.get(int32(id))
		if p.Class == class && p.observed == (observed{e.Phase, e.NodeName}) && p.gangKey == e.Gang && p.setName == e.SetName &&
			p.Ours == e.Ours && p.Utility == e.Utility && p.deletedAt == e.DeletedAt && p.Nominated == e.Nominated &&
			p.Namespace == e.Namespace && p.Name == e.Name && p.Created == e.Created && maps.Equal(p.Labels, e.Labels) {
			s.classes.release(class)
			return false
		}
		s.detach(p)
		s.classes.release(p.Class)
		s.countAnti(p.Class, -1)
	} else {
		id = PodID(s.pods.alloc(s.epoch))
		s.pods.set(s.epoch, int32(id), &Pod{ID: id, UID: e.UID, Node: None, Gang: None, Set: None, epoch: s.epoch})
		s.podIDs[e.UID] = id
	}
	s.countAnti(class, 1)
	p := s.pod(id)
	p.Namespace, p.Name, p.Labels, p.Class = e.Namespace, e.Name, e.Labels, class
	p.gangKey, p.setName, p.Ours, p.Utility = e.Gang, e.SetName, e.Ours, e.Utility
	p.Created, p.deletedAt, p.Nominated = e.Created, e.DeletedAt, e.Nominated
	p.observed = observed{e.Phase, e.NodeName}
	p.Phase, p.NodeName = e.Phase, e.NodeName
	if p.assumed != nil {
		if e.Phase == Pending && e.NodeName == "" { // not confirmed yet: our decision still stands
			p.Phase, p.NodeName = Binding, p.assumed.node
		} else {
			p.assumed = nil
			delete(s.assumed, id)
		}
	}
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
	s.classes.release(p.Class)
	s.countAnti(p.Class, -1)
	delete(s.assumed, id)
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
		if g.UID == e.UID && g.Queue == e.Queue && g.Priority == e.Priority && g.Preemptible == e.Preemptible && g.Created == e.Created &&
			g.Invalid == e.Invalid && g.MarkUnschedulable == e.MarkUnschedulable && g.Backoff == e.Backoff && g.GaveUp == e.GaveUp &&
			g.LastStart == e.LastStart && g.generation == e.Generation && slices.EqualFunc(g.Sets, e.Sets, equalSet) {
			return false
		}
		members = slices.Clone(g.Pods)
		for _, pid := range members {
			s.detach(s.pods.get(int32(pid)))
		}
	} else {
		id = GangID(s.gangs.alloc(s.epoch))
		s.gangs.set(s.epoch, int32(id), &Gang{ID: id, Key: e.Key, epoch: s.epoch})
		s.gangIDs[e.Key] = id
		for pid := range s.lostPods[e.Key] { // order: each pod on its own
			members = append(members, pid)
		}
		for _, pid := range members {
			s.detach(s.pods.get(int32(pid)))
		}
	}
	g := s.gang(id)
	g.UID, g.Queue, g.Priority, g.Preemptible, g.Created = e.UID, e.Queue, e.Priority, e.Preemptible, e.Created
	g.Sets, g.Invalid, g.MarkUnschedulable, g.Backoff, g.GaveUp = e.Sets, e.Invalid, e.MarkUnschedulable, e.Backoff, e.GaveUp
	g.LastStart, g.generation = e.LastStart, e.Generation
	g.leaves = make(map[string]int32, len(e.Sets))
	for i := range e.Sets {
		if e.Sets[i].Leaf {
			g.leaves[e.Sets[i].Name] = int32(i)
		}
	}
	for _, pid := range members {
		s.attach(s.pod(pid))
	}
	return true
}

func equalSet(a, b Set) bool {
	return a.Name == b.Name && a.Parent == b.Parent && a.Leaf == b.Leaf && a.Min == b.Min && slices.Equal(a.Children, b.Children)
}

// FlatTree is the tree of a gang without sub-sets: one pod set called DefaultSet that needs min pods.
func FlatTree(min int32) []Set {
	return []Set{
		{Parent: None, Children: []int32{1}, Min: 1},
		{Name: DefaultSet, Parent: 0, Leaf: true, Min: min},
	}
}

func (e GangGone) apply(s *Store) bool {
	id, ok := s.gangIDs[e.Key]
	if !ok {
		return false
	}
	members := slices.Clone(s.gangs.get(int32(id)).Pods)
	for _, pid := range members {
		s.detach(s.pods.get(int32(pid)))
	}
	delete(s.gangIDs, e.Key)
	s.gangs.release(s.epoch, int32(id))
	s.setPending(id, false)
	for _, pid := range members {
		s.attach(s.pod(pid))
	}
	return true
}

func (e QueueState) apply(s *Store) bool {
	quota, limit, weight := s.resources(e.Quota, 0), s.resources(e.Limit, Unlimited), s.resources(e.Weight, 0)
	id, known := s.queueIDs[e.Name]
	if known {
		q := s.queues.get(int32(id))
		if q.UID == e.UID && q.Display == e.Display && q.Parent == e.Parent && q.Priority == e.Priority && q.Created == e.Created &&
			q.Quota.Equal(quota) && slices.Equal(q.Limit, limit) && q.Weight.Equal(weight) {
			return false
		}
	} else {
		id = QueueID(s.queues.alloc(s.epoch))
		s.queues.set(s.epoch, int32(id), &Queue{ID: id, Name: e.Name, epoch: s.epoch})
		s.queueIDs[e.Name] = id
		s.unsortedQueues = true
	}
	q := s.queue(id)
	q.UID, q.Display, q.Parent, q.Priority, q.Created = e.UID, e.Display, e.Parent, e.Priority, e.Created
	q.Quota, q.Limit, q.Weight = quota, limit, weight
	s.dirty[e.Name] = struct{}{}
	return true
}

func (e QueueGone) apply(s *Store) bool {
	id, ok := s.queueIDs[e.Name]
	if !ok {
		return false
	}
	delete(s.queueIDs, e.Name)
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

func (s *Store) countAnti(c *Class, by int) {
	if c.PodAntiAffinity != nil && len(c.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		s.antiTerm += by
	}
}

// attach adds everything the pod stands for to its node, gang and account. The pod must be writable and detached.
func (s *Store) attach(p *Pod) {
	p.Node = None
	if p.Phase.Holds() && p.NodeName != "" {
		if id, ok := s.nodeIDs[p.NodeName]; ok {
			p.Node = id
			s.hold(p)
		} else {
			s.stray(p)
		}
	}
	if p.Phase == Releasing || p.Phase == StuckReleasing {
		s.releasing[p.ID] = struct{}{}
	}
	p.Gang, p.Set = None, None
	if p.gangKey == (Key{}) {
		return
	}
	id, ok := s.gangIDs[p.gangKey]
	if !ok {
		lost := s.lostPods[p.gangKey]
		if lost == nil {
			lost = map[PodID]struct{}{}
			s.lostPods[p.gangKey] = lost
		}
		lost[p.ID] = struct{}{}
		return
	}
	g := s.gang(id)
	p.Gang, p.Set = id, g.LeafByName(p.setName)
	g.Pods = append(g.Pods, p.ID)
	s.count(g, p, 1)
}

// detach removes everything attach added. The pod itself is not written to.
func (s *Store) detach(p *Pod) {
	if p.Phase.Holds() && p.NodeName != "" {
		if p.Node != None {
			n := s.node(p.Node)
			n.Used.Sub(p.Class.Requests)
			if p.Phase == Releasing {
				n.Releasing.Sub(p.Class.Requests)
			}
			if !p.Ours && !p.Utility {
				n.Foreign.Sub(p.Class.Requests)
			}
			n.Pods = without(n.Pods, p.ID)
		} else if m := s.strayPods[p.NodeName]; m != nil {
			delete(m, p.ID)
			if len(m) == 0 {
				delete(s.strayPods, p.NodeName)
			}
		}
	}
	delete(s.releasing, p.ID)
	if p.Gang != None {
		g := s.gang(p.Gang)
		g.Pods = without(g.Pods, p.ID)
		s.count(g, p, -1)
	} else if m := s.lostPods[p.gangKey]; m != nil {
		delete(m, p.ID)
		if len(m) == 0 {
			delete(s.lostPods, p.gangKey)
		}
	}
}

func (s *Store) hold(p *Pod) {
	n := s.node(p.Node)
	n.Used.Add(p.Class.Requests)
	if p.Phase == Releasing {
		n.Releasing.Add(p.Class.Requests)
	}
	if !p.Ours && !p.Utility {
		n.Foreign.Add(p.Class.Requests)
	}
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
	move := func(r *Resources) {
		if by > 0 {
			r.Add(p.Class.Requests)
		} else {
			r.Sub(p.Class.Requests)
		}
	}
	acc.pods += int(by)
	switch {
	case p.Phase == Pending:
		g.PendingPods += by
		move(&acc.requested)
	case p.Phase == Gated:
		g.GatedPods += by
	case p.Phase.Active():
		g.ActivePods += by
		move(&acc.requested)
		move(&acc.allocated)
		if !g.Preemptible {
			move(&acc.nonPreemptible)
		}
	}
	s.setPending(g.ID, g.PendingPods+g.GatedPods > 0)
	if acc.pods == 0 {
		delete(s.accounts, g.Queue)
	}
	s.dirty[g.Queue] = struct{}{}
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

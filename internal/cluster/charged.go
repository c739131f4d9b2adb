package cluster

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Charged is on whose account a pod of ours holds its room: the queue that was found to have room for it when it was decided
// on, and the gang and set it was decided for.
//
// The rule of the whole model: what a tenant can write may ask for something; it never undoes a charge, hides a holder, or
// gives a right. So a pod is charged to what it was bound for, and may be evicted from there, until it gives its room back,
// whatever becomes of its labels, its gang, or of our process:
//
//   - While it holds room, its record counts, and what its labels ask for does not. The first record that is seen counts: a
//     pod cannot be charged to somebody else while it stays where it is.
//   - If its gang is there, and in the queue that is charged, it is a member of it as always. If its set is not in the gang's
//     tree, it is held by the gang besides its sets: it is the first that the gang gives, and counts for no minimum.
//   - If its gang is gone, or asks to be in another queue, it is in a remnant: a gang of the Store's own making, by namespace,
//     queue and former gang. A remnant of a gang that exists has its minimums, its priority and its word on preemption, so that
//     what still runs stays whole; of one that does not, it has no minimum, the lowest priority, and may be preempted.
//   - A pod without a record (bound by others, or before there were records) is charged to the gang it is first seen with, for
//     as long as this Store lives, and to Options.DefaultQueue if it has none.
//
// The zero Charged is no record.
type Charged struct {
	Queue string
	Gang  Key
	Set   string // name of the pod set, "" for the default one
	// Fixed says that it was placed as non-preemptible, and so within quota.
	Fixed bool
	// Share is what it was given of shared GPUs; the zero Share for none, or when the record does not say.
	Share Share
}

// RemnantFace is the face of the keys of remnants.
const RemnantFace = "remnant"

// PlainFace is the face of the queues whose names go without one; see [QueueName].
const PlainFace = "kai"

// GroupName is what a gang is called where its queue is told with it: by its name, and of a gang that is of another face than its queue by its face before that, as queues
// are. The gangs of a face without queues of its own are such.
func GroupName(gang Key, queue string) string {
	face, _ := SplitQueue(queue)
	if face = cmp.Or(face, PlainFace); gang.Name == "" || gang.Face == face {
		return gang.Name
	}
	return QueueName(gang.Face, gang.Name)
}

// GroupKey is the inverse of [GroupName], for a gang of that namespace.
func GroupKey(namespace, name, queue string) Key {
	face, _ := SplitQueue(queue)
	own, name := SplitQueue(name)
	return Key{Face: cmp.Or(own, face, PlainFace), Namespace: namespace, Name: name}
}

// RemnantKey is the key of the remnant of a gang in a queue. Of pods that were of no gang, gang has the namespace only.
func RemnantKey(gang Key, queue string) Key {
	return Key{Face: RemnantFace, Namespace: gang.Namespace, Name: GroupName(gang, queue) + "@" + queue}
}

// Remnant says whether the key is that of a gang of the Store's own making, of which there is no object; see [Charged].
func (k Key) Remnant() bool { return k.Face == RemnantFace }

// Former returns the gang that a remnant was of (without a name for none); of other keys, themselves.
func (k Key) Former() Key {
	if !k.Remnant() {
		return k
	}
	name, queue, _ := strings.Cut(k.Name, "@")
	return GroupKey(k.Namespace, name, queue)
}

// Charged returns the record by which the pod is charged; the zero value for a pod that holds no room, or is not ours.
func (p *Pod) Charged() Charged { return p.PodState.Charged }

// FixedCharge says whether what a pod of the gang holds is charged as non-preemptible: if the gang says so now, and if it did
// when the pod was placed. Or quota for such work could be given back in words, used by others, and taken again.
func (g *Gang) FixedCharge(p *Pod) bool { return !g.Preemptible || p.PodState.Charged.Fixed }

// record takes in what the API server says of a pod's charge. The first word stands while the pod holds its room; what the
// Store found out by itself gives way to it.
func (p *Pod) record(said Charged) {
	if said.Queue != "" && !p.recorded {
		p.PodState.Charged, p.recorded = said, true
	}
}

// join puts a pod into its gang, or into the remnant of it, if it is in one. The pod must be writable.
func (s *Store) join(p *Pod) {
	set, holds := p.PodState.SetName, p.Ours && p.Phase.Holds() && p.NodeName != ""
	switch {
	case !holds:
		p.PodState.Charged, p.recorded = Charged{}, false
	case p.PodState.Charged.Queue != "":
		set = p.PodState.Charged.Set
	}
	id, known := s.gangIDs[p.home()]
	if known && holds {
		queue := s.gangs.get(int32(id)).Queue
		if asked := cmp.Or(queue, s.opts.DefaultQueue); p.PodState.Charged.Queue == "" && asked != "" {
			p.PodState.Charged = Charged{Queue: asked, Gang: p.home(), Set: set, Fixed: !s.gangs.get(int32(id)).Preemptible}
		}
		known = queue == p.PodState.Charged.Queue
	}
	if !known {
		id = None
		if holds {
			id = s.remnant(p)
		}
		s.wait(p)
	}
	if id == None {
		return
	}
	g := s.gang(id)
	p.Gang, p.Set = id, g.LeafByName(set)
	if g.Key.Remnant() && p.Set == None && len(g.Sets) == 2 {
		p.Set = g.LeafByName(DefaultSet) // nothing is known of the sets it had
	}
	g.Pods = append(g.Pods, p.ID)
	s.count(g, p, 1)
}

// wait lists a pod with those that go to a gang as soon as it is there, and in their queue.
func (s *Store) wait(p *Pod) {
	if p.home().Name == "" {
		return
	}
	lost := s.lostPods[p.home()]
	if lost == nil {
		lost = map[PodID]struct{}{}
		s.lostPods[p.home()] = lost
	}
	lost[p.ID] = struct{}{}
	if p.Ours && p.Phase == Pending {
		s.astray = setBit(s.astray, p.ID, true)
	}
}

// part undoes join.
func (s *Store) part(p *Pod) {
	if p.Gang != None {
		g := s.gang(p.Gang)
		g.Pods = without(g.Pods, p.ID)
		s.count(g, p, -1)
	}
	if m := s.lostPods[p.home()]; m != nil {
		if delete(m, p.ID); int(p.ID)>>6 < len(s.astray) {
			s.astray = setBit(s.astray, p.ID, false)
		}
		if len(m) == 0 {
			delete(s.lostPods, p.home())
		}
	}
}

// remnant returns the remnant that a pod that holds room is in, as its former gang is now; None if nobody can be charged.
func (s *Store) remnant(p *Pod) GangID {
	queue := cmp.Or(p.PodState.Charged.Queue, s.opts.DefaultQueue)
	if queue == "" {
		return None
	}
	former := p.home()
	former.Namespace = p.Namespace
	key := RemnantKey(former, queue)
	id, known := s.gangIDs[key]
	if !known {
		id = GangID(s.gangs.alloc(s.epoch))
		s.gangs.set(s.epoch, int32(id), &Gang{ID: id, GangState: GangState{Key: key, UID: key.String()}, epoch: s.epoch})
		s.gangIDs[key] = id
		s.remnants = append(s.remnants, id)
		s.news = s.now
	}
	g := s.gang(id)
	if len(g.Pods) > 0 { // whatever changes its former gang takes all pods out first
		return id
	}
	g.Queue, g.Former, g.FormerUID = queue, p.home(), p.InOtherShard
	if of, ok := s.gangIDs[p.home()]; ok {
		o := s.gangs.get(int32(of))
		g.FormerUID = o.UID
		if !g.formed { // a gang that is edited, made anew or starts elsewhere does not protect anew what it left behind
			g.formed, g.LastStart = true, o.LastStart
		}
		g.Priority, g.Preemptible, g.Created, g.StaleGrace = o.Priority, o.Preemptible, o.Created, o.StaleGrace
		s.plant(g, withoutNear(o.Sets))
	} else {
		g.Priority, g.Preemptible, g.Created, g.LastStart, g.StaleGrace = math.MinInt32, true, Instant{}, Instant{}, Maybe[time.Duration]{}
		s.plant(g, FlatTree(0))
	}
	return id
}

// plant gives a gang its tree: that of the gang before if it is alike, as those of pods by themselves are.
func (s *Store) plant(g *Gang, sets []Set) {
	if len(sets) == 2 {
		if !slices.EqualFunc(s.tree, sets, Set.equal) {
			s.tree = sets
		}
		sets = s.tree
	}
	g.Sets = sets
	g.leaves, g.rest = nil, None
	if len(sets) > fewSets {
		g.leaves = make(map[string]int32, len(sets))
	}
	for i := range sets {
		if sets[i].Leaf && g.leaves != nil {
			g.leaves[sets[i].Name] = int32(i)
		}
		if sets[i].Leaf && sets[i].Rest {
			g.rest = int32(i)
		}
	}
	g.least, g.near = int32(min(g.MinPods(), math.MaxInt32)), shape(sets)
	s.setWaiting(g)
	s.setPartial(g)
}

// withoutNear is a tree for pods that have their places: where they should be is asked no more.
func withoutNear(sets []Set) []Set {
	out := slices.Clone(sets)
	for i := range out {
		out[i].Near = Constraint{}
	}
	return out
}

// sweep forgets the remnants that nobody is in any more.
func (s *Store) sweep() {
	s.remnants = slices.DeleteFunc(s.remnants, func(id GangID) bool {
		g := s.gangs.get(int32(id))
		if len(g.Pods) > 0 {
			return false
		}
		delete(s.gangIDs, g.Key)
		s.gangs.release(s.epoch, int32(id))
		s.setPending(id, false)
		s.partial, s.odd = setBit(s.partial, id, false), setBit(s.odd, id, false)
		return true
	})
}

// unsaid is the record that this Store alone knows of; the zero value if the pod's objects say as much.
func (p *Pod) unsaid(g *Gang) Charged {
	switch {
	case p.recorded || g == nil || g.Key == p.PodState.Gang && p.PodState.Charged.Set == p.PodState.SetName && p.PodState.Charged.Fixed == !g.Preemptible:
		return Charged{}
	case g.Key.Remnant() && p.PodState.Charged.Queue == "": // by Options, which another Store need not have
		return Charged{Queue: g.Queue, Gang: p.home(), Set: p.PodState.SetName}
	}
	return p.PodState.Charged
}

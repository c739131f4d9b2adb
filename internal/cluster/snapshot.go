package cluster

import (
	"iter"
	"math/bits"
	"sort"
	"sync"
	"sync/atomic"
)

// Snapshot is the cluster at one moment: immutable, safe for any number of readers, cheap to hold.
type Snapshot struct {
	// Now is the moment; the only clock the engine has.
	Now Instant
	// Generation grows with every change of the Store. Equal generations of one Store mean equal content (Now apart).
	Generation uint64
	// StaticGen is the largest Node.StaticGen: unchanged, no node changed its labels, taints, problem or allocatable.
	StaticGen uint64
	// Dims is the dimension table all vectors of the snapshot are over.
	Dims Dims
	// NodeOrder lists all nodes by name. QueueOrder lists all queues by name.
	NodeOrder  []NodeID
	QueueOrder []QueueID
	// Lost are the queues that there are no objects of and that pods hold room of, by name, with what they hold and nothing else.
	Lost []*Queue
	// News is when the cluster last changed by other than our own decisions, by the time of the snapshot
	// before: a node, a queue or a gang came, went or was edited, or a pod ended. 0 for not since the Store began.
	News Instant
	// LeastDeviceUnits is Node.DeviceUnits of the node whose GPUs have the least memory; 0 while no node says.
	LeastDeviceUnits DeviceUnits
	// Holds are the promises of room that stand, by ID.
	Holds []Hold
	// Origin identifies the Store: generations of different origins cannot be compared, and caches must not outlive one.
	Origin *Origin

	nodes      table[Node]
	pods       table[Pod]
	gangs      table[Gang]
	queues     table[Queue]
	pending    []uint64
	partial    []uint64
	odd        []uint64
	astray     []uint64
	answers    map[string]RememberedAnswer
	objects    map[ObjectKind]map[string]any
	antiTerm   int
	preferring int

	legacySlices int
	demands      []Demand
	frozen       map[Frozen]Instant
	topologies   map[string]*Topology
	keys         *gangKeys
}

// gangKeys are the gangs of a snapshot by key, made when somebody asks often.
type gangKeys struct {
	asked atomic.Int32
	once  sync.Once
	of    map[Key]GangID
}

// keysAfter is how many questions a look at each gang answers, before there is an index: most snapshots are asked less, and an index of ten thousand is megabytes.
const keysAfter = 8

// Node returns a node by ID, nil for None.
func (s *Snapshot) Node(id NodeID) *Node { return s.nodes.get(int32(id)) }

// Pod returns a pod by ID, nil for None.
func (s *Snapshot) Pod(id PodID) *Pod { return s.pods.get(int32(id)) }

// Gang returns a gang by ID, nil for None.
func (s *Snapshot) Gang(id GangID) *Gang { return s.gangs.get(int32(id)) }

// Queue returns a queue by ID, nil for None.
func (s *Snapshot) Queue(id QueueID) *Queue { return s.queues.get(int32(id)) }

// MaxNodeID and its kin bound the IDs in use: every ID is below.
func (s *Snapshot) MaxNodeID() int { return int(s.nodes.n) }

// MaxPodID is the exclusive upper bound of pod IDs.
func (s *Snapshot) MaxPodID() int { return int(s.pods.n) }

// MaxGangID is the exclusive upper bound of gang IDs.
func (s *Snapshot) MaxGangID() int { return int(s.gangs.n) }

// MaxQueueID is the exclusive upper bound of queue IDs.
func (s *Snapshot) MaxQueueID() int { return int(s.queues.n) }

// EachPod calls f for every pod in ID order, which means nothing; sort before it can matter.
func (s *Snapshot) EachPod(f func(*Pod)) { s.pods.each(f) }

// EachGang calls f for every gang in ID order.
func (s *Snapshot) EachGang(f func(*Gang)) { s.gangs.each(f) }

// PendingGangs yields the gangs that have at least one pending or gated pod of ours, in ID order.
func (s *Snapshot) PendingGangs() iter.Seq[*Gang] {
	return func(yield func(*Gang) bool) {
		each(s.pending, func(id GangID) bool { return yield(s.Gang(id)) })
	}
}

// PartialGangs yields, in ID order, the gangs that have active pods and may have fewer than their minimum, and those whose
// object says that they are stale.
func (s *Snapshot) PartialGangs() iter.Seq[*Gang] {
	return func(yield func(*Gang) bool) { each(s.partial, func(id GangID) bool { return yield(s.Gang(id)) }) }
}

// OddGangs yields, in ID order, the gangs whose pods hold room otherwise than their objects read: remnants, and gangs with stray
// pods.
func (s *Snapshot) OddGangs() iter.Seq[*Gang] {
	return func(yield func(*Gang) bool) { each(s.odd, func(id GangID) bool { return yield(s.Gang(id)) }) }
}

// Astray yields, in ID order, the pods of ours that wait and ask for a gang that is not there: nothing is tried for them, and no gang's trace names them.
func (s *Snapshot) Astray() iter.Seq[*Pod] {
	return func(yield func(*Pod) bool) { each(s.astray, func(id PodID) bool { return yield(s.Pod(id)) }) }
}

// each calls f for the members of a bitset, in order, until it says no.
func each[I GangID | PodID](set []uint64, f func(I) bool) {
	for w, word := range set {
		for word != 0 {
			b := bits.TrailingZeros64(word)
			word &^= 1 << b
			if !f(I(w<<6 | b)) {
				return
			}
		}
	}
}

// NodeByName finds a node by binary search; nil when there is none.
func (s *Snapshot) NodeByName(name string) *Node {
	i := sort.Search(len(s.NodeOrder), func(i int) bool { return s.Node(s.NodeOrder[i]).Name >= name })
	if i < len(s.NodeOrder) {
		if n := s.Node(s.NodeOrder[i]); n.Name == name {
			return n
		}
	}
	return nil
}

// QueueByName finds a queue by binary search; nil when there is none.
func (s *Snapshot) QueueByName(name string) *Queue {
	i := sort.Search(len(s.QueueOrder), func(i int) bool { return s.Queue(s.QueueOrder[i]).Name >= name })
	if i < len(s.QueueOrder) {
		if q := s.Queue(s.QueueOrder[i]); q.Name == name {
			return q
		}
	}
	return nil
}

// GangByKey finds a gang; nil when there is none. For people's questions, not for hot paths: each of the first ones of a snapshot costs a pass over
// all gangs.
func (s *Snapshot) GangByKey(k Key) *Gang {
	if s.keys.asked.Add(1) <= keysAfter {
		for _, p := range s.gangs.pages {
			for _, g := range p.entries {
				if g != nil && g.Key == k {
					return g
				}
			}
		}
		return nil
	}
	s.keys.once.Do(func() {
		s.keys.of = make(map[Key]GangID, s.gangs.n)
		s.gangs.each(func(g *Gang) { s.keys.of[g.Key] = g.ID })
	})
	if id, ok := s.keys.of[k]; ok {
		return s.Gang(id)
	}
	return nil
}

// RememberedAnswer returns the answer to a question that is remembered.
func (s *Snapshot) RememberedAnswer(question string) (RememberedAnswer, bool) {
	r, ok := s.answers[question]
	return r, ok && r.Until.After(s.Now)
}

// Object returns an object carried for filters, nil when there is none.
func (s *Snapshot) Object(kind ObjectKind, key string) any { return s.objects[kind][key] }

// Objects returns all carried objects of a kind by key. The map is shared: callers only read it.
func (s *Snapshot) Objects(kind ObjectKind) map[string]any { return s.objects[kind] }

// HasAntiAffinity says whether any pod of the snapshot carries a required anti-affinity term, which makes other pods'
// feasibility depend on its place.
func (s *Snapshot) HasAntiAffinity() bool { return s.antiTerm > 0 }

// HasPodPreferences says whether any pod of the snapshot has terms that bear on scores; see Class.PrefersPods.
func (s *Snapshot) HasPodPreferences() bool { return s.preferring > 0 }

// HasLegacySlices says whether any pod of the snapshot has slices of GPUs by annotation, which nobody else on its node may
// then ask for by name.
func (s *Snapshot) HasLegacySlices() bool { return s.legacySlices > 0 }

// Origin is the identity of a Store.
type Origin struct{ _ byte }

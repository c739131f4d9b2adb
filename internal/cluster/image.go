package cluster

import (
	"cmp"
	"maps"
	"slices"
)

// Image is a Snapshot as plain data: the events that make it and what its Store remembered beyond them. A Store made from
// it (Store) gives a Snapshot on which the same is decided, byte for byte. It shares slices and maps with the snapshot
// and is not written to.
type Image struct {
	// Now is the moment.
	Now Instant
	// Dims are the names of all dimensions, in the order of their indices: plans speak of vectors over them.
	Dims []string
	// Events are the objects as they stand, what is assumed of them included: nodes, topologies, queues, usage, gangs, pods, and what
	// is carried for filters, in this order, each kind sorted by name.
	Events []Event
	Memory Memory
}

// Image returns the snapshot as plain data: O(objects).
func (s *Snapshot) Image() Image {
	im := Image{Now: s.Now, Dims: slices.Clone(s.Dims.names), Events: s.events(func(*Pod) bool { return false }), Memory: s.Memory()}
	for _, kind := range slices.Sorted(maps.Keys(s.objects)) {
		of := s.objects[kind]
		for _, key := range slices.Sorted(maps.Keys(of)) {
			im.Events = append(im.Events, ObjectState{Kind: kind, Key: key, Object: of[key]})
		}
	}
	return im
}

// Store returns a Store that knows what the image says.
func (im *Image) Store(o Options) *Store {
	s := NewStore(o)
	for _, name := range im.Dims {
		s.dims, _ = s.dims.With(name)
	}
	s.Apply(im.Events...)
	s.Restore(im.Memory)
	return s
}

// events are those that make everything but what is carried for filters, in the order of Image.Events.
func (s *Snapshot) events(absent func(*Pod) bool) []Event {
	out := make([]Event, 0, len(s.NodeOrder)+len(s.topologies)+len(s.QueueOrder)+1+s.MaxGangID()+s.MaxPodID())
	for _, id := range s.NodeOrder {
		out = append(out, s.Node(id).State(s.Dims))
	}
	for _, name := range slices.Sorted(maps.Keys(s.topologies)) {
		out = append(out, s.topologies[name].TopologyState)
	}
	for _, id := range s.QueueOrder {
		out = append(out, s.Queue(id).State(s.Dims))
	}
	if usage := s.usage(); len(usage) > 0 {
		out = append(out, UsageState{Queues: usage})
	}
	gangs := make([]*Gang, 0, s.MaxGangID())
	s.EachGang(func(g *Gang) {
		if !g.Key.Remnant() { // these follow from the pods
			gangs = append(gangs, g)
		}
	})
	slices.SortFunc(gangs, func(a, b *Gang) int { return a.Key.compare(b.Key) })
	for _, g := range gangs {
		out = append(out, g.GangState)
	}
	pods := make([]*Pod, 0, s.MaxPodID())
	s.EachPod(func(p *Pod) {
		if !absent(p) {
			pods = append(pods, p)
		}
	})
	slices.SortFunc(pods, func(a, b *Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	specs := map[*Class]PodState{} // whatever pods of a class say alike is there once
	for _, p := range pods {
		alike, ok := specs[p.Class]
		if !ok {
			alike = p.Class.state(s.Dims)
			specs[p.Class] = alike
		}
		out = append(out, p.state(&alike))
	}
	return out
}

// Quantities names the dimensions of a vector, zeros left out. It is never nil.
func (d Dims) Quantities(r Resources) []Quantity { return d.some(r) }

// Vector is the vector over d of named quantities. A name that d does not have is left out, and reported.
func (d Dims) Vector(qs []Quantity) (r Resources, unknown string) {
	for _, q := range qs {
		i, ok := d.Index(q.Name)
		if !ok {
			unknown = q.Name
			continue
		}
		r.Set(i, q.Value)
	}
	return r, unknown
}

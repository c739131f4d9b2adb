package numa

import (
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// demand is what pods of a class want aligned.
type demand struct {
	each []group // by container
	pod  []group // as one; nil before somebody asks
}

func (d *demand) groups(s cluster.ZoneScope) []group {
	if s != cluster.PerPod {
		return d.each
	}
	if d.pod == nil && len(d.each) > 0 {
		d.pod = []group{whole(d.each)}
	}
	return d.pod
}

// demand returns what pods of the class want aligned.
func (i *instance) demand(c *cluster.Class) *demand {
	if d, ok := i.demands[c.ID]; ok {
		return d
	}
	n := 0
	for k := range c.Align {
		n += len(c.Align[k].Amounts)
	}
	d, all := &demand{}, make([]amount, 0, n)
	for k := range c.Align {
		from := len(all)
		for _, q := range c.Align[k].Amounts {
			if q.Value <= 0 || len(i.ignore) > 0 && i.ignore[q.Name] {
				continue
			}
			if dim, ok := i.snap.Dims.Index(q.Name); ok {
				all = append(all, amount{dim, q.Value})
			}
		}
		if len(all) > from {
			if d.each == nil {
				d.each = make([]group, 0, len(c.Align)-k)
			}
			d.each = append(d.each, group{c.Align[k].Role, all[from:len(all):len(all)]})
		}
	}
	i.demands[c.ID] = d
	return d
}

// whole is what a pod takes at the most at any moment of its life, as one group.
func whole(each []group) group {
	var running, peak []amount // of the same resources
	for k := range each {
		for _, a := range each[k].want {
			at := slices.IndexFunc(running, func(b amount) bool { return b.res == a.res })
			if at < 0 {
				at, running, peak = len(running), append(running, amount{res: a.res}), append(peak, amount{res: a.res})
			}
			running[at].x += a.x
			peak[at].x = max(peak[at].x, running[at].x)
		}
		if each[k].role == cluster.Before {
			for _, a := range each[k].want {
				running[slices.IndexFunc(running, func(b amount) bool { return b.res == a.res })].x -= a.x
			}
		}
	}
	return group{want: peak}
}

// zoneLedger is what the zones of one node have, in the session as it stands.
type zoneLedger struct {
	shape
	node cluster.NodeID
	like string // what of the shape a placement depends on, "" before somebody asks
	idle matrix // free now, and not taken by a placement of this run
	give matrix // idle, and what is being given back, minus what is nominated to take it
	owed matrix // give when the run began, where something of it was below zero; otherwise empty
}

// short is how far below zero an entry of give was when the run began; 0 or less.
func (l *zoneLedger) short(k int) int64 {
	if len(l.owed.v) == 0 {
		return 0
	}
	return min(0, l.owed.v[k])
}

// ledger returns a node's ledger, nil for a node that aligns nothing.
func (i *instance) ledger(n *cluster.Node) *zoneLedger {
	if i.widest == 0 {
		return nil
	}
	if l, ok := i.nodes[n.ID]; ok {
		return l
	}
	var l *zoneLedger
	z := i.zones(n.Name)
	if z != nil && len(z.Zones) > 0 && z.Policy != cluster.ZonesIgnored {
		l = i.build(n, z)
	}
	i.nodes[n.ID] = l
	return l
}

func (i *instance) build(n *cluster.Node, z *cluster.NodeZones) *zoneLedger {
	l := &zoneLedger{shape: newShape(z, i.snap.Dims, i.ignore), node: n.ID}
	l.idle = l.alloc.clone()
	if !i.reconstruct {
		l.idle = l.read(z, i.snap.Dims, func(z *cluster.Zone) []cluster.Quantity { return z.Available })
	}
	released := newMatrix(len(l.names), l.alloc.width)
	for _, id := range n.Pods { // sums, each pod on its own
		p := i.snap.Pod(id)
		held := l.record(p, i.snap.Dims)
		// A node's own figures have in them what runs; what is only on its way they cannot know of.
		if i.reconstruct || p.Phase == cluster.Binding || p.Phase == cluster.Bound {
			l.idle.plus(held, -1)
		}
		if p.Phase == cluster.Releasing {
			released.plus(held, 1)
		}
	}
	l.give = l.idle.clone()
	l.give.plus(released, 1)
	if slices.ContainsFunc(l.give.v, func(x int64) bool { return x < 0 }) {
		l.owed = l.give.clone()
	}
	return l
}

// newShape reads what a node says of its zones.
func newShape(z *cluster.NodeZones, dims cluster.Dims, ignore map[string]bool) shape {
	s := shape{policy: z.Policy, scope: z.Scope, local: make([]int32, dims.Len()), holders: z.Pods}
	for d := range s.local {
		s.local[d] = -1
	}
	for k := range z.Zones {
		s.names = append(s.names, z.Zones[k].Name)
		for _, q := range z.Zones[k].Allocatable {
			if d, ok := dims.Index(q.Name); ok && q.Value > 0 && !ignore[q.Name] && s.local[d] < 0 {
				s.local[d] = int32(len(s.dims))
				s.dims = append(s.dims, d)
			}
		}
	}
	s.alloc = s.read(z, dims, func(z *cluster.Zone) []cluster.Quantity { return z.Allocatable })
	return s
}

// read lays out one kind of the zones' amounts.
func (s *shape) read(z *cluster.NodeZones, dims cluster.Dims, of func(*cluster.Zone) []cluster.Quantity) matrix {
	m := newMatrix(len(s.names), len(s.dims))
	for k := range z.Zones {
		for _, q := range of(&z.Zones[k]) {
			if d, ok := dims.Index(q.Name); ok && s.index(d) >= 0 {
				m.add(k, s.index(d), q.Value)
			}
		}
	}
	return m
}

// record is what is on record for a pod, by the node's word or else by the pod's, of each resource no more than the pod asks for at all: a pod's annotations are
// its owner's to write, and must not take zones from others.
func (s *shape) record(p *cluster.Pod, dims cluster.Dims) matrix {
	m := newMatrix(len(s.names), len(s.dims))
	shares, told := s.holders[p.UID]
	if !told {
		shares = p.Zones
	}
	if len(shares) == 0 {
		return m
	}
	left := make([]int64, len(s.dims))
	for r, d := range s.dims {
		left[r] = p.Class.Requests.At(d)
	}
	for k := range shares {
		z := slices.Index(s.names, shares[k].Zone)
		if z < 0 {
			continue
		}
		for _, q := range shares[k].Amounts {
			if d, ok := dims.Index(q.Name); ok && s.index(d) >= 0 {
				r := s.index(d)
				x := max(0, min(q.Value, left[r]))
				left[r] -= x
				m.add(z, r, x)
			}
		}
	}
	return m
}

// shares is a placement as plain data, zones in order.
func (s *shape) shares(taken matrix, dims cluster.Dims) []cluster.ZoneShare {
	var out []cluster.ZoneShare
	for z, name := range s.names {
		share := cluster.ZoneShare{Zone: name}
		for r, d := range s.dims {
			if x := taken.at(z, r); x > 0 {
				share.Amounts = append(share.Amounts, cluster.Quantity{Name: dims.Name(d), Value: x})
			}
		}
		if len(share.Amounts) > 0 {
			slices.SortFunc(share.Amounts, func(a, b cluster.Quantity) int { return strings.Compare(a.Name, b.Name) })
			out = append(out, share)
		}
	}
	return out
}

// later is what a node's zones will have once all that is being released has gone, without what is held for others.
func (i *instance) later(l *zoneLedger) matrix {
	m := l.give
	fresh := false
	for h := range i.view.Held(l.node) {
		if len(h.Zones) == 0 {
			continue
		}
		if !fresh {
			m, fresh = m.clone(), true
		}
		for k := range h.Zones {
			z := slices.Index(l.names, h.Zones[k].Zone)
			if z < 0 {
				continue
			}
			for _, q := range h.Zones[k].Amounts {
				if d, ok := i.snap.Dims.Index(q.Name); ok && l.index(d) >= 0 {
					m.add(z, l.index(d), -q.Value)
				}
			}
		}
	}
	return m
}

// now is what a node's zones have and nobody is promised.
func (i *instance) now(l *zoneLedger) matrix {
	m := i.later(l).clone()
	for k, x := range l.idle.v {
		m.v[k] = min(m.v[k], x)
	}
	return m
}

// placement is where a pod of this run is.
type placement struct {
	on    *zoneLedger
	taken matrix
}

// entry is one operation as the ledger took it.
type entry struct {
	on    *zoneLedger // nil when no zone was concerned
	taken matrix
	was   placement // of the pod, before; its ledger is nil for none
}

// Done implements policy.Observer.
func (i *instance) Done(op ledger.Op) {
	if i.widest == 0 {
		return
	}
	e := entry{was: i.placed[op.Pod.ID]}
	if l := i.ledger(i.snap.Node(op.Node)); l != nil {
		e.on = l
		e.taken = i.take(l, op)
		i.move(op.Verb, e, 1)
	}
	i.journal = append(i.journal, e)
	if e.on != nil && chooses(op.Verb) {
		i.placed[op.Pod.ID] = placement{e.on, e.taken}
	} else {
		delete(i.placed, op.Pod.ID)
	}
}

// Undone implements policy.Observer.
func (i *instance) Undone(op ledger.Op) {
	if i.widest == 0 {
		return
	}
	e := i.journal[len(i.journal)-1]
	i.journal = i.journal[:len(i.journal)-1]
	if e.on != nil {
		i.move(op.Verb, e, -1)
	}
	if e.was.on != nil {
		i.placed[op.Pod.ID] = e.was
	} else {
		delete(i.placed, op.Pod.ID)
	}
}

// chooses says whether an operation gives a pod zones it did not have.
func chooses(v ledger.Verb) bool { return v == ledger.Bind || v == ledger.Nominate || v == ledger.Move }

// take returns what an operation moves: what is on record for a pod that goes or stays after all, and for one that comes
// the zones it is expected to get. One that is let in although its zones are not there takes none.
func (i *instance) take(l *zoneLedger, op ledger.Op) matrix {
	if !chooses(op.Verb) {
		return l.record(op.Pod, i.snap.Dims)
	}
	if op.Verb == ledger.Bind {
		if m, v := i.place(l, op.Pod.Class, i.now(l)); m.v != nil && (v == fits || l.policy == cluster.ZonesBestEffort) {
			return m
		}
	}
	if m, _ := i.place(l, op.Pod.Class, i.later(l)); m.v != nil && op.Verb != ledger.Bind {
		return m
	}
	return newMatrix(len(l.names), len(l.dims))
}

// move carries out an operation (sign 1) or takes it back (-1).
func (i *instance) move(v ledger.Verb, e entry, sign int64) {
	switch v {
	case ledger.Bind:
		e.on.idle.plus(e.taken, -sign)
		e.on.give.plus(e.taken, -sign)
	case ledger.Evict:
		e.on.give.plus(e.taken, sign)
	default:
		e.on.give.plus(e.taken, -sign)
	}
}

package policy

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// Orders are how the plugins of a face's own order its queues, gangs and pods, those of the first tier first.
type Orders struct {
	// Gangs stand for the order of gangs that all faces share.
	Gangs []GangOrder
	// Entwined says that the place of a queue may change with what any other holds.
	Entwined bool

	leaves []LeafOrder
	pods   []PodOrder
}

// lastOrders are those asked for last: comparisons come in great numbers, and of one face.
type lastOrders struct {
	face   string
	orders *Orders
}

// order takes in how a tier of a face's own orders.
func (ps *Plugins) order(face string, tier *Plugins) {
	if ps.orders == nil {
		ps.orders = map[string]*Orders{}
	}
	o := ps.orders[face]
	if o == nil {
		o = &Orders{}
		ps.orders[face] = o
	}
	o.Gangs, o.leaves, o.pods = append(o.Gangs, tier.GangOrder...), append(o.leaves, tier.leafOrder...), append(o.pods, tier.podOrder...)
	for _, l := range tier.leafOrder {
		e, is := l.(Entwined)
		o.Entwined = o.Entwined || is && e.Entwined()
	}
}

// Own returns how a face's own plugins order; nil for a face without a configuration of its own.
func (ps *Plugins) Own(face string) *Orders {
	if len(ps.orders) == 0 {
		return nil
	}
	if ps.last.face != face {
		ps.last = lastOrders{face, ps.orders[face]}
	}
	return ps.last.orders
}

// Entwines says whether some face's queues are entwined.
func (ps *Plugins) Entwines() bool {
	for _, o := range ps.orders { // order: any
		if o.Entwined {
			return true
		}
	}
	return false
}

// CompareLeaves orders two leaf queues of the face: plugins, then age, UID, name.
func (o *Orders) CompareLeaves(l, r *ledger.QueueLedger) int {
	for _, by := range o.leaves {
		if c := by.CompareLeaves(l, r); c != 0 {
			return c
		}
	}
	return cmp.Or(l.Created.Compare(r.Created), cmp.Compare(l.UID, r.UID), cmp.Compare(l.Name, r.Name))
}

// comparePods orders two pods of one set: plugins, then the number at the end of the name; one without comes last.
func (o *Orders) comparePods(l, r *cluster.Pod) int {
	for _, by := range o.pods {
		if c := by.ComparePods(l, r); c != 0 {
			return c
		}
	}
	ln, lok := number(l.Name)
	rn, rok := number(r.Name)
	return cmp.Or(First(lok, rok), cmp.Compare(ln, rn))
}

// number is the number at the end of a name.
func number(name string) (uint64, bool) {
	digits := name[len(strings.TrimRight(name, "0123456789")):]
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// FaceGates says whether the plugins of g's face let its queue, and the queues above it, take request more.
func (ps *Plugins) FaceGates(g *ledger.GangState, request cluster.Resources) Verdict {
	for _, tier := range ps.Faces[g.Key.Face] {
		if v := FirstNo(tier.QueueGates, func(gate QueueGate) Verdict { return gate.CheckQueue(g, request, false) }); !v.Yes() {
			return v
		}
	}
	return Verdict{}
}

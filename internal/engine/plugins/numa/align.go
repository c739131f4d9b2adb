package numa

import (
	"math/bits"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// amount is how much of one resource: a dimension in what pods want, an index of the node's matrices below.
type amount struct {
	res int
	x   int64
}

// group is what a node takes from its zones as one: a container's needs, or a pod's.
type group struct {
	role cluster.ContainerRole
	want []amount
}

// matrix is an amount by zone and resource: zone z's resource r is at z*width+r.
type matrix struct {
	width int
	v     []int64
}

func newMatrix(zones, width int) matrix { return matrix{width, make([]int64, zones*width)} }

func (m matrix) at(z, r int) int64     { return m.v[z*m.width+r] }
func (m matrix) add(z, r int, x int64) { m.v[z*m.width+r] += x }
func (m matrix) clone() matrix         { return matrix{m.width, append([]int64(nil), m.v...)} }

// plus adds o, multiplied by sign.
func (m matrix) plus(o matrix, sign int64) {
	for i, x := range o.v {
		m.v[i] += sign * x
	}
}

// raise makes every entry at least that of o.
func (m matrix) raise(o matrix) {
	for i, x := range o.v {
		m.v[i] = max(m.v[i], x)
	}
}

// span is how many zones something is taken from.
func (m matrix) span() int {
	n := 0
	for z := 0; z*m.width < len(m.v); z++ {
		for _, x := range m.v[z*m.width : (z+1)*m.width] {
			if x > 0 {
				n++
				break
			}
		}
	}
	return n
}

// maxMasks bounds how many combinations of zones are looked at for one group: all there are of up to 14 zones.
const maxMasks = 1 << 14

// shape is what of a node does not change during a run. Its matrices are over the resources that its zones have; what
// none of them has is not aligned.
type shape struct {
	policy cluster.ZonePolicy
	scope  cluster.ZoneScope
	names  []string
	local  []int32 // by dimension: index in the matrices, -1 for a resource that no zone has
	dims   []int   // its inverse
	alloc  matrix

	holders map[string][]cluster.ZoneShare // what the node says that pods have, by UID
}

// index returns where the matrices have a dimension, -1 for nowhere.
func (s *shape) index(dim int) int {
	if dim < len(s.local) {
		return int(s.local[dim])
	}
	return -1
}

// verdict is how a placement came out.
type verdict uint8

const (
	fits    verdict = iota
	short           // the zones have too little left
	never           // even empty zones could not take it as the policy demands
	unknown         // too many combinations of zones to try them all
)

// place takes groups, in the order their containers start in, from what is free, as the kubelet would: each group from
// the zones the policy allows, the lowest first. What init containers take is free again for those that follow. It
// returns the most that is taken of each zone at any moment.
//
// Under best-effort everything is placed: what does not fit anywhere is left out of the result, with the verdict short.
func (s *shape) place(groups []group, free matrix) (matrix, verdict) {
	size := len(free.v)
	room := make([]int64, 3*size)
	at := func(k int) matrix { return matrix{free.width, room[k*size : (k+1)*size : (k+1)*size]} }
	taken, held, left := at(0), at(1), at(2)
	copy(left.v, free.v)
	peak := newMatrix(len(s.names), free.width) // of its own: it outlives the rest
	var buf [8]amount
	known := buf[:0]
	out := fits
	for i := range groups {
		known = s.known(known[:0], groups[i].want)
		if len(known) == 0 {
			continue
		}
		v := s.align(taken, known, left)
		if v != fits {
			if s.policy != cluster.ZonesBestEffort {
				return matrix{}, v
			}
			out = v
		}
		held.plus(taken, 1)
		peak.raise(held)
		if groups[i].role == cluster.Before {
			held.plus(taken, -1)
		} else {
			left.plus(taken, -1)
		}
	}
	return peak, out
}

// known appends what of want the zones have at all, by index in the matrices.
func (s *shape) known(to, want []amount) []amount {
	for _, a := range want {
		if r := s.index(a.res); r >= 0 {
			to = append(to, amount{r, a.x})
		}
	}
	return to
}

// align takes one group's amounts from the zones, and writes down what it took.
func (s *shape) align(taken matrix, want []amount, free matrix) verdict {
	clear(taken.v)
	mask, v := s.choose(want, free)
	if v != fits && s.policy != cluster.ZonesBestEffort {
		return v
	}
	if v != fits {
		mask = 1<<len(s.names) - 1
	}
	for _, a := range want {
		for z := range s.names {
			if mask&(1<<z) != 0 {
				x := max(0, min(a.x, free.at(z, a.res)))
				taken.add(z, a.res, x)
				a.x -= x
			}
		}
	}
	return v
}

// choose returns the zones a group gets, as a bit mask.
//
// The kubelet asks each resource for combinations of zones that have enough of it free, prefers those that are no wider
// than an empty node would need, and wants all resources to agree on one. So under restricted the narrowest widths of all
// resources must be equal, and it is the lowest combination of that width with enough of everything. Under best-effort it
// is the narrowest that there is.
func (s *shape) choose(want []amount, free matrix) (uint64, verdict) {
	n := len(s.names)
	if s.policy == cluster.ZonesSingle {
		possible := false
		for z := range n {
			if enough(want, free, 1<<z) {
				return 1 << z, fits
			}
			possible = possible || enough(want, s.alloc, 1<<z)
		}
		if !possible {
			return 0, never
		}
		return 0, short
	}
	budget := maxMasks
	if s.policy == cluster.ZonesRestricted {
		width := 0
		for _, a := range want {
			w := s.narrowest(a)
			if w == 0 || width != 0 && w != width {
				return 0, never
			}
			width = w
		}
		return lowest(n, width, &budget, func(mask uint64) bool { return enough(want, free, mask) })
	}
	for width := 1; width <= n; width++ {
		if m, v := lowest(n, width, &budget, func(mask uint64) bool { return enough(want, free, mask) }); v != short {
			return m, v
		}
	}
	return 0, short
}

// narrowest is the number of zones an empty node would need for an amount; 0 if all of them have too little.
func (s *shape) narrowest(a amount) int {
	var buf [16]int64
	sizes := buf[:0]
	for z := range s.names {
		sizes = append(sizes, s.alloc.at(z, a.res))
	}
	for w := 1; w <= len(sizes); w++ {
		for i := w; i < len(sizes); i++ { // the largest of the rest moves to the front
			if sizes[i] > sizes[w-1] {
				sizes[i], sizes[w-1] = sizes[w-1], sizes[i]
			}
		}
		if a.x -= sizes[w-1]; a.x <= 0 {
			return w
		}
	}
	return 0
}

// enough says whether the zones of the mask together have all of want.
func enough(want []amount, free matrix, mask uint64) bool {
	for _, a := range want {
		sum := int64(0)
		for m := mask; m != 0; m &= m - 1 {
			sum += max(0, free.at(bits.TrailingZeros64(m), a.res))
		}
		if sum < a.x {
			return false
		}
	}
	return true
}

// lowest returns the first combination of width out of n zones, lowest number first, for which ok holds. Each look costs
// one of the budget.
func lowest(n, width int, budget *int, ok func(uint64) bool) (uint64, verdict) {
	if width < 1 || width > n {
		return 0, short
	}
	last := uint64(1)<<width - 1
	last <<= n - width
	for m := uint64(1)<<width - 1; ; {
		if *budget--; *budget < 0 {
			return 0, unknown
		}
		if ok(m) {
			return m, fits
		}
		if m == last {
			return 0, short
		}
		low := m & -m // the next larger number with as many bits
		up := m + low
		m = up | (m^up)>>2/low
	}
}

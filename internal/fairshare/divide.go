package fairshare

import (
	"cmp"
	"math/bits"
	"slices"
)

// Queue is one node of the tree of queues, as the division sees it. Amounts have one entry per dimension; short slices
// go on with zeros, limits with Unlimited. The division reads the slices and keeps none of them.
type Queue struct {
	// Parent is the index of the parent queue in Input.Queues, in any order, or -1 at the top level. A queue whose
	// parents do not lead to the top level gets nothing.
	Parent int32

	// Priority decides who divides over-quota resources first among siblings: higher before lower. It has no influence
	// on quota.
	Priority int32

	// Created is the time of creation in any unit. Among equal remainders the older queue goes first.
	Created int64

	// UID names the queue uniquely; it is the last tie-breaker.
	UID string

	// Quota is what the queue gets before anyone gets anything over quota, if it asks for it. Unlimited: all there is.
	Quota []int64

	// Limit is what the queue never exceeds. Unlimited, or a missing entry: no bound.
	Limit []int64

	// Request is what the queue could use now: all that its subtree has allocated plus all that waits there. Divide does not
	// add up a parent's request; see [Divider.AddUp].
	Request []int64

	// Weight is the queue's part of over-quota resources relative to its siblings. Only ratios count, so any fixed-point
	// scale will do if all siblings use it; [Fixed] is one.
	Weight []int64

	// Usage is the part of the cluster that the queue used lately, fixed-point: One is all of it. Without history, nil.
	Usage []int64

	// Held is what the queue's subtree holds, and Served when it was last given something, in any unit, 0 for never. Of queues
	// that get a whole unit or nothing, by equal remainders, those that hold something go first, then those served longest ago.
	Held   []int64
	Served int64
}

// Input is what [Divider.Divide] divides, and over whom.
type Input struct {
	// Total is what the cluster has, per dimension.
	Total []int64

	// Unit is the whole unit that over-quota shares are floored to, per dimension: 1000 for milli-GPU. Missing: 1.
	Unit []int64

	// Shared marks the dimensions that queues share; of the others (pod slots, say) nobody gets a fair share. A missing
	// tail is not shared; nil: all are.
	Shared []bool

	// KValue says how strongly history counts, fixed-point. 0 or less: not at all.
	KValue int64

	// Queues are the nodes of the tree, in any order.
	Queues []Queue
}

// Shares are the fair shares of an input's queues.
type Shares struct {
	dims int
	flat []int64
}

// Of returns the fair share of the queue with that index, per dimension: as many as Input.Total or the longest
// Queue.Request has. The slice belongs to the Divider.
func (s Shares) Of(queue int) []int64 {
	return s.flat[queue*s.dims : (queue+1)*s.dims : (queue+1)*s.dims]
}

// Clone returns shares that do not belong to a Divider.
func (s Shares) Clone() Shares { return Shares{dims: s.dims, flat: slices.Clone(s.flat)} }

// Divider divides. Its zero value is ready to use; it keeps buffers, so that dividing again over a tree of similar size
// allocates nothing. It is not safe for concurrent use.
type Divider struct {
	tree   tree
	flat   []int64
	claims []claim
	active []int32 // positions in claims that play the current round
	rests  []rest
	// waiting are those of equal rests that have nothing yet.
	waiting []rest
}

// claim is what one queue of a sibling set has to say about one dimension.
type claim struct {
	fair   int64  // granted so far
	need   int64  // requestable and not granted yet
	weight int64  // over-quota weight
	usage  int64  // part of the cluster used lately
	held   int64  // what the queue holds
	served int64  // when it was served last
	part   uint64 // s of the current round, scaled
}

// rest is the fraction of a unit that flooring took from a queue: whole base units, and a numerator below the Σ s of
// the last round of its priority, which is the same for all queues of the priority.
type rest struct {
	band  int32 // priority, 0 being the highest
	pos   int32 // position among the siblings: older queues first
	whole int64
	part  uint64
}

// Divide returns the fair share of every queue. The result is valid until the next call. The package comment gives the
// formula. It takes time proportional to queues × dimensions plus sorting; a sibling set needs as many rounds as it has
// queues at worst.
func (d *Divider) Divide(in *Input) Shares {
	dims := len(in.Total)
	for i := range in.Queues {
		dims = max(dims, len(in.Queues[i].Request))
	}
	d.flat = resize(d.flat, len(in.Queues)*dims)
	clear(d.flat)
	out := Shares{dims: dims, flat: d.flat}

	d.tree.build(in.Queues)
	boost := reduce(in.KValue)
	for dim := range dims {
		if sharesDim(in.Shared, dim) {
			d.siblings(in, out, boost, d.tree.children(-1), dim, at(in.Total, dim))
		}
	}
	for _, parent := range d.tree.walk {
		group := d.tree.children(parent)
		if len(group) == 0 {
			continue
		}
		for dim, total := range out.Of(int(parent)) {
			if sharesDim(in.Shared, dim) {
				d.siblings(in, out, boost, group, dim, total)
			}
		}
	}
	return out
}

// siblings divides one dimension of a parent's share over its children, which are sorted by rank.
func (d *Divider) siblings(in *Input, out Shares, boost factor, group []int32, dim int, total int64) {
	d.claims = resize(d.claims, len(group))
	left := total
	wanted := false
	for pos, i := range group {
		q := &in.Queues[i]
		requestable := atMost(at(q.Request, dim), limitAt(q.Limit, dim))
		quota := quotaAt(q.Quota, dim)
		if quota == Unlimited {
			quota = total
		}
		fair := min(quota, requestable)
		d.claims[pos] = claim{
			fair:   fair,
			need:   requestable - fair,
			weight: min(at(q.Weight, dim), MaxWeight),
			usage:  min(at(q.Usage, dim), MaxFactor),
			held:   at(q.Held, dim),
			served: q.Served,
		}
		wanted = wanted || fair < requestable
		left -= min(left, fair)
	}
	if left > 0 && wanted {
		unit := unitAt(in.Unit, dim)
		d.rests = d.rests[:0]
		band := int32(0)
		for low := 0; low < len(group) && left > 0; band++ {
			high := low + 1
			for high < len(group) && in.Queues[group[high]].Priority == in.Queues[group[low]].Priority {
				high++
			}
			left = d.overQuota(boost, band, low, high, unit, left)
			low = high
		}
		d.remainders(boost, unit, left)
	}
	for pos, i := range group {
		out.flat[int(i)*out.dims+dim] = d.claims[pos].fair
	}
}

// overQuota divides what is left over the claims of one priority, low <= position < high, and returns what it leaves.
func (d *Divider) overQuota(boost factor, band int32, low, high int, unit, left int64) int64 {
	d.active = d.active[:0]
	for pos := low; pos < high; pos++ {
		if c := &d.claims[pos]; c.need > 0 && c.weight > 0 {
			d.active = append(d.active, int32(pos))
		}
	}
	first := len(d.rests)
	for again := true; again && left > 0 && len(d.active) > 0; {
		sum := d.weigh(boost)
		if sum == 0 {
			break
		}
		again = false
		d.rests = d.rests[:first]
		unsatisfied := d.active[:0]
		for amount, i := left, 0; i < len(d.active); i++ {
			pos := d.active[i]
			c := &d.claims[pos]
			share, fraction := portion(amount, c.part, sum)
			grant := c.need
			if c.need > share {
				grant = share - share%unit
				d.rests = append(d.rests, rest{band: band, pos: pos, whole: share % unit, part: fraction})
				unsatisfied = append(unsatisfied, pos)
			} else if c.need < share || fraction > 0 {
				again = true
			}
			c.fair += grant
			c.need -= grant
			left -= grant
		}
		d.active = unsatisfied
	}
	return left
}

// remainders hands out what flooring left, at most one unit per queue. Of equal remainders, those go first who used less for their
// weight, where that counts: of those who used too much for a share, none has a remainder.
func (d *Divider) remainders(boost factor, unit, left int64) {
	if left <= 0 || len(d.rests) == 0 {
		return
	}
	used := func(a, b rest) int {
		if boost.num == 0 {
			return 0
		}
		l, r := &d.claims[a.pos], &d.claims[b.pos]
		lHi, lLo := bits.Mul64(uint64(l.usage), uint64(r.weight))
		rHi, rLo := bits.Mul64(uint64(r.usage), uint64(l.weight))
		return cmp.Or(cmp.Compare(lHi, rHi), cmp.Compare(lLo, rLo))
	}
	slices.SortFunc(d.rests, func(a, b rest) int {
		return cmp.Or(cmp.Compare(a.band, b.band), cmp.Compare(b.whole, a.whole), cmp.Compare(b.part, a.part), used(a, b), cmp.Compare(a.pos, b.pos))
	})
	for low, high := 0, 0; low < len(d.rests); low = high {
		for high = low + 1; high < len(d.rests) && d.rests[high].equal(d.rests[low]) && used(d.rests[high], d.rests[low]) == 0; {
			high++
		}
		d.turns(d.rests[low:high])
	}
	for _, r := range d.rests {
		c := &d.claims[r.pos]
		grant := min(unit, left, c.need)
		c.fair += grant
		c.need -= grant
		if left -= grant; left == 0 {
			return
		}
	}
}

// equal says whether the remainders of two queues are.
func (r rest) equal(o rest) bool { return r.band == o.band && r.whole == o.whole && r.part == o.part }

// turns orders, among queues of equal remainders, those that have nothing yet: each of them gets a unit or nothing. They take
// turns at the places that they have by age: who holds a unit keeps it, then it goes to who has gone without for longest.
func (d *Divider) turns(rests []rest) {
	d.waiting = d.waiting[:0]
	for _, r := range rests {
		if d.claims[r.pos].fair == 0 {
			d.waiting = append(d.waiting, r)
		}
	}
	slices.SortFunc(d.waiting, func(l, r rest) int {
		a, b := &d.claims[l.pos], &d.claims[r.pos]
		if (a.held > 0) != (b.held > 0) {
			return falseFirst(b.held > 0)
		}
		return cmp.Or(cmp.Compare(a.served, b.served), cmp.Compare(l.pos, r.pos))
	})
	next := 0
	for i := range rests {
		if d.claims[rests[i].pos].fair == 0 { // a place of theirs: nothing is granted meanwhile
			rests[i] = d.waiting[next]
			next++
		}
	}
}

// factor is the k-value as a fraction in lowest terms.
type factor struct{ num, den int64 }

func reduce(k int64) factor {
	k = max(0, min(k, MaxFactor))
	g := gcd(One, k)
	return factor{num: k / g, den: One / g}
}

// weigh computes each active claim's part of the round and returns their sum.
//
// With n = w/W and k = num/den, n + k·(n − usage) is, up to a factor that all queues share,
//
//	w·(num+den)·One − num·usage·W
//
// which is exact in integers. Weights are divided by their common divisor first. Only if the sum could still exceed 64
// bits (large weights of many different digits) all parts are shifted down together, which moves a share by a trifle.
func (d *Divider) weigh(boost factor) uint64 {
	if boost.num == 0 {
		var sum uint64
		for _, pos := range d.active {
			c := &d.claims[pos]
			c.part = uint64(c.weight)
			sum += c.part
		}
		return sum
	}
	common := int64(0)
	for _, pos := range d.active {
		common = gcd(d.claims[pos].weight, common)
	}
	var weights uint64
	for _, pos := range d.active {
		weights += uint64(d.claims[pos].weight / common)
	}
	scale := uint64((boost.num + boost.den) * One)
	most, _ := bits.Mul64(weights, scale) // what no sum exceeds, in units of 2^64
	shift := bits.Len64(most)
	var sum uint64
	for _, pos := range d.active {
		c := &d.claims[pos]
		gainHi, gainLo := bits.Mul64(uint64(c.weight/common), scale)
		lossHi, lossLo := bits.Mul64(uint64(boost.num*c.usage), weights)
		lo, borrow := bits.Sub64(gainLo, lossLo, 0)
		hi, borrow := bits.Sub64(gainHi, lossHi, borrow)
		if borrow != 0 {
			c.part = 0
			continue
		}
		c.part = lo>>shift | hi<<(64-shift)
		sum += c.part
	}
	return sum
}

package cluster

import "math/bits"

// MaxSum is what sums are read as at most, and its negative at least: 2^61, far beyond any cluster, and far enough from the
// end of an int64 that two such sums can be added.
const MaxSum = int64(1) << 61

// AddCapped adds o to r in place, growing r as needed, and stops at ±MaxSum: for totals of what people ask for, which nobody
// takes apart again. Ledgers that are taken apart use Add, on amounts that somebody has.
func (r *Resources) AddCapped(o Resources) {
	r.grow(len(o))
	v := *r
	for i, x := range o {
		v[i] = capped(v[i], x)
	}
}

// capped adds two numbers, one of which may be anything, within ±MaxSum.
func capped(a, b int64) int64 {
	a, b = max(-MaxSum, min(a, MaxSum)), max(-MaxSum, min(b, MaxSum))
	return max(-MaxSum, min(a+b, MaxSum))
}

// sum adds up what any number of pods ask for, each whatever it likes, in 128 bits: add and sub are exact inverses, and what
// is read stops at ±MaxSum.
type sum []wide

func (s *sum) add(o Resources) { s.move(o, false) }
func (s *sum) sub(o Resources) { s.move(o, true) }

func (s *sum) move(o Resources, down bool) {
	for i, x := range o {
		if x != 0 {
			if down {
				x = -x
			}
			s.bump(i, x)
		}
	}
}

// bump adds x to one dimension.
func (s *sum) bump(dim int, x int64) {
	if len(*s) <= dim {
		*s = append(make(sum, 0, dim+1), *s...)[:dim+1]
	}
	(*s)[dim] = (*s)[dim].plus(wide{x >> 63, uint64(x)})
}

func (s sum) at(dim int) wide {
	if dim < len(s) {
		return s[dim]
	}
	return wide{}
}

// read writes the sum into a vector, whose memory it uses if there is enough.
func (s sum) read(into Resources) Resources {
	if cap(into) < len(s) {
		into = make(Resources, len(s))
	}
	into = into[:len(s)]
	for i, w := range s {
		into[i] = w.read()
	}
	return into
}

// wide is a number of 128 bits in two's complement.
type wide struct {
	hi int64
	lo uint64
}

func (w wide) plus(o wide) wide {
	lo, carry := bits.Add64(w.lo, o.lo, 0)
	return wide{w.hi + o.hi + int64(carry), lo}
}

func (w wide) minus(o wide) wide {
	lo, borrow := bits.Sub64(w.lo, o.lo, 0)
	return wide{w.hi - o.hi - int64(borrow), lo}
}

func (w wide) read() int64 {
	switch x := int64(w.lo); {
	case w.hi == x>>63:
		return max(-MaxSum, min(x, MaxSum))
	case w.hi < 0:
		return -MaxSum
	}
	return MaxSum
}

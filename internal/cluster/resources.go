package cluster

import (
	"maps"
	"sort"
	"strings"
)

// The dimensions every cluster has. Further ones (extended resources, huge pages, ephemeral storage) are appended to
// the Dims table in the order they are first seen.
const (
	CPU   = 0 // milli-CPU
	RAM   = 1 // bytes
	GPU   = 2 // milli-GPU: 1000 is one whole device
	Slots = 3 // pods
)

// Unlimited marks a quota or limit that does not bound.
const Unlimited = int64(-1)

// MaxQuantity is the clamp for any single quantity read from an object: 2^50 (a pebibyte, or 10^15 milli-CPU). Any number of
// absurd pods can be added up, see MaxSum; room that somebody has is added up exactly to two thousand nodes of a pebibyte.
const MaxQuantity = 1 << 50

// MaxAsked bounds the table of dimensions against names that only pods have: each of them would be a place in the vectors of every
// node and queue, for good, and anybody may make names up. While the table has as many, what a pod asks for by further names counts as Further,
// which no node offers, until the pod is heard of again after a node offers them or a queue states them; these always have places.
const (
	MaxAsked = 256
	Further  = "further resources"
)

// Dims is the append-only table of resource dimensions. A Dims value is immutable; With returns a longer table. An
// index, once given, never changes its meaning within one Store.
type Dims struct {
	names  []string
	index  map[string]int
	slices []Slice
}

// BaseDims returns the table with the four dimensions every cluster has.
func BaseDims() Dims {
	return Dims{
		names: []string{"cpu", "memory", "gpu", "pods"},
		index: map[string]int{"cpu": CPU, "memory": RAM, "gpu": GPU, "pods": Slots},
	}
}

// Len is the number of dimensions known.
func (d Dims) Len() int { return len(d.names) }

// Name returns the name of dimension i, or "?" for one this table does not have.
func (d Dims) Name(i int) string {
	if i < 0 || i >= len(d.names) {
		return "?"
	}
	return d.names[i]
}

// Index returns the dimension called name, and whether the table has it.
func (d Dims) Index(name string) (int, bool) {
	i, ok := d.index[name]
	return i, ok
}

// With returns a table that has name, and its index. The receiver is returned when it has it already.
func (d Dims) With(name string) (Dims, int) {
	if i, ok := d.index[name]; ok {
		return d, i
	}
	n := Dims{names: append(d.names[:len(d.names):len(d.names)], name), index: maps.Clone(d.index), slices: d.slices}
	n.index[name] = len(d.names)
	if gpus := SliceGPUs(name); gpus > 0 {
		n.slices = append(d.slices[:len(d.slices):len(d.slices)], Slice{Dim: len(d.names), GPUs: gpus})
	}
	return n, len(d.names)
}

// Resources is a vector over a Dims table in base units (milli-CPU, bytes, milli-GPU, pods, otherwise the quantity's
// integer value). A missing tail is zero, so vectors made before a dimension was known stay valid.
type Resources []int64

// At returns dimension i; 0 beyond the tail.
func (r Resources) At(i int) int64 {
	if i < len(r) {
		return r[i]
	}
	return 0
}

// Clone returns an independent copy; nil stays nil.
func (r Resources) Clone() Resources {
	if r == nil {
		return nil
	}
	return append(make(Resources, 0, len(r)), r...)
}

// Add adds o to r in place, growing r as needed. It is the exact inverse of Sub. For what people ask for see AddCapped.
func (r *Resources) Add(o Resources) {
	r.grow(len(o))
	v := *r
	for i, x := range o {
		v[i] += x
	}
}

// Sub subtracts o from r in place, growing r as needed. It is the exact inverse of Add.
func (r *Resources) Sub(o Resources) {
	r.grow(len(o))
	v := *r
	for i, x := range o {
		v[i] -= x
	}
}

// Set sets dimension i to v in place, growing r as needed.
func (r *Resources) Set(i int, v int64) {
	r.grow(i + 1)
	(*r)[i] = v
}

func (r *Resources) grow(n int) {
	if len(*r) < n {
		g := make(Resources, n)
		copy(g, *r)
		*r = g
	}
}

// Fits says whether a request r can be taken out of free: in no dimension more than is there. A dimension of free
// that is negative (room somebody else overcommitted) fits nothing, not even a request of zero.
func (r Resources) Fits(free Resources) bool {
	n := min(len(r), len(free))
	for i := 0; i < n; i++ {
		if r[i] > free[i] {
			return false
		}
	}
	for _, x := range r[n:] {
		if x > 0 {
			return false
		}
	}
	for _, x := range free[n:] {
		if x < 0 {
			return false
		}
	}
	return true
}

// Short returns the first dimension in which r does not fit into free, in table order; ok is false when r fits.
func (r Resources) Short(free Resources) (dim int, ok bool) {
	for i := 0; i < max(len(r), len(free)); i++ {
		if r.At(i) > free.At(i) {
			return i, true
		}
	}
	return 0, false
}

// IsZero says whether every dimension is zero.
func (r Resources) IsZero() bool {
	for _, x := range r {
		if x != 0 {
			return false
		}
	}
	return true
}

// Equal compares two vectors, a missing tail being zero.
func (r Resources) Equal(o Resources) bool {
	for i := 0; i < max(len(r), len(o)); i++ {
		if r.At(i) != o.At(i) {
			return false
		}
	}
	return true
}

// CountIn returns how many requests r fit into free at once; many is returned for a request of nothing.
func (r Resources) CountIn(free Resources, many int) int {
	if !r.Fits(free) {
		return 0
	}
	n := int64(many)
	for i, x := range r {
		if x > 0 {
			n = min(n, free.At(i)/x)
		}
	}
	return int(n)
}

// Clamp returns q limited to [0, MaxQuantity]; callers use it on every quantity read from an object.
func Clamp(q int64) int64 { return max(0, min(q, MaxQuantity)) }

// Format prints r for people, in the order of the table and without zeros: "cpu=1500m memory=1Gi gpu=2".
func (d Dims) Format(r Resources) string {
	var parts []string
	for i, x := range r {
		if x != 0 && i != Slots {
			parts = append(parts, d.Name(i)+"="+d.FormatOne(i, x))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	if len(parts) > 3 {
		sort.Strings(parts[3:])
	}
	return strings.Join(parts, " ")
}

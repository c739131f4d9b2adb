package cluster

import (
	"cmp"
	"slices"
	"strconv"
)

// Demand is one kind of work that uses GPUs, whole ones or parts: what one of its pods takes of a node, and how many pods of
// it there are, waiting or running. Where such pods may run, by labels and taints, is not part of it.
type Demand struct {
	// Key identifies the kind over snapshots, and orders kinds.
	Key      string
	Requests Resources
	Share    Share
	Pods     int
}

// MaxDemands is how many kinds of demand a snapshot has at most: those with the most pods.
const MaxDemands = 32

// demands counts pods by kind of demand.
type demands struct {
	kinds  map[string]*Demand
	common []Demand // what snapshots have; nil when it must be made anew
}

// usesGPUs says whether pods of the class take whole GPUs, or parts of GPUs that are shared. Slices and claimed devices are
// kept apart from these by the node.
func (c *Class) usesGPUs() bool {
	return c.Unsupported == "" && (c.Requests.At(GPU) > 0 || !c.Share.None())
}

// count moves the number of pods of a class's kind.
func (d *demands) count(dims Dims, c *Class, by int) {
	if !c.usesGPUs() {
		return
	}
	k := c.demand
	if k == nil || k.Pods == 0 { // new, or forgotten when its last pod went
		key := demandKey(dims, c)
		if k = d.kinds[key]; k == nil {
			k = &Demand{Key: key, Requests: c.Requests, Share: c.Share}
			d.kinds[key] = k
		}
		c.demand = k
	}
	if k.Pods += by; k.Pods == 0 {
		delete(d.kinds, k.Key)
	}
	d.common = nil
}

// demandKey describes what pods of a class take; two stores give it alike in whatever order they came to know dimensions.
func demandKey(dims Dims, c *Class) string {
	var b []byte
	for _, x := range [...]int64{c.Requests.At(GPU), int64(c.Share.Devices), int64(c.Share.Portion), int64(c.Share.MemoryMiB)} {
		b = strconv.AppendInt(b, x, 10)
		b = append(b, '/')
	}
	var named []string
	for i, x := range c.Requests {
		if x != 0 && i != GPU {
			named = append(named, dims.Name(i)+"="+strconv.FormatInt(x, 10))
		}
	}
	slices.Sort(named)
	for _, s := range named {
		b = append(b, s...)
		b = append(b, ',')
	}
	return string(b)
}

// most returns the kinds with the most pods, ties by key. The list is never written to again.
func (d *demands) most() []Demand {
	if d.common != nil {
		return d.common
	}
	out := make([]Demand, 0, min(len(d.kinds), MaxDemands))
	before := func(a, b *Demand) int { return cmp.Or(cmp.Compare(b.Pods, a.Pods), cmp.Compare(a.Key, b.Key)) }
	for _, k := range d.kinds { // order: the first of all in an order of their own
		if len(out) == MaxDemands {
			if before(k, &out[len(out)-1]) >= 0 {
				continue
			}
			out = out[:len(out)-1]
		}
		i, _ := slices.BinarySearchFunc(out, *k, func(a, b Demand) int { return before(&a, &b) })
		out = slices.Insert(out, i, *k)
	}
	d.common = out
	return out
}

// Demands lists the kinds of work that use GPUs, those with most pods first, at most MaxDemands. The list is shared and must
// not be written to.
func (s *Snapshot) Demands() []Demand { return s.demands }

package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// maxDims is how many dimensions a file may name: each is a field of every vector.
const maxDims = 1024

// maxShared is how many devices a pod may share at once, and maxLevels how many levels a topology may have: more than any
// dialect lets through.
const (
	maxShared = 1024
	maxLevels = 64
)

// validator checks that a file says nothing that no dialect would say: the model and the engine rely on it.
type validator struct {
	dims   cluster.Dims
	phases map[string]cluster.Phase
}

func newValidator(f *file) (*validator, error) {
	v := &validator{dims: cluster.BaseDims(), phases: map[string]cluster.Phase{}}
	base := v.dims.Len()
	if len(f.Dims) < base || len(f.Dims) > maxDims {
		return nil, fmt.Errorf("read a snapshot: dims has %d names; it must have %d to %d", len(f.Dims), base, maxDims)
	}
	for i, name := range f.Dims {
		before := v.dims.Len()
		var at int
		v.dims, at = v.dims.With(name)
		if at != i || i >= base && v.dims.Len() == before {
			return nil, fmt.Errorf("read a snapshot: dims[%d] is %q; the list begins with cpu, memory, gpu, pods and names nothing twice", i, shown(name))
		}
	}
	for p := cluster.Pending; p <= cluster.Unknown; p++ {
		v.phases[p.String()] = p
	}
	return v, nil
}

// check looks at everything but objects.
func (v *validator) check(f *file) error {
	for i := range f.Nodes {
		if err := v.node(&f.Nodes[i]); err != nil {
			return fmt.Errorf("nodes[%d] (%s): %w", i, shown(f.Nodes[i].Name), err)
		}
	}
	for i := range f.Topologies {
		if n := len(f.Topologies[i].Levels); n > maxLevels {
			return fmt.Errorf("topologies[%d] (%s): %d levels; at most %d", i, shown(f.Topologies[i].Name), n, maxLevels)
		}
	}
	for i := range f.Queues {
		q := &f.Queues[i]
		if err := cmp.Or(v.amounts("quota", q.Quota, true), v.amounts("limit", q.Limit, true), v.amounts("weight", q.Weight, false)); err != nil {
			return fmt.Errorf("queues[%d] (%s): %w", i, shown(q.Name), err)
		}
	}
	for _, name := range sorted(f.Usage) {
		if err := v.amounts("usage", f.Usage[name], false); err != nil {
			return fmt.Errorf("usage of queue %s: %w", shown(name), err)
		}
	}
	for i := range f.Gangs {
		if err := tree(f.Gangs[i].Sets); err != nil {
			return fmt.Errorf("gangs[%d] (%s): %w", i, shown(f.Gangs[i].Key.String()), err)
		}
	}
	for i := range f.Classes {
		if err := v.class(&f.Classes[i]); err != nil {
			return fmt.Errorf("classes[%d]: %w", i, err)
		}
	}
	for i := range f.Pods {
		if err := v.pod(&f.Pods[i], len(f.Classes)); err != nil {
			return fmt.Errorf("pods[%d] (%s/%s): %w", i, shown(f.Pods[i].Namespace), shown(f.Pods[i].Name), err)
		}
	}
	for i := range f.Memory.Holds {
		h := &f.Memory.Holds[i]
		if err := cmp.Or(v.amounts("requests", h.Requests, false), v.amounts("charge", h.Charge, false), v.zones(h.Zones), share(h.Share), allocated(h.Claims)); err != nil {
			return fmt.Errorf("memory.holds[%d] (of %s): %w", i, shown(h.Gang.String()), err)
		}
	}
	for i := range f.Memory.Gangs {
		if n := len(f.Memory.Gangs[i].Displacements); n > cluster.MaxDisplacements {
			return fmt.Errorf("memory.gangs[%d] (%s): %d displacements; at most %d", i, shown(f.Memory.Gangs[i].Gang.String()), n, cluster.MaxDisplacements)
		}
	}
	return nil
}

func (v *validator) node(n *cluster.NodeState) error {
	switch {
	case n.GPUMemoryMiB < 0 || n.GPUMemoryMiB > cluster.MaxQuantity:
		return fmt.Errorf("GPUMemoryMiB is %d", n.GPUMemoryMiB)
	case n.ClaimGPUs < 0 || n.ClaimGPUs > cluster.MaxQuantity:
		return fmt.Errorf("ClaimGPUs is %d", n.ClaimGPUs)
	case n.Slicing > cluster.SlicedAnyhow:
		return fmt.Errorf("Slicing is %d", n.Slicing)
	}
	return v.amounts("Allocatable", n.Allocatable, false)
}

func (v *validator) class(c *class) error {
	if c.Spec.Requests != nil || c.Spec.Charge != nil {
		return fmt.Errorf("spec has amounts by index; only named ones are read")
	}
	for i := range c.Spec.Align {
		n := &c.Spec.Align[i]
		if n.Role > cluster.Before {
			return fmt.Errorf("spec.Align[%d].Role is %d", i, n.Role)
		}
		if err := v.unnamed(n.Amounts); err != nil {
			return fmt.Errorf("spec.Align[%d]: %w", i, err)
		}
	}
	return cmp.Or(v.amounts("requests", c.Requests, false), v.amounts("charge", c.Charge, false), share(c.Spec.Share))
}

func (v *validator) pod(p *placed, classes int) error {
	if p.Class < 0 || p.Class >= classes {
		return fmt.Errorf("class is %d; there are %d", p.Class, classes)
	}
	if _, ok := v.phases[p.Phase]; !ok {
		return fmt.Errorf("phase is %q", shown(p.Phase))
	}
	return cmp.Or(v.zones(p.Zones), allocated(p.Allocations))
}

func (v *validator) zones(zones []cluster.ZoneShare) error {
	if len(zones) > cluster.MaxZones {
		return fmt.Errorf("%d zones; at most %d", len(zones), cluster.MaxZones)
	}
	for i := range zones {
		if err := v.unnamed(zones[i].Amounts); err != nil {
			return fmt.Errorf("zones[%d]: %w", i, err)
		}
	}
	return nil
}

// amounts checks quantities of known dimensions. Some may be cluster.Unlimited.
func (v *validator) amounts(field string, qs []cluster.Quantity, unlimited bool) error {
	for _, q := range qs {
		if _, known := v.dims.Index(q.Name); !known {
			return fmt.Errorf("%s names the dimension %q, which dims does not", field, shown(q.Name))
		}
		if unlimited && q.Value == cluster.Unlimited {
			continue
		}
		if q.Value < 0 || q.Value > cluster.MaxQuantity {
			return fmt.Errorf("%s of %s is %d; it must be 0 to %d", field, q.Name, q.Value, cluster.MaxQuantity)
		}
	}
	return nil
}

// unnamed checks quantities of resources that need not be dimensions.
func (v *validator) unnamed(qs []cluster.Quantity) error {
	for _, q := range qs {
		if q.Value < 0 || q.Value > cluster.MaxQuantity {
			return fmt.Errorf("%s is %d; it must be 0 to %d", shown(q.Name), q.Value, cluster.MaxQuantity)
		}
	}
	return nil
}

func share(s cluster.Share) error {
	if s.Devices < 0 || s.Devices > maxShared || s.Portion < 0 || s.Portion > cluster.WholePortion || s.MemoryMiB < 0 || s.MemoryMiB > cluster.MaxQuantity {
		return fmt.Errorf("a share of %d devices, %d millionths, %d MiB cannot be", s.Devices, s.Portion, s.MemoryMiB)
	}
	return nil
}

func allocated(claims []cluster.ClaimAllocation) error {
	for i := range claims {
		if claims[i].Allocation == nil {
			return fmt.Errorf("allocations[%d] gives nothing", i)
		}
	}
	return nil
}

// tree checks that the sets are one tree below the first: no set means the default tree.
func tree(sets []cluster.Set) error {
	if len(sets) == 0 {
		return nil
	}
	if len(sets) > cluster.MaxSets+1 {
		return fmt.Errorf("%d sets; at most %d", len(sets), cluster.MaxSets+1)
	}
	if sets[0].Parent != cluster.None || sets[0].Leaf {
		return fmt.Errorf("sets[0] must be the root: without a parent, and no leaf")
	}
	reached := 0
	todo := []int32{0}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if reached++; reached > len(sets) {
			return fmt.Errorf("a set is below itself, or below two")
		}
		s := &sets[i]
		if s.Leaf && len(s.Children) > 0 {
			return fmt.Errorf("sets[%d] is a leaf with children", i)
		}
		if s.Min < 0 {
			return fmt.Errorf("sets[%d] has the minimum %d", i, s.Min)
		}
		if s.Pods < 0 || s.Pods > 0 && s.Leaf {
			return fmt.Errorf("sets[%d] has the minimum of %d pods; only an inner set may have one", i, s.Pods)
		}
		for _, child := range s.Children {
			if child <= 0 || int(child) >= len(sets) || sets[child].Parent != i {
				return fmt.Errorf("sets[%d] has the child %d, which does not have it as its parent", i, child)
			}
			todo = append(todo, child)
		}
	}
	if reached != len(sets) {
		return fmt.Errorf("%d of %d sets hang below the root", reached, len(sets))
	}
	return nil
}

// longAgo is more changes than any Store has seen.
const longAgo = 1 << 50

// unpack is what the file remembers; it has been checked.
func (m *memory) unpack() cluster.Memory {
	out := m.Memory
	out.Answers = map[string]cluster.RememberedAnswer{}
	for _, r := range m.Rests { // order: the largest
		if r.Ago <= longAgo {
			out.Generation = max(out.Generation, r.Ago)
		}
	}
	for question, r := range m.Rests { // order: into a map
		of := cluster.RememberedAnswer{Until: r.Until, Wake: r.Wake}
		if r.Ago > 0 && r.Ago <= longAgo {
			of.Asked = out.Generation - r.Ago + 1
		}
		switch {
		case r.Told != nil:
			of.Why = r.Told
		case r.Why != nil:
			of.Why = *r.Why
		default:
			continue // nobody could use it
		}
		out.Answers[question] = of
	}
	return out
}

// sorted are the keys of a map in order.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

package tally

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Sum is a sum of resource lists. The zero value is the empty sum. It is not safe for concurrent use.
type Sum struct {
	of map[corev1.ResourceName]resource.Quantity
}

// Add puts a list into the sum. The list is neither kept nor changed.
func (s *Sum) Add(list corev1.ResourceList) {
	for name, q := range list {
		s.shift(name, q, false)
	}
}

// Sub takes a list out of the sum that was put into it earlier. What was never put in leaves a negative amount, which
// List omits and a later Add makes good.
func (s *Sum) Sub(list corev1.ResourceList) {
	for name, q := range list {
		s.shift(name, q, true)
	}
}

// AddAmounts is Add of amounts.
func (s *Sum) AddAmounts(a Amounts) {
	for i := range a.of {
		s.shift(a.of[i].name, a.of[i].q, false)
	}
}

// SubAmounts is Sub of amounts.
func (s *Sum) SubAmounts(a Amounts) {
	for i := range a.of {
		s.shift(a.of[i].name, a.of[i].q, true)
	}
}

// AddSum puts everything that another sum holds into this one.
func (s *Sum) AddSum(other *Sum) { s.Add(other.of) }

func (s *Sum) shift(name corev1.ResourceName, by resource.Quantity, out bool) {
	if by.IsZero() {
		return
	}
	if s.of == nil {
		s.of = make(map[corev1.ResourceName]resource.Quantity, 4)
	}
	now := s.of[name] // ours alone: nothing that was added is kept, and List copies
	if change(name, &now, &by, out); now.IsZero() {
		delete(s.of, name) // so that an emptied sum equals one that never held anything
		return
	}
	s.of[name] = now
}

// change puts an amount of a resource into another, which is the caller's alone, or takes it out. Quantity arithmetic switches to arbitrary
// precision by itself where 64 bits do not suffice, and works in place on a number that copies share.
func change(name corev1.ResourceName, now, by *resource.Quantity, out bool) {
	if out {
		now.Sub(*by)
	} else {
		now.Add(*by)
	}
	now.Format = format(name)
}

// Empty says whether the sum holds nothing.
func (s *Sum) Empty() bool { return len(s.of) == 0 }

// MaxNames is how many resources a list shows of a sum: names are whatever users write into pods, and an object has room for so many.
const MaxNames = 128

// List is what the sum holds as an API object would show it: no zero and no negative amounts, memory-like resources
// in binary units, nothing above the largest amount the API server stores (2^63-1), and at most MaxNames resources; see Accepted. Nil
// when empty.
func (s *Sum) List() corev1.ResourceList {
	return shown(maps.Clone(s.of))
}

// shown is a list, which is the caller's, as List returns it.
func shown(list corev1.ResourceList) corev1.ResourceList {
	maps.DeleteFunc(list, func(_ corev1.ResourceName, q resource.Quantity) bool { return q.Sign() < 0 })
	if len(list) == 0 {
		return nil
	}
	list = bounded(list)
	for name, q := range list {
		list[name] = storable(q)
	}
	return list
}

// bounded leaves out of a list that is the caller's what is beyond MaxNames: CPU, memory and GPUs come first, then other
// resources of Kubernetes and slices of GPUs, then the rest; of equals the first by name.
func bounded(list corev1.ResourceList) corev1.ResourceList {
	if len(list) <= MaxNames {
		return list
	}
	usual := func(name corev1.ResourceName) int {
		switch s := string(name); {
		case slices.Contains([]string{"cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "amd.com/gpu", "run.ai/gpu.memory"}, s):
			return 0
		case strings.HasPrefix(s, "nvidia.com/mig-"), !strings.Contains(s, "/"):
			return 1
		}
		return 2
	}
	names := slices.SortedFunc(maps.Keys(list), func(a, b corev1.ResourceName) int {
		return cmp.Or(cmp.Compare(usual(a), usual(b)), cmp.Compare(a, b))
	})
	for _, name := range names[MaxNames:] {
		delete(list, name)
	}
	return list
}

// storable is q as it comes back from the API server. An amount beyond its range would come back smaller, and a
// controller that compares before it writes would then write for ever.
func storable(q resource.Quantity) resource.Quantity {
	if q.CmpInt64(math.MaxInt64) >= 0 {
		return *resource.NewQuantity(math.MaxInt64, q.Format)
	}
	return q.DeepCopy()
}

// format is the notation in which a resource is shown. It is a property of the resource, because the notation of a
// sum of quantities written differently would otherwise depend on which came first.
func format(name corev1.ResourceName) resource.Format {
	switch {
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return resource.BinarySI
	}
	return resource.DecimalSI
}

// Equal says whether two lists name the same resources with the same amounts, however they are written.
func Equal(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, q := range a {
		other, ok := b[name]
		if !ok || q.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

// Diff is the JSON merge patch that turns the list observed into the list desired: a new amount per resource that
// differs, nil (null on the wire) per resource to be removed. Nil when the lists are equal.
func Diff(observed, desired corev1.ResourceList) map[string]any {
	var patch map[string]any
	set := func(name corev1.ResourceName, value any) {
		if patch == nil {
			patch = make(map[string]any, len(desired))
		}
		patch[string(name)] = value
	}
	for name, q := range desired {
		if was, ok := observed[name]; !ok || was.Cmp(q) != 0 {
			set(name, q.String())
		}
	}
	for name := range observed {
		if _, ok := desired[name]; !ok {
			set(name, nil)
		}
	}
	return patch
}

// Accepted is the list without its negative amounts, which no object of ours holds but a user may write, and with at most MaxNames
// resources, as ours have. The list itself is returned when nothing is left out.
func Accepted(list corev1.ResourceList) corev1.ResourceList {
	negative := false
	for _, q := range list {
		negative = negative || q.Sign() < 0
	}
	if !negative && len(list) <= MaxNames {
		return list
	}
	clean := make(corev1.ResourceList, len(list))
	for name, q := range list {
		if q.Sign() >= 0 {
			clean[name] = q
		}
	}
	return bounded(clean)
}

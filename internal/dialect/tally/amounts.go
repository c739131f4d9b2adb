package tally

import (
	"cmp"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Amounts are what one object, or a few together, ask for or hold: a Sum in the 72 bytes a resource that it takes, where a map takes ten
// times as much, for there are as many as pods. The zero value holds nothing. They are a value: no method changes what a copy sees, so
// what a pod contributes, what that adds up to and what was told of it are one and the same. Plus and Minus are linear in the
// resources of both; what adds the pods of a cluster up is a Sum.
type Amounts struct {
	of []amount // by name, without zeros; never changed
}

type amount struct {
	name corev1.ResourceName
	q    resource.Quantity
}

// Of are the amounts of a list, which is neither kept nor changed.
func Of(list corev1.ResourceList) Amounts {
	of := make([]amount, 0, len(list))
	for name, q := range list {
		if !q.IsZero() {
			// Thousands of pods name the same few resources, each with a string of its own.
			one := amount{name: corev1.ResourceName(unique.Make(string(name)).Value())}
			change(name, &one.q, &q, false)
			of = append(of, one)
		}
	}
	slices.SortFunc(of, func(a, b amount) int { return cmp.Compare(a.name, b.name) })
	return Amounts{of}
}

// Plus are these amounts and others.
func (a Amounts) Plus(other Amounts) Amounts {
	if len(a.of) == 0 {
		return other
	}
	return a.merge(other, false)
}

// Minus are these amounts without others that were put in earlier. What was never put in leaves a negative amount, which List omits and
// a later Plus makes good.
func (a Amounts) Minus(other Amounts) Amounts { return a.merge(other, true) }

func (a Amounts) merge(other Amounts, out bool) Amounts {
	if len(other.of) == 0 {
		return a
	}
	was, by := a.of, other.of
	of := make([]amount, 0, max(len(was), len(by)))
	for len(was) > 0 || len(by) > 0 {
		switch {
		case len(by) == 0 || len(was) > 0 && was[0].name < by[0].name:
			of, was = append(of, was[0]), was[1:]
		case len(was) == 0 || by[0].name < was[0].name:
			one := amount{name: by[0].name}
			change(one.name, &one.q, &by[0].q, out)
			of, by = append(of, one), by[1:]
		default:
			one := amount{was[0].name, was[0].q.DeepCopy()}
			if change(one.name, &one.q, &by[0].q, out); !one.q.IsZero() {
				of = append(of, one)
			}
			was, by = was[1:], by[1:]
		}
	}
	return Amounts{of}
}

// Empty says whether there is nothing.
func (a Amounts) Empty() bool { return len(a.of) == 0 }

// Equal says whether two hold the same.
func (a Amounts) Equal(other Amounts) bool {
	return slices.EqualFunc(a.of, other.of, func(a, b amount) bool { return a.name == b.name && a.q.Cmp(b.q) == 0 })
}

// List is what they are as an API object would show it; see [Sum.List].
func (a Amounts) List() corev1.ResourceList {
	list := make(corev1.ResourceList, len(a.of))
	for i := range a.of {
		list[a.of[i].name] = a.of[i].q
	}
	return shown(list)
}

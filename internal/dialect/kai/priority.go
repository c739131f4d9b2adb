package kai

import (
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// DefaultPriority is the priority of a gang whose class does not exist, in a cluster without a default class.
const DefaultPriority = 50

// nonPreemptibleFrom is the priority from which gangs cannot be preempted unless they say otherwise.
const nonPreemptibleFrom = 100

// Priorities knows the values of the cluster's PriorityClasses. The zero value knows none. It has no locks.
type Priorities struct {
	values   map[string]int32
	defaults map[string]int32 // the classes that call themselves the default
}

// Set takes a class in and reports whether it could change any gang's priority.
func (p *Priorities) Set(c *schedulingv1.PriorityClass) bool {
	old, known := p.values[c.Name]
	oldDefault, wasDefault := p.defaults[c.Name]
	if known && old == c.Value && wasDefault == c.GlobalDefault && (!wasDefault || oldDefault == c.Value) {
		return false
	}
	if p.values == nil {
		p.values, p.defaults = map[string]int32{}, map[string]int32{}
	}
	p.values[c.Name] = c.Value
	delete(p.defaults, c.Name)
	if c.GlobalDefault {
		p.defaults[c.Name] = c.Value
	}
	return true
}

// Remove forgets a class and reports whether it was known.
func (p *Priorities) Remove(name string) bool {
	_, known := p.values[name]
	delete(p.values, name)
	delete(p.defaults, name)
	return known
}

// Of returns the priority of a gang that names class: the class's value, else the value of the cluster's default class
// (the lowest, should there be several, as admission of pods has it), else DefaultPriority.
func (p *Priorities) Of(class string) int32 {
	if v, ok := p.values[class]; ok && class != "" {
		return v
	}
	if v, ok := p.Value(""); ok {
		return v
	}
	return DefaultPriority
}

// Value returns what a class is worth, of "" the cluster's default class; ok is false for one that there is not.
func (p *Priorities) Value(class string) (v int32, ok bool) {
	if class != "" {
		v, ok = p.values[class]
		return v, ok
	}
	found, lowest := false, int32(0)
	for _, v := range p.defaults { // order: minimum
		if !found || v < lowest {
			found, lowest = true, v
		}
	}
	return lowest, found
}

// Preemptible says whether a gang that says so much of itself, and names class, may be evicted in favour of others: by
// its own word, else by its priority.
func (p *Priorities) Preemptible(word v2alpha2.Preemptibility, class string) bool {
	switch word {
	case v2alpha2.Preemptible:
		return true
	case v2alpha2.NonPreemptible:
		return false
	}
	return p.Of(class) < nonPreemptibleFrom
}

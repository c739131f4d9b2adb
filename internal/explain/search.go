package explain

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// maxRounds bounds how many rules in a row may turn up, one behind the other.
const maxRounds = 100

// search finds changes that let the gang start, beginning with some, and takes away what is not needed. ok is false when it
// knows of none; last is then what still blocks.
func (w *trial) search(changes []*Change) (_ []*Change, last outcome, ok bool) {
	for range maxRounds {
		o := w.try(changes)
		if o.placed() {
			return w.minimise(changes), o, true
		}
		more := w.propose(changes, &o)
		if len(more) == 0 || w.spent() {
			return nil, o, false
		}
		changes = merge(changes, more)
		last = o
	}
	return nil, last, false
}

// merge adds changes to others; one that is about the same thing as one before takes its place or widens it.
func merge(have, more []*Change) []*Change {
	out := slices.Clone(have)
	for _, m := range more {
		i := slices.IndexFunc(out, m.like)
		if i < 0 {
			out = append(out, m)
			continue
		}
		c := *out[i]
		switch m.Kind {
		case RaiseLimit, RaiseQuota:
			c.to = max(c.to, m.to)
		case AddRoom, AddPods:
			c.Count += m.Count
		case WaitUntil:
			c.At = m.At // a later one is proposed only when this one was not enough
		default:
			c.Pods = union(c.Pods, m.Pods)
			c.Nodes = union(c.Nodes, m.Nodes)
		}
		out[i] = &c
	}
	return out
}

// like says whether two changes are about the same thing, so that one can hold both.
func (c *Change) like(o *Change) bool {
	if c.Kind != o.Kind {
		return false
	}
	switch c.Kind {
	case LabelNode, CorrectSelector, DropSelector:
		return formatMap(c.Labels, cluster.BaseDims()) == formatMap(o.Labels, cluster.BaseDims()) && slices.Equal(c.absent, o.absent)
	case AddRoom:
		return c.same == o.same
	}
	return c.Queue == o.Queue && c.Dimension == o.Dimension && c.Subgroup == o.Subgroup && c.Detail == o.Detail && c.Object == o.Object
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, x := range b {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

// minimise takes parts away until every single one of those that are left is needed. Each success makes the set smaller, so it ends.
func (w *trial) minimise(changes []*Change) []*Change {
	changes = slices.Clone(changes)
	for again := true; again && !w.spent(); {
		again = false
		for i := 0; i < len(changes); i++ {
			if without := slices.Delete(slices.Clone(changes), i, i+1); w.enough(without) {
				changes, again = without, true
				i--
				continue
			}
			if w.shrink(changes, i) {
				again = true
			}
		}
	}
	return changes
}

func (w *trial) enough(changes []*Change) bool {
	o := w.try(changes)
	return o.placed()
}

// shrink makes change i as small as it can be. It reports whether it became smaller.
func (w *trial) shrink(changes []*Change, i int) bool {
	c := changes[i]
	with := func(f func(*Change)) []*Change {
		d := *c
		f(&d)
		out := slices.Clone(changes)
		out[i] = &d
		return out
	}
	// cut finds n with enough(n) and not enough(n-1), knowing that most is enough and none is not.
	cut := func(none, most int64, of func(int64) []*Change) int64 {
		if most-none <= 1 || !w.enough(of(most-1)) {
			return most
		}
		most--
		for most-none > 1 {
			if mid := none + (most-none)/2; w.enough(of(mid)) {
				most = mid
			} else {
				none = mid
			}
		}
		return most
	}
	list := func(have []string, set func(*Change, []string)) bool {
		all := have
		n := cut(0, int64(len(all)), func(n int64) []*Change { return with(func(d *Change) { set(d, all[:n]) }) })
		all = slices.Clone(all[:n])
		for k := len(all) - 1; k >= 0 && len(all) > 1; k-- { // and those that the prefix holds for no reason
			less := slices.Delete(slices.Clone(all), k, k+1)
			if w.enough(with(func(d *Change) { set(d, less) })) {
				all = less
			}
		}
		changes[i] = with(func(d *Change) { set(d, all) })[i]
		return len(all) < len(have)
	}
	switch {
	case c.Kind == RaisePriority:
		for _, p := range c.classes { // few, and a higher one need not do what a lower one does
			lower := with(func(d *Change) { d.to, d.Object = int64(p.value), p.name })
			if int64(p.value) >= c.to {
				return false
			}
			if w.enough(lower) {
				changes[i] = lower[i]
				return true
			}
		}
	case c.Kind == RaiseLimit || c.Kind == RaiseQuota:
		low := c.bound
		n := cut(low, c.to, func(n int64) []*Change { return with(func(d *Change) { d.to = n }) })
		changes[i] = with(func(d *Change) { d.to = n })[i]
		return n < c.to
	case c.Count > 1:
		n := cut(0, int64(c.Count), func(n int64) []*Change { return with(func(d *Change) { d.Count = int(n) }) })
		changes[i] = with(func(d *Change) { d.Count = int(n) })[i]
		return n < int64(c.Count)
	case len(c.Nodes) > 1:
		return list(c.Nodes, func(d *Change, to []string) { d.Nodes = to })
	case len(c.Pods) > 1:
		return list(c.Pods, func(d *Change, to []string) { d.Pods = to })
	}
	return false
}

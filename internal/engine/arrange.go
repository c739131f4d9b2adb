package engine

import (
	"cmp"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// How many looks at a node it may take to find an arrangement of pods by trying all; how many a look counts for at which
// filters are asked; and how many nodes that are passed over count for one.
const (
	arrangeLooks = 2000
	filterLooks  = 8
	passedOver   = 64
)

// single says whether placing the pods one after another is all there is to try: they are alike, and no filter has a say.
func (s *Session) single(pods []cluster.PodID) bool {
	return len(pods) < 2 || s.Exact(pods)
}

// rearranged places a gang that did not fit in its own order, for the reason d: largest pods first (GPUs, then memory,
// then CPU), then those with the fewest places first, then every way there is, within bounds. It returns nil, or d, which
// says so if a way may exist that was not tried; the statement is then as it was.
func (s *Session) rearranged(st *Statement, pods []cluster.PodID, d *Diagnosis) *Diagnosis {
	mark := st.Mark()
	larger := s.larger(pods)
	for i, n := 0, 0; i < len(larger); i += n { // alike ones are neighbours
		c := s.Snap.Pod(larger[i]).Class
		for n = 1; i+n < len(larger) && s.Snap.Pod(larger[i+n]).Class == c; n++ {
		}
		if s.ranking(c).room < n {
			return d
		}
	}
	scarcer := slices.Clone(larger)
	slices.SortStableFunc(scarcer, func(a, b cluster.PodID) int {
		return cmp.Compare(s.ranking(s.Snap.Pod(a).Class).room, s.ranking(s.Snap.Pod(b).Class).room)
	})
	before := pods
	for _, order := range [][]cluster.PodID{larger, scarcer} {
		if slices.Equal(order, before) {
			continue
		}
		if before = order; s.placeAll(st, order, s.everywhere()) == nil {
			return nil
		}
		st.RollbackTo(mark)
	}
	looks := arrangeLooks
	if s.arrange(st, scarcer, 0, &looks) {
		return nil
	}
	d.Verdict.Partial = looks < 0
	return d
}

// larger returns the pods with the largest first: GPUs, then memory, then CPU.
func (s *Session) larger(pods []cluster.PodID) []cluster.PodID {
	out := slices.Clone(pods)
	slices.SortStableFunc(out, func(a, b cluster.PodID) int {
		l, r := s.Snap.Pod(a).Class, s.Snap.Pod(b).Class
		for _, dim := range [...]int{cluster.GPU, cluster.RAM, cluster.CPU} {
			if c := cmp.Compare(r.Charge.At(dim), l.Charge.At(dim)); c != 0 {
				return c
			}
		}
		return cmp.Compare(l.Key, r.Key)
	})
	return out
}

// arrange places the pods, alike ones on nodes in the order of their names from the given one on, trying all ways until
// there are no looks left.
func (s *Session) arrange(st *Statement, pods []cluster.PodID, from int, looks *int) bool {
	if len(pods) == 0 {
		return true
	}
	p := s.Snap.Pod(pods[0])
	if s.ranking(p.Class).room == 0 {
		return false
	}
	cost := 1
	if s.wanted(p.Class) {
		cost = filterLooks
	}
	*looks -= len(s.Snap.NodeOrder) / passedOver
	mask := s.staticMask(p.Class)
	for i := from; i < len(s.Snap.NodeOrder); i++ {
		n := s.Snap.NodeOrder[i]
		if !mask.has(n) || !s.FitsLater(p.Class, n) {
			continue
		}
		if *looks -= cost; *looks < 0 {
			return false
		}
		if !s.filtersAllow(p, n) {
			continue
		}
		mark := st.Mark()
		s.put(st, p, n)
		next := 0
		if len(pods) > 1 && s.Snap.Pod(pods[1]).Class == p.Class && !s.wanted(p.Class) {
			next = i
		}
		if s.arrange(st, pods[1:], next, looks) {
			return true
		}
		st.RollbackTo(mark)
	}
	return false
}

package placer

import (
	"cmp"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// How many steps it may take to find an arrangement of pods by trying all, one for each node tried; how many a node counts for at which
// filters are asked; and how many nodes that are passed over count for one.
const (
	arrangeSteps = 2000
	filterSteps  = 8
	passedOver   = 64
)

// single says whether placing the pods one after another is all there is to try: they are alike, and no filter has a say.
func (pl *Placer) single(pods []cluster.PodID) bool {
	return len(pods) < 2 || pl.Exact(pods)
}

// rearranged places a gang that did not fit in its own order, for the reason d: largest pods first (GPUs, then memory,
// then CPU), then those with the fewest places first, then every way there is, within bounds. It returns nil, or d, which
// says so if a way may exist that was not tried; the statement is then as it was.
func (tr *trial) rearranged(pods []cluster.PodID, d *recorder.Diagnosis) *recorder.Diagnosis {
	mark := tr.st.Mark()
	larger := tr.larger(pods)
	for i, n := 0, 0; i < len(larger); i += n { // alike ones are neighbours
		c := tr.snap.Pod(larger[i]).Class
		for n = 1; i+n < len(larger) && tr.snap.Pod(larger[i+n]).Class == c; n++ {
		}
		if tr.ranking(c).room < n {
			return d
		}
	}
	scarcer := slices.Clone(larger)
	slices.SortStableFunc(scarcer, func(x, y cluster.PodID) int {
		return cmp.Compare(tr.ranking(tr.snap.Pod(x).Class).room, tr.ranking(tr.snap.Pod(y).Class).room)
	})
	before := pods
	for _, order := range [][]cluster.PodID{larger, scarcer} {
		if slices.Equal(order, before) {
			continue
		}
		if before = order; tr.placeAll(order, tr.everywhere()) == nil {
			return nil
		}
		tr.st.RollbackTo(mark)
	}
	steps := arrangeSteps
	if tr.arrange(scarcer, 0, &steps) {
		return nil
	}
	d.Verdict.Partial = steps < 0
	return d
}

// larger returns the pods with the largest first: GPUs, then memory, then CPU.
func (pl *Placer) larger(pods []cluster.PodID) []cluster.PodID {
	out := slices.Clone(pods)
	slices.SortStableFunc(out, func(a, b cluster.PodID) int {
		l, r := pl.snap.Pod(a).Class, pl.snap.Pod(b).Class
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
// there are no steps left.
func (tr *trial) arrange(pods []cluster.PodID, from int, steps *int) bool {
	if len(pods) == 0 {
		return true
	}
	p := tr.snap.Pod(pods[0])
	if tr.ranking(p.Class).room == 0 {
		return false
	}
	cost := 1
	if tr.wanted(p) {
		cost = filterSteps
	}
	*steps -= len(tr.snap.NodeOrder) / passedOver
	mask := tr.staticMask(p.Class)
	for i := from; i < len(tr.snap.NodeOrder); i++ {
		n := tr.snap.NodeOrder[i]
		if !mask.has(n) || !tr.ledger.FitsLater(p.Class, n) {
			continue
		}
		if *steps -= cost; *steps < 0 {
			return false
		}
		if !tr.filtersAllow(p, n) {
			continue
		}
		mark := tr.st.Mark()
		tr.put(p, n)
		next := 0
		if len(pods) > 1 && tr.snap.Pod(pods[1]).Class == p.Class && !tr.wanted(p) {
			next = i
		}
		if tr.arrange(pods[1:], next, steps) {
			return true
		}
		tr.st.RollbackTo(mark)
	}
	return false
}

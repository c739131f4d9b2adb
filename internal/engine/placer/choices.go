package placer

import (
	"slices"
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// How many choices of sets are tried for a gang that can do without some of its sets, when the first has no place; and how
// many in a what-if, of which there are hundreds.
const (
	maxChoices       = 64
	maxWhatIfChoices = 4
)

// choice says whether there is more than one way to say which sets of the gang are filled next.
func (pl *Placer) choice(g *ledger.GangState) bool {
	for i := range g.Sets {
		if n := int32(len(g.Sets[i].Children)); n > 1 && (g.SetNeed(int32(i)) < n || g.SetSatisfied(int32(i))) {
			return true
		}
	}
	return false
}

// ChoiceKey describes, for a gang with more than one choice of sets to fill next, all that the choices depend on but the
// order of its pods; "" for the others. Answers that rest go by it, so it says nothing that another Store would call otherwise.
func (pl *Placer) ChoiceKey(g *ledger.GangState) string {
	if !pl.choice(g) {
		return ""
	}
	var key []byte
	for i := range g.Sets {
		set, at := &g.Sets[i], int32(i)
		key = append(append(key, set.Name...), 0)
		for _, x := range [...]int64{int64(set.Parent), int64(set.Min), int64(g.SetActive(at)), int64(g.SetAlive(at))} {
			key = append(strconv.AppendInt(key, x, 36), '.')
		}
		for _, id := range g.SetWaiting(at) {
			key = append(append(key, pl.snap.Pod(id).Class.Key...), '+')
		}
	}
	return string(key)
}

// others tries the other choices of sets, when that which Next names has no place for the reason d: the first n that do,
// in the order of the sets. In a what-if only those that ask for no more than request, because the rules have been asked
// about that. The result is nil, or d, which says so if there were more.
func (tr *trial) others(g *ledger.GangState, request cluster.Resources, d *recorder.Diagnosis) *recorder.Diagnosis {
	left := maxChoices
	if tr.mode == onRelease {
		left = maxWhatIfChoices
	}
	first, done := true, false
	tried := map[string]bool{}
	tr.choices(g, func(pods []cluster.PodID) bool {
		if first || len(pods) == 0 { // Next's, or one that gives nobody room
			first = false
			return true
		}
		var asks cluster.Resources
		for _, id := range pods {
			asks.AddCapped(tr.snap.ChargeWaiting(tr.snap.Pod(id).Class))
		}
		if _, more := asks.Short(request); tr.mode == onRelease && more {
			return true
		}
		if !g.Satisfied() && !g.Suffices(tr.setsOf(pods)) { // of any set, so many pods as the whole needs besides
			return true
		}
		if key, ok := tr.shape(g, pods); ok { // what has no place has none under another name
			if tried[key] {
				return true
			}
			tried[key] = true
		}
		if left--; left < 0 {
			partial := *d
			partial.Verdict.Partial = true
			d = &partial
			return false
		}
		done = tr.tryPods(g, slices.Clone(pods), asks) == nil
		return !done && !tr.aborted()
	})
	if done {
		return nil
	}
	return d
}

// setsOf returns the set of each pod.
func (pl *Placer) setsOf(pods []cluster.PodID) []int32 {
	out := make([]int32, len(pods))
	for i, id := range pods {
		out[i] = pl.snap.Pod(id).Set
	}
	return out
}

// choices yields, until told to stop, the pods of each choice of sets that could be filled next, in the order of the sets,
// but at most so many that looking at them costs little. The first is what Next returns.
func (pl *Placer) choices(g *ledger.GangState, yield func([]cluster.PodID) bool) {
	steps := 64 * maxChoices
	var expand func(todo []int32, out []cluster.PodID) bool
	expand = func(todo []int32, out []cluster.PodID) bool {
		if steps--; steps < 0 {
			return false
		}
		if len(todo) == 0 {
			return yield(out)
		}
		i := todo[0]
		if g.Sets[i].Leaf {
			return expand(todo[1:], pl.ledger.Collect(g, i, slices.Clip(out)))
		}
		var open []int32
		missing := int(g.SetNeed(i) - g.SetActive(i))
		for _, c := range pl.ledger.SetOrder(g, i) {
			if g.SetReadyNow(c) && (missing <= 0 && len(pl.ledger.Collect(g, c, nil)) > 0 || missing > 0 && !g.SetSatisfied(c)) {
				open = append(open, c)
			}
		}
		missing = min(max(1, missing), len(open))
		var combine func(from int, chosen []int32) bool
		combine = func(from int, chosen []int32) bool {
			if len(chosen) == missing {
				return expand(append(slices.Clip(chosen), todo[1:]...), out)
			}
			for k := from; k <= len(open)-(missing-len(chosen)); k++ {
				if !combine(k+1, append(slices.Clip(chosen), open[k])) {
					return false
				}
			}
			return true
		}
		return combine(0, nil)
	}
	expand([]int32{0}, nil)
}

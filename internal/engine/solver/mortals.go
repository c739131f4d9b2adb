package solver

import (
	"slices"
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// mortals is the gangs of which the rules about units may let some be killed in the end, whatever else is taken or moved:
// rather too many of them than too few.
type mortals struct {
	gangs map[cluster.GangID]bool
	name  string
}

func (m mortals) has(g cluster.GangID) bool { return m.gangs[g] }

// mortals asks about what each gang would give first with nobody gone: taking more makes no unit legal that was not, but for
// what is taken nearer to the beneficiary's queue. A gang that may give less than that, another time, is taken to be one unless
// its queue owes nothing, whatever is given. O(leaves + gangs of queues that owe something).
func (q *search) mortals() mortals {
	var asked, leaves int
	var may, not []*ledger.GangState
	var owes []*leaf // nothing
	for _, b := range q.everyone().all {
		if b.leaf == nil {
			continue
		}
		leaves++
		for _, gang := range b.leaf.raw.gangs {
			asked++
			v := q.s.Ledger.Gang(gang.ID)
			if v == q.g || q.s.Ledger.Live(v) == 0 || !q.s.Rules.CheckVictim(q.cause, q.g, q.request, v).Yes() {
				continue
			}
			u, _ := q.s.Ledger.NextUnit(v)
			_, verdict := q.s.Rules.CheckUnit(q.cause, q.g, q.request, &u)
			if verdict.Reason == policy.ReasonVictimWithinShare {
				owes = append(owes, b.leaf)
				break
			}
			if verdict.Yes() || !u.BelowMinimum {
				may = append(may, v)
			} else {
				not = append(not, v)
			}
		}
	}
	q.steps((leaves + asked) / gangsPerStep)
	near := 0
	out := mortals{gangs: map[cluster.GangID]bool{}}
	for _, v := range may {
		near = max(near, q.nearness(v))
		out.gangs[v.ID] = true
	}
	for _, v := range not {
		if q.nearness(v) < near {
			out.gangs[v.ID] = true
		}
	}
	for _, l := range owes {
		if nearness(q.g.Leaf, l.queue) < near {
			for _, gang := range l.raw.gangs {
				out.gangs[gang.ID] = true
			}
		}
	}
	ids := make([]int, 0, len(out.gangs))
	for id := range out.gangs { // order: sorted below
		ids = append(ids, int(id))
	}
	slices.Sort(ids)
	var key []byte
	for _, id := range ids {
		key = append(strconv.AppendInt(key, int64(id), 36), ' ')
	}
	out.name = string(key)
	return out
}

package solver

import (
	"encoding/binary"
	"slices"

	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// bound names what a search gave up at: a sentence's end, for people.
type bound string

const (
	boundProbes   bound = "the gang was placed in what-ifs as often as it may be"
	boundPrefixes bound = "of the victims in their order not every number was tried"
	boundMovers   bound = "too many gangs run to try who of them could move"
	boundMoves    bound = "who moves and who goes for good could be chosen otherwise"
	boundUnits    bound = "too many choices of victims that exclude each other"
	boundPlaces   bound = "too many choices of places"
	boundQueues   bound = "who is taken first decides which queues may be asked"
)

// cut notes that something was not tried; the first reason stands.
func (q *search) cut(why bound) {
	q.partial = true
	if q.bound == "" {
		q.bound = why
	}
}

// legal says whether a unit may be taken now, and by which rule: whether its queue may be asked, now or at another moment of
// the search, and whether the unit may be.
func (q *search) legal(u *ledger.VictimUnit) (string, policy.Verdict) {
	if !q.asked[u.Gang.Leaf] {
		if v := q.s.Rules.CheckVictimQueue(q.cause, q.g, q.request, u.Gang.Leaf); !v.Yes() {
			return "", v
		}
		q.asked[u.Gang.Leaf] = true
	}
	return q.s.Rules.CheckUnit(q.cause, q.g, q.request, u)
}

// choose searches all sets of units that may be taken in some order, when the rules refused some that came later because
// of some that were taken, or a filter may miss some that are gone: a unit may be left out on purpose, or come earlier, and
// a gang may give any of its pods above the minimum. Beyond exhaustive units it gives up, and all is false.
// hinges says that a queue was never to be asked, and might be if others went that were refused.
func (q *search) choose(hinges bool) (all, found bool) {
	q.back(0)
	w := q.everyone().walk(q.cause, q.g, q.request)
	w.asked, w.strict = q.asked, false
	var gangs []*ledger.GangState
	units := 0
	for {
		t, ok := w.next()
		if !ok {
			break
		}
		if units++; units > exhaustive {
			q.cut(boundUnits)
			q.back(0)
			return false, false
		}
		if !slices.Contains(gangs, t.Gang) {
			gangs = append(gangs, t.Gang)
		}
		q.evict(t)
		w.gave(&t)
	}
	if hinges {
		q.cut(boundQueues)
	}
	hopeless := !q.fits() && !q.doubt && !q.s.Placer.Filtered(q.pods) // not even with all of them, legal or not
	q.back(0)
	return true, !hopeless && q.branch(gangs, map[string]bool{})
}

// might says whether, with those gone that are, moving others could do: there would be room enough in all, and somebody
// may be moved.
func (q *search) might(gangs []*ledger.GangState) bool {
	if _, short := q.s.Ledger.Needs(q.pods).Short(q.s.Ledger.TotalLater()); short {
		return false
	}
	for _, v := range gangs {
		for _, u := range q.s.Rules.Units(v, false) {
			if q.movable(u) {
				return true
			}
		}
	}
	return false
}

// movable says whether the unit may be moved, if there is room.
func (q *search) movable(u ledger.VictimUnit) bool {
	if u.Promised() > 0 {
		return false
	}
	for _, p := range u.Pods {
		if !p.Recreated {
			return false
		}
	}
	u.Moved = true
	_, v := q.s.Rules.CheckUnit(q.cause, q.g, q.request, &u)
	tier, _ := q.s.Rules.Tier(&u)
	return v.Yes() && tier == 0
}

// branch takes one more unit of the gangs, of those before others that would give first, until the gang fits. From the sets
// in seen no way leads on that has not been tried.
func (q *search) branch(gangs []*ledger.GangState, seen map[string]bool) bool {
	if q.fits() {
		return true
	}
	if q.probes > maxProbes {
		q.cut(boundProbes)
		return false
	}
	if q.untried && !q.partial && q.might(gangs) {
		q.cut(boundMoves)
	}
	for _, v := range gangs {
		for _, u := range q.s.Rules.Units(v, q.s.Placer.Filtered(q.pods)) {
			key := q.gone(&u)
			if seen[key] {
				continue
			}
			rule, verdict := q.legal(&u)
			if !verdict.Yes() {
				continue
			}
			seen[key] = true
			n := len(q.units)
			t := taken{VictimUnit: u, rule: rule}
			if tier, broken := q.s.Rules.Tier(&u); tier > 0 {
				t.budget = broken
			}
			q.evict(t)
			if q.branch(gangs, seen) {
				return true
			}
			q.back(n)
		}
	}
	return false
}

// gone names the set of what is taken, with one unit more.
func (q *search) gone(more *ledger.VictimUnit) string {
	var ids []int64
	add := func(u *ledger.VictimUnit) {
		if u.Promised() > 0 {
			ids = append(ids, ^int64(u.Gang.ID))
		}
		for _, p := range u.Pods {
			ids = append(ids, int64(p.ID))
		}
	}
	for i := range q.units {
		add(&q.units[i].VictimUnit)
	}
	add(more)
	slices.Sort(ids)
	var key []byte
	for _, id := range ids {
		key = binary.AppendVarint(key, id)
	}
	return string(key)
}

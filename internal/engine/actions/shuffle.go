package actions

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Shuffle has pods of a face leave nodes on which they are not to stay, as its plugins name them. Nobody gets their room. A gang gives what it can do without; of what it needs pods go
// if all of them have room elsewhere, which is promised to their successors; otherwise, where they have to leave in any case, it goes as a whole. So nobody is left with a part of a minimum.
//
// What may go at once its plugins bound; what is left is looked at again after the time that they say.
type Shuffle struct{ Face string }

// Run looks at each pod that is named once, as far as what may be spent in one run goes.
func (a Shuffle) Run(s *engine.Session) {
	every := s.Rules.ShuffledEvery(a.Face)
	if every == 0 {
		return
	}
	last, first := s.Rules.LastShuffled(a.Face), s.Recorder.Steps()
	if next := last.Add(every); !last.IsZero() && next.After(s.Snap.Now) { // nobody may go before, and to find out who would costs what there is to look at
		s.Recorder.WakeAt(next)
		return
	}
	sources := s.Rules.Misplaced(a.Face)
	for i := range sources {
		src := &sources[i]
		if next := last.Add(src.Every()); !last.IsZero() && next.After(s.Snap.Now) {
			s.Recorder.WakeAt(next)
			continue
		}
		gone := false
		for _, p := range src.Pods {
			if most := s.Settings().SearchSteps; s.Aborted() || most > 0 && s.Recorder.Steps()-first >= most {
				break
			}
			s.Recorder.Step()
			gone = leaves(s, src, p) || gone
		}
		if gone { // others may have had to stay for those
			s.Recorder.WakeAt(s.Snap.Now.Add(src.Every()))
		}
	}
	if s.Aborted() {
		s.Recorder.Truncated()
	}
}

// leaves has a pod go, with what goes with it, and says whether it did.
func leaves(s *engine.Session, src *policy.Source, p *cluster.Pod) bool {
	g := s.Ledger.Gang(p.Gang)
	if s.Ledger.Fate(p) != "" || s.Ledger.Promises(g.ID) { // it goes already; or what was decided about it is under way
		return false
	}
	u, ok := s.Ledger.NextUnitOf(g, func(o *cluster.Pod) bool { return o == p })
	if !ok {
		return false
	}
	switch {
	case !src.Leaves():
		u.Moved = true
		return moved(s, src, &u)
	case u.BelowMinimum: // better those of it alone that have to go, if all of them have room elsewhere
		some := ledger.VictimUnit{Gang: g, Moved: true}
		for _, p := range src.Pods {
			if p.Gang == g.ID && s.Ledger.Fate(p) == "" {
				some.Pods = append(some.Pods, p)
				some.Charge.AddCapped(p.Charge)
			}
		}
		if moved(s, src, &some) {
			return true
		}
	}
	rule := may(s, src, &u)
	if rule == "" {
		return false
	}
	st := s.Ledger.Begin()
	_, broken := s.Rules.Tier(&u)
	for _, p := range u.Pods {
		s.Broken(p, broken)
		st.Evict(p)
	}
	accept(s, st, &u, rule)
	return true
}

// may says for which reason a unit may go, "" for none.
func may(s *engine.Session, src *policy.Source, u *ledger.VictimUnit) string {
	rule, wake := s.Rules.CheckShuffle(src, u)
	if !wake.IsZero() {
		s.Recorder.WakeAt(wake)
	}
	return rule
}

// moved has a unit go if each of its pods has room elsewhere, and says whether it did.
func moved(s *engine.Session, src *policy.Source, u *ledger.VictimUnit) bool {
	if slices.ContainsFunc(u.Pods, func(p *cluster.Pod) bool { return !slices.Contains(src.Pods, p) }) {
		return false
	}
	rule := may(s, src, u)
	if rule == "" {
		return false
	}
	st := s.Ledger.Begin()
	for _, p := range u.Pods {
		st.Evict(p)
	}
	for _, p := range u.Pods {
		if !s.Placer.MoveTo(st, u.Gang, p, func(n *cluster.Node) bool { return src.MayGo(p, n) }) {
			st.Discard()
			return false
		}
	}
	accept(s, st, u, rule)
	return true
}

// accept makes the decision part of the plan.
func accept(s *engine.Session, st *ledger.Statement, u *ledger.VictimUnit, rule string) {
	g := u.Gang
	v := engine.Victim{Gang: g.Key, UID: g.UID, Queue: g.Queue, Priority: g.Priority, Pods: len(u.Pods), Rule: rule}
	record := &engine.EvictionRecord{Cause: policy.Shuffle, Queue: g.Queue}
	since := g.LastStart
	if since.IsZero() {
		since = g.Created
	}
	for _, p := range u.Pods {
		v.GPU += p.Charge.At(cluster.GPU)
	}
	v.Seconds = v.GPU * (int64(max(0, s.Snap.Now.Sub(since))) / 1_000_000_000)
	if u.Moved {
		v.Moved, record.Moved = v.Pods, v.GPU
	} else {
		record.Evicted = v.GPU
	}
	record.Victims = []engine.Victim{v}
	s.AcceptFor(st, g, record)
}

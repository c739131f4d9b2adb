package rules

import (
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Misplaced are the pods of a face that are not to stay where they are, by who says so.
func (ru *Rules) Misplaced(face string) []policy.Source { return ru.points.Sources(face, ru.snap) }

// ShuffledEvery is the least time between two times that pods of a face go because they are not to stay where they are; 0 where nobody says who is not.
func (ru *Rules) ShuffledEvery(face string) time.Duration { return ru.points.SourcesEvery(face) }

// LastShuffled is when pods of a face last went because they were not to stay where they were, as far as the Store remembers; 0 for never. What was released of a broken gang counts
// too. O(gangs).
func (ru *Rules) LastShuffled(face string) (last cluster.Instant) {
	ru.snap.EachGang(func(g *cluster.Gang) {
		for _, d := range g.Displacements {
			if g.Key.Face == face && d.By == g.Key {
				last = cluster.Latest(last, d.At)
			}
		}
	})
	return last
}

// CheckShuffle says for which reason a unit with a pod that a source names may go; "" if it may not, and then wake is when time alone may change that, 0 for never. Of one that is Moved
// nobody may be back from an earlier eviction, unless the cluster has changed by itself since: it could go on for ever, see docs/concepts/disruption.md.
func (ru *Rules) CheckShuffle(src *policy.Source, u *ledger.VictimUnit) (rule string, wake cluster.Instant) {
	g := u.Gang
	switch {
	case g.Leaf == nil, g.Binding() > 0, u.BelowMinimum && g.Changed():
		return "", wake
	case slices.ContainsFunc(u.Pods, func(p *cluster.Pod) bool { return p.Kept }), ru.points.Keeps(g.Key.Face, u):
		return "", wake
	case u.Moved && (!g.HasQueue() || !g.Preemptible): // it could not start anew, or must not be disturbed for so little
		return "", wake
	case u.Moved && slices.ContainsFunc(u.Pods, func(p *cluster.Pod) bool { return ru.back(p, g) }):
		if ru.snap.News.After(g.Displaced) {
			wake = g.Displaced.Add(cluster.Dwell)
		}
		return "", wake
	}
	if tier, _ := ru.Tier(u); u.Moved && tier > 0 { // it has somewhere to go, and nobody has a right to its place
		return "", wake
	}
	no := policy.FirstNo(ru.points.Victims, func(f policy.VictimFilter) policy.Verdict { return f.CheckVictim(policy.Shuffle, g, nil, g) })
	for i := 0; i < len(ru.points.Units) && no.Yes(); i++ {
		_, no = ru.points.Units[i].It.CheckUnit(policy.Shuffle, g, nil, u)
	}
	if !no.Yes() {
		return "", no.WakeAt
	}
	return src.Why(u), wake
}

// back says whether a pod has the room it has since an eviction of pods of its gang, and nothing has happened since but what we decided.
func (ru *Rules) back(p *cluster.Pod, g *ledger.GangState) bool {
	if g.Displaced.IsZero() || ru.snap.News.After(g.Displaced) && ru.snap.Now.Sub(g.Displaced) >= cluster.Dwell {
		return false
	}
	first := g.Displaced
	for _, d := range g.Displacements {
		first = cluster.Earliest(first, d.At)
	}
	return len(g.Displacements) == cluster.MaxDisplacements || !p.Held.Before(first) || p.Held.IsZero() && !p.Created.Before(first)
}

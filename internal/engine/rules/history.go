package rules

import (
	"slices"
	"sort"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Age orders gangs by which displacements they were there for: of two gangs of equal age, the same victims have been
// displaced while both waited.
//
// The second result says that some were displaced for this very gang, or must not be for it, which makes its case its own.
func (ru *Rules) Age(g *ledger.GangState) (age int, own bool) {
	if ru.aged == nil {
		ru.aged = []cluster.Instant{}
		ru.snap.EachGang(func(v *cluster.Gang) {
			if !v.Displaced.IsZero() {
				ru.aged = append(ru.aged, v.Displaced)
			}
			for _, d := range v.Displacements {
				ru.aged = append(ru.aged, d.At)
				ru.beneficiaries[d.By] = true
			}
			if len(v.Displacements) == cluster.MaxDisplacements { // earlier ones are forgotten, so what counts is since when pods are back
				for _, id := range v.Pods {
					ru.aged = append(ru.aged, ru.snap.Pod(id).Held)
				}
			}
		})
		slices.SortFunc(ru.aged, cluster.Instant.Compare)
		ru.snap.Barred(func(beneficiary cluster.Key) { ru.beneficiaries[beneficiary] = true })
	}
	age = sort.Search(len(ru.aged), func(i int) bool { return !ru.aged[i].Before(ru.waits(g)) })
	return age, ru.beneficiaries[g.Key]
}

// ShareMoved is when a share last moved that matters to what the gang may take from gangs that were displaced; 0 where none was.
func (ru *Rules) ShareMoved(g *ledger.GangState) cluster.Instant {
	if ru.Age(g); len(ru.aged) == 0 {
		return cluster.Instant{}
	}
	at := cluster.Instant{}
	for q := g.Leaf; q != nil; q = q.Parent {
		at = cluster.Latest(at, q.ShareMoved)
	}
	return at
}

// waits is since when a gang has waited, by what is known.
func (ru *Rules) waits(g *ledger.GangState) cluster.Instant {
	return cluster.Latest(ru.snap.Past(g.Created), g.Since)
}

// returned says whether pods of v came back after an eviction during which g was waiting already. Evicting them again
// could go on for ever: see docs/concepts/disruption.md. They may be, to reclaim, when a share that matters has moved to
// stay; and otherwise, if it was not for g that they had to go, when the cluster has changed since by other than our own
// decisions, and a while has passed.
//
// It is the first such eviction that counts: a gang that shrinks and grows all the time would otherwise lose the same pod
// again and again, as each loss makes the others' returns look old.
func (ru *Rules) returned(r policy.EvictionCause, g, v *ledger.GangState) bool {
	waits := ru.waits(g)
	news := waits
	if r == policy.Reclaim {
		for _, leaf := range [...]*ledger.QueueLedger{g.Leaf, v.Leaf} {
			for q := leaf; q != nil; q = q.Parent {
				news = cluster.Latest(news, q.ShareMoved)
			}
		}
	}
	if v.Displaced.IsZero() || v.Displaced.Before(news) {
		return false
	}
	first, forG := v.Displaced, false
	for _, d := range v.Displacements {
		if !d.At.Before(news) {
			first = cluster.Earliest(first, d.At)
		}
		forG = forG || !d.At.Before(waits) && d.By == g.Key
	}
	if len(v.Displacements) == cluster.MaxDisplacements && !v.Displacements[0].At.Before(news) {
		first, forG = news, true // earlier ones are forgotten
	}
	if !forG && ru.snap.News.After(v.Displaced) && ru.snap.Now.Sub(v.Displaced) >= cluster.Dwell {
		return false
	}
	for p := range ru.ledger.EachLive(v) {
		if !p.Held.Before(first) || p.Held.IsZero() && !p.Created.Before(first) { // there since before we were
			return true
		}
	}
	return false
}

// maxEvictionsPerHour is how often one gang may lose pods to moving shares.
const maxEvictionsPerHour = 4

// recent counts the gang's evictions in the last hour, if shares move with usage, and says when they will be fewer than
// allowed.
func (ru *Rules) recent(v *ledger.GangState) (n int, until cluster.Instant) {
	const hour = time.Hour
	if len(v.Leaf.Usage) == 0 {
		return 0, cluster.Instant{}
	}
	last := cluster.UnixNano(-1)
	for i := len(v.Displacements) - 1; i >= 0 && ru.snap.Now.Sub(v.Displacements[i].At) < hour; i-- {
		if at := v.Displacements[i].At; at != last {
			last = at
			if n++; n == maxEvictionsPerHour {
				until = at.Add(hour)
			}
		}
	}
	return n, until
}

package sim

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// Figures count what happened in a Cluster.
type Figures struct {
	Decisions int // cycles run
	Arrived   int // gangs
	Ended     int // gangs that worked for as long as they had to
	Outages   int
	LostPods  int // running pods on nodes that failed

	PlacedPods  int
	PlacedGPU   int64 // milli-GPU
	Nominated   int   // pods, as often as they were
	EvictedPods int
	EvictedGPU  int64 // milli-GPU, moved ones included
	MovedPods   int   // the part of EvictedPods that had room elsewhere
	ShrunkPods  int   // the part of EvictedPods whose gangs worked on without them
	// ByCause counts evicted pods by what they were evicted for.
	ByCause map[engine.EvictionCause]int
	// Repeats is how often a gang had a pod evicted that it had had evicted before, whatever UID the pod had. Unprovoked is the
	// part of them without news in between: neither had the beneficiary come or lost room by a fault since, nor had the fair
	// share of a queue concerned moved. Such a pair could go on for ever.
	Repeats, Unprovoked int

	pairs map[pair]cluster.Instant // when last
}

// pair is a gang and a pod that was evicted for it, by names that survive the pod.
type pair struct {
	beneficiary, victim cluster.Key
	index               int
}

func newFigures() Figures {
	return Figures{pairs: map[pair]cluster.Instant{}, ByCause: map[engine.EvictionCause]int{}}
}

func (f *Figures) placed(gpu int64) {
	f.PlacedPods++
	f.PlacedGPU += gpu
}

func (f *Figures) evicted(snap *cluster.Snapshot, b *engine.Bundle, p *pod, in *engine.Intent) {
	f.EvictedPods++
	f.EvictedGPU += p.gpu
	if in.To != "" {
		f.MovedPods++
	}
	if b.Eviction != nil {
		f.ByCause[b.Eviction.Cause]++
	}
	if b.Gang == p.gang.state.Key { // released, not displaced
		return
	}
	who := pair{b.Gang, p.gang.state.Key, p.index}
	if last, again := f.pairs[who]; again {
		f.Repeats++
		if !news(snap, b.Gang, p.gang.state.Key, last) {
			f.Unprovoked++
		}
	}
	f.pairs[who] = snap.Now
}

// news says whether something has happened since that gives a gang a new right to another's room.
func news(snap *cluster.Snapshot, beneficiary, victim cluster.Key, since cluster.Instant) bool {
	g, v := snap.GangByKey(beneficiary), snap.GangByKey(victim)
	if g == nil || v == nil || cluster.Latest(g.Created, g.Since).After(since) {
		return true
	}
	for _, name := range []string{g.Queue, v.Queue} {
		for q := snap.QueueByName(name); q != nil; q = snap.QueueByName(q.Parent) {
			if q.ShareMoved.After(since) {
				return true
			}
		}
	}
	return false
}

// Jain is Jain's index of fairness of what each got of what it was entitled to: 1 when all got the same part, 1/n when one got
// everything. Entries that are entitled to nothing do not count; of none at all the index is 1.
func Jain(got, entitled []float64) float64 {
	n, sum, squares := 0.0, 0.0, 0.0
	for i := range got {
		if entitled[i] > 0 {
			x := got[i] / entitled[i]
			n, sum, squares = n+1, sum+x, squares+float64(x*x)
		}
	}
	if squares == 0 {
		return 1
	}
	return float64(sum*sum) / float64(n*squares)
}

package solver

import (
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// sieve remembers, until a decision is accepted, what the rules about gangs said of the gangs of a leaf: they do not look at how
// much a gang asks for, so beneficiaries that differ in nothing else need not have them asked about thousands of gangs again.
type sieve map[sifting]*sifted

type sifting struct {
	leaf        *leaf
	meet        *ledger.QueueLedger // where the beneficiary's way from the top and the leaf's part
	beneficiary string
	below       int // by preemption, how many priorities of the leaf's gangs are below the beneficiary's; by consolidation, how many are not above it
}

// sifted is what is to be told of a leaf's gangs.
type sifted struct {
	allowed int
	bars    []recorder.Barrier
	wake    cluster.Instant // when the first of them ends with time
}

// sift starts in a leaf at the first gang that the rules allow. Where they allow none, the leaf is closed.
func (w *walk) sift(l *leaf, c *cursor) {
	if !w.queues.whole {
		c.next = l.start
		return
	}
	known := w.queues.sieve[w.sifting(l)]
	if known == nil || known.allowed > 0 {
		known = &sifted{wake: cluster.Forever}
		if c.next = w.pass(l, known, true); known.allowed == 0 {
			w.keep(l, known)
		}
	}
	c.closed = known.allowed == 0
	w.tell(known)
}

// siftAll asks about all gangs of a leaf, tells of those that the rules do not allow, and counts the others.
func (w *walk) siftAll(l *leaf) int {
	known := w.queues.sieve[w.sifting(l)]
	if known == nil {
		known = &sifted{wake: cluster.Forever}
		w.pass(l, known, false)
		w.keep(l, known)
	}
	w.tell(known)
	return known.allowed
}

// pass asks the rules about the gangs of a leaf, up to the first that they allow or all, and returns where it ended.
func (w *walk) pass(l *leaf, out *sifted, first bool) int {
	for i, v := range l.gangs[l.start:] {
		if v == w.g || w.queues.s.Ledger.Live(v) == 0 {
			continue
		}
		if first || i%gangsPerStep == 0 {
			w.queues.s.Recorder.Step()
		}
		verdict := w.queues.s.Rules.CheckVictim(w.cause, w.g, w.request, v)
		switch {
		case verdict.Yes():
			if out.allowed++; first {
				return l.start + i
			}
		default:
			if verdict.Code == policy.Wait {
				out.wake = cluster.Earliest(out.wake, verdict.WakeAt)
			}
			verdict.Object, verdict.WakeAt = barObject(verdict), cluster.Instant{}
			b := barrierOf(&out.bars, verdict)
			b.Gangs++
			name(b, v.Key)
		}
	}
	return len(l.gangs)
}

// tell takes what is known of a leaf into what the gang is told.
func (w *walk) tell(known *sifted) {
	if known.wake.Before(cluster.Forever) {
		w.queues.s.Recorder.WakeAt(known.wake)
		w.queues.wake = cluster.Earliest(w.queues.wake, known.wake)
	}
	for i := range known.bars {
		w.count(w.barredBy(known.bars[i].Verdict), known.bars[i].Gangs, known.bars[i].Named)
	}
}

func (w *walk) keep(l *leaf, out *sifted) {
	if w.queues.sieve == nil {
		w.queues.sieve = sieve{}
	}
	w.queues.sieve[w.sifting(l)] = out
}

// sifting names what the rules about the gangs of a leaf depend on: of priorities only which are below the beneficiary's.
func (w *walk) sifting(l *leaf) sifting {
	out := sifting{leaf: l, meet: meet(w.g.Leaf, l.queue), beneficiary: w.identity()}
	switch w.cause {
	case policy.Preempt:
		out.below = l.below(w.g.Priority)
	case policy.Consolidation:
		out.below = l.upTo(w.g.Priority)
	}
	return out
}

// identity is all that the rules about gangs know of the beneficiary, priorities and its queue's way apart.
func (w *walk) identity() string {
	if w.beneficiary == "" {
		age, own := w.queues.s.Rules.Age(w.g)
		key := strconv.AppendInt(nil, int64(age), 36)
		key = strconv.AppendInt(append(key, '@'), w.queues.s.Rules.ShareMoved(w.g).UnixNano(), 36)
		if own || w.queues.s.Ledger.Live(w.g) > 0 { // it is not asked about itself
			key = append(append(key, '/'), w.g.UID...)
		}
		w.beneficiary = string(key)
	}
	return w.beneficiary
}

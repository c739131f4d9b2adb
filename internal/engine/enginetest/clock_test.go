package enginetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// longestWait is more than anything that the herd draws may last: delays, graces, runtimes, promises, back-offs, a pair that is
// frozen.
const longestWait = time.Duration(3600_000_000_000)

// waits returns the first wait that lies further ahead than anything may last, "" for none.
func waits(snap *cluster.Snapshot, r *engine.Result, next cluster.Instant) string {
	far := func(what string, at cluster.Instant) string {
		if at != cluster.Forever && at.Sub(snap.Now) > longestWait+cluster.Skew {
			return fmt.Sprintf("%s: in %d s", what, int64(at.Sub(snap.Now))/1e9)
		}
		return ""
	}
	said := []string{far("the next timer", next), far("the next run", r.Trace.WakeAt)}
	for i := range r.Trace.Gangs {
		g := &r.Trace.Gangs[i]
		if g.Diagnosis != nil {
			said = append(said, far(g.Gang.String()+" "+g.Diagnosis.Verdict.Reason.String(), g.Diagnosis.Verdict.WakeAt))
		}
		for _, a := range g.Tried {
			said = append(said, far(g.Gang.String()+" "+a.Action, a.Verdict.WakeAt))
			for _, b := range a.Barred {
				said = append(said, far(g.Gang.String()+" "+a.Action+" "+b.Verdict.Reason.String(), b.Verdict.WakeAt))
			}
		}
	}
	for i := range snap.Holds {
		said = append(said, far("a promise", snap.Holds[i].Until))
	}
	for question, rest := range snap.Memory().Answers {
		said = append(said, far("an answer: "+question, rest.Until))
	}
	for _, s := range said {
		if s != "" {
			return s
		}
	}
	return ""
}

// TestClockSetBackDelaysNobody: in clusters with a history, whose clock is set back by anything, nobody waits from then on for
// longer than things may last; and what is decided on the way is sound.
func TestClockSetBackDelaysNobody(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, e := newLife(t), everything(t)
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			_, plans := l.decide(t, e)
			l.happen(t, plans)
			if len(l.gangs) > 1 && rapid.IntRange(0, 2).Draw(t, "frozen") == 0 {
				l.store.Freeze(rapid.SampledFrom(l.gangs).Draw(t, "taker"), rapid.SampledFrom(l.gangs).Draw(t, "giver"), l.now.Add(longestWait))
			}
			if len(l.pods) > 0 && rapid.IntRange(0, 2).Draw(t, "failed") == 0 {
				l.store.Postpone(rapid.SampledFrom(l.pods).Draw(t, "whose"), l.now.Add(60e9))
			}
			if rapid.Bool().Draw(t, "costly") {
				l.store.RememberAnswer(fmt.Sprint("question ", l.now.UnixNano()), cluster.RememberedAnswer{Until: l.now.Add(10e9), Wake: cluster.Forever})
			}
		}
		l.store.Snapshot(l.now)
		l.now = l.now.Add(-time.Duration(rapid.SampledFrom([]int{1, 30, 600, 4000, 40_000, 400_000_000}).Draw(t, "back")) * 1e9)
		for range rapid.IntRange(1, 3).Draw(t, "more rounds") {
			snap := l.store.Snapshot(l.now)
			r := everything(t).Run(context.Background(), snap, func(engine.Plan) {})
			if far := waits(snap, &r, l.store.NextTimer()); far != "" {
				t.Fatal(far)
			}
			_, plans := l.decide(t, e)
			l.happen(t, plans)
		}
	})
}

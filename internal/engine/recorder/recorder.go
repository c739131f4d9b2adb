// Package recorder keeps what a run says of itself: why who waits, what was counted, and the answers that are remembered for later runs.
// It decides nothing, and knows of the engine only what a verdict and a gang are.
package recorder

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Recorder keeps what a run has to say of itself: the trace, what was counted, and the answers that are remembered. It decides nothing.
type Recorder struct {
	snap      *cluster.Snapshot
	actions   int // of the profile
	reasons   map[string]*policy.Reason
	gangs     []GangTrace
	at        []int32 // by gang ID: its place in gangs, counted from 1; 0 for none
	stats     Stats
	wakeAt    cluster.Instant
	expires   cluster.Instant // see Expires; 0 for never
	truncated bool
	stale     []StaleGang
	lifted    []Lift
	answers   map[string]cluster.RememberedAnswer
	postponed map[cluster.GangID]bool // an action of this run did not get to it
	left      map[cluster.GangID]bool // what its queue may spend in this run was spent before, see Leave
	behind    map[cluster.GangID]bool
}

// New returns the recorder of a run of so many actions, to which reasons are all that may be said, by key. room is its array
// from run to run.
func New(snap *cluster.Snapshot, actions int, reasons map[string]*policy.Reason, room *[]int32) *Recorder {
	return &Recorder{
		snap: snap, actions: actions, reasons: reasons, wakeAt: cluster.Forever, at: ledger.Cleared(room, snap.MaxGangID()),
		postponed: map[cluster.GangID]bool{}, left: map[cluster.GangID]bool{},
	}
}

// Begin notes that an action runs from now on.
func (rec *Recorder) Begin(action string) {
	rec.stats.Actions = append(rec.stats.Actions, ActionStats{Action: action})
}

// Action is the name of the running action.
func (rec *Recorder) Action() string { return rec.doing().Action }

// Diagnose records why a gang has not got what it asks for. The last diagnosis of a run stands; placing the rest of the
// gang removes it.
func (rec *Recorder) Diagnose(g *ledger.GangState, d *Diagnosis) {
	rec.entry(g).Diagnosis = d
	if d.Verdict.Code == policy.Wait {
		rec.WakeAt(d.Verdict.WakeAt)
	}
}

// Expect makes room for what will be said of so many gangs.
func (rec *Recorder) Expect(gangs int) { rec.gangs = slices.Grow(rec.gangs, gangs) }

// Gangs returns of how many gangs something has been said.
func (rec *Recorder) Gangs() int { return len(rec.gangs) }

func (rec *Recorder) entry(g *ledger.GangState) *GangTrace {
	if rec.at[g.ID] == 0 {
		rec.gangs = append(rec.gangs, GangTrace{Gang: g.Key, UID: g.UID, ID: g.ID})
		rec.at[g.ID] = int32(len(rec.gangs))
	}
	return &rec.gangs[rec.at[g.ID]-1]
}

// Settled notes the bundle of a statement for g: what was done for it, and how many pods are evicted, moved ones included.
func (rec *Recorder) Settled(g *ledger.GangState, ops []ledger.Op, evicted, moved int) {
	rec.stats.Evicted += evicted
	rec.stats.Moved += moved
	e := rec.entry(g)
	e.Diagnosis = nil
	for _, op := range ops {
		switch op.Verb {
		case ledger.Bind:
			e.Placed++
			rec.stats.Placed++
		case ledger.Nominate:
			e.Nominated++
			rec.stats.Nominated++
		}
	}
	if e.Nominated > 0 {
		e.Diagnosis = &Diagnosis{Verdict: policy.Verdict{Code: policy.No, Reason: policy.ReasonReleasing, Object: g.Key.String(), Have: int64(e.Nominated)}}
	}
}

// Note records what came of a disruptive action's attempt for a gang that waits.
func (rec *Recorder) Note(g *ledger.GangState, a Attempt) {
	e := rec.entry(g)
	if e.Tried == nil { // room for what this action and those after it have to say
		e.Tried = make([]Attempt, 0, max(1, rec.actions+1-len(rec.stats.Actions)))
	}
	e.Tried = append(e.Tried, a)
	if a.Verdict.Code == policy.Wait {
		rec.WakeAt(a.Verdict.WakeAt)
	}
}

// Stale records since when the gang has had too few pods; 0 says that it has recovered.
func (rec *Recorder) Stale(g *ledger.GangState, since cluster.Instant) {
	rec.stale = append(rec.stale, StaleGang{Gang: g.Key, UID: g.UID, Since: since})
}

// Lift notes that the queue of a pod lets it in.
func (rec *Recorder) Lift(p *cluster.Pod) {
	rec.lifted = append(rec.lifted, Lift{p.Namespace, p.Name, p.UID})
}

// WakeAt asks for another run at a time, if nothing happens before.
func (rec *Recorder) WakeAt(at cluster.Instant) { rec.wakeAt = cluster.Earliest(rec.wakeAt, at) }

// Expires says that nothing that is found out holds beyond a time, when there is another run; it is said before anything is.
func (rec *Recorder) Expires(at cluster.Instant) {
	rec.expires = at
	rec.WakeAt(at)
}

// Step counts one what-if, or as much work.
func (rec *Recorder) Step() { rec.stats.Steps++ }

// Steps returns how many what-ifs there were in this run.
func (rec *Recorder) Steps() int { return rec.stats.Steps }

// RememberAnswer asks that the answer to a question be remembered until a time, and not beyond wake, when time alone may change it; both
// are moments.
func (rec *Recorder) RememberAnswer(question string, until, wake cluster.Instant, answer any) {
	if rec.answers == nil {
		rec.answers = map[string]cluster.RememberedAnswer{}
	}
	if !rec.expires.IsZero() {
		wake = cluster.Earliest(wake, rec.expires)
	}
	rec.answers[question] = cluster.RememberedAnswer{Until: cluster.Earliest(until, wake), Asked: rec.snap.Generation, Wake: wake, Why: answer}
}

// How long an answer is remembered that was found in a pass of several runs: as long as any, and longer than the pass if runs come
// no further apart than the second amount.
const (
	LongestRemembered = 10 * time.Second
	runsApart         = time.Second
)

// PassEnd is until when answers are remembered of which a run found so many, and left so many questions: all others have had their turn by then.
func (rec *Recorder) PassEnd(left, found int) cluster.Instant {
	return rec.snap.Now.Add(LongestRemembered).Add(time.Duration(left/max(1, found)+1) * runsApart)
}

// RememberedAnswer returns the answer to a question that is remembered: since this run, or since an earlier one.
func (rec *Recorder) RememberedAnswer(question string) (cluster.RememberedAnswer, bool) {
	if r, ok := rec.answers[question]; ok && r.Until.After(rec.snap.Now) {
		return r, true
	}
	r, ok := rec.snap.RememberedAnswer(question)
	r.Why = rec.declared(r.Why)
	return r, ok
}

// declared is an answer with the reasons that were declared where it has only their keys, as it has when it was read from a file. One
// that nobody declares stays as it is.
func (rec *Recorder) declared(answer any) any {
	of := func(v *policy.Verdict) { v.Reason = cmp.Or(rec.reasons[v.Reason.String()], v.Reason) }
	switch a := answer.(type) {
	case Attempt:
		if a.Verdict.Reason.Reread() {
			of(&a.Verdict)
			a.Barred = slices.Clone(a.Barred)
			for i := range a.Barred {
				of(&a.Barred[i].Verdict)
			}
			return a
		}
	case *Told:
		if a.Diagnosis.Verdict.Reason.Reread() {
			told := *a
			d := &told.Diagnosis
			of(&d.Verdict)
			d.Tally = slices.Clone(d.Tally)
			for i := range d.Tally {
				of(&d.Tally[i].Verdict)
			}
			return &told
		}
	}
	return answer
}

// Postpone leaves a gang for the next run, and says so: the searches of this one have cost what they may.
func (rec *Recorder) Postpone(g *ledger.GangState) {
	rec.postponed[g.ID] = true
	rec.Note(g, Attempt{Action: rec.Action(), Verdict: policy.Verdict{Code: policy.No, Reason: policy.ReasonNextCycle}})
}

// Postponed says whether an action of this run left the gang for the next; see [Recorder.Postpone].
func (rec *Recorder) Postponed(g *ledger.GangState) bool { return rec.postponed[g.ID] }

// Left says whether the gang was left for the next run with those of its queue; see [Recorder.Leave].
func (rec *Recorder) Left(g *ledger.GangState) bool { return rec.left[g.ID] }

// Leave leaves a gang for the next run, and says so: what its queue may spend in this one is spent, and it is not known whether there
// is room for it, or for one before it in its queue. It must not be given what that one might have had, nor may anybody make way for it.
func (rec *Recorder) Leave(g *ledger.GangState) {
	rec.left[g.ID] = true
	rec.Note(g, Attempt{Action: rec.Action(), Verdict: policy.Verdict{Code: policy.No, Reason: policy.ReasonNextCycle}})
}

// Considered counts one gang tried.
func (rec *Recorder) Considered() {
	rec.stats.Considered++
	rec.doing().Considered++
}

// Searched counts one search for somebody to displace or move, and whether it found a way.
func (rec *Recorder) Searched(found bool) {
	a := rec.doing()
	a.Searches++
	if found {
		a.Found++
	}
}

// Scenario counts one state that a search looked at: ruled out by queues and sums alone, or worked out.
func (rec *Recorder) Scenario(ruledOut bool) {
	if ruledOut {
		rec.doing().Filtered++
	} else {
		rec.doing().Simulated++
	}
}

// doing is what the running action has done so far. Outside of one, as what-ifs of tests and explanations are, it counts for nobody.
func (rec *Recorder) doing() *ActionStats {
	if n := len(rec.stats.Actions); n > 0 {
		return &rec.stats.Actions[n-1]
	}
	return &ActionStats{}
}

// Truncated records that an action stopped before its end because the run was aborted.
func (rec *Recorder) Truncated() { rec.truncated = true }

// Beyond notes that an action does not get to a gang in this cycle.
func (rec *Recorder) Beyond(g *ledger.GangState, depth int) {
	v := policy.Verdict{Code: policy.No, Reason: policy.ReasonQueueDepth, Object: g.Leaf.Name, Have: int64(depth)}
	if rec.entry(g).Diagnosis == nil {
		rec.Diagnose(g, &Diagnosis{Verdict: v})
		return
	}
	rec.Note(g, Attempt{Action: rec.Action(), Verdict: v})
}

// Behind notes that a gang waits for one before it in its queue, which hands out in order, until the run ends.
func (rec *Recorder) Behind(g, first *ledger.GangState) {
	if rec.behind == nil {
		rec.behind = map[cluster.GangID]bool{}
	}
	rec.behind[g.ID] = true
	rec.Diagnose(g, &Diagnosis{Verdict: policy.Verdict{Code: policy.No, Reason: policy.ReasonBehind, Object: first.Key.String()}})
}

// IsBehind says whether that was noted of a gang.
func (rec *Recorder) IsBehind(g *ledger.GangState) bool { return rec.behind[g.ID] }

// Retell is what was told to a gang that asks for the same again, with the pods that it would have placed now.
func (rec *Recorder) Retell(t *Told, pods []cluster.PodID) *Diagnosis {
	d := t.Diagnosis
	for _, id := range pods { // it may have been another Store's, or read from a file
		if c := rec.snap.Pod(id).Class; d.Class != "" && (d.Pods == nil || d.Pods.Key == c.Key) {
			d.Pods = c
			break
		}
	}
	return &d
}

// Result adds to a trace all that was said, and returns it with the figures and the answers that are to be remembered.
func (rec *Recorder) Result(t Trace) (Trace, Stats, map[string]cluster.RememberedAnswer) {
	t.Gangs, t.WakeAt, t.Truncated, t.Stale, t.Lifted = rec.gangs, rec.wakeAt, rec.truncated, rec.stale, rec.lifted
	return t, rec.stats, rec.answers
}

// Stats counts what a run did; it contains no times.
type Stats struct {
	Considered int // gangs tried, by all actions
	Placed     int // pods placed
	Nominated  int // pods nominated
	Evicted    int // pods evicted, moved ones included
	Moved      int // the part of Evicted that has room elsewhere
	Steps      int // what-ifs of victim searches, and as much of other work
	// Actions is what each action did, in their order.
	Actions []ActionStats
}

// ActionStats counts what one action of a run did.
type ActionStats struct {
	Action string
	// Considered is how many times a gang was tried: allocate tries one that gets something again.
	Considered int
	// Searches is how many searches for somebody to displace or move there were, Found how many of them ended in a decision.
	// A question that was answered before is no search.
	Searches, Found int
	// Of the states that searches looked at, Filtered were ruled out by queues and sums alone; in Simulated it was worked out
	// whether the gang fits.
	Filtered, Simulated int
}

package engine

import (
	"context"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Result is what a run leaves besides its plans.
type Result struct {
	Trace Trace
	Stats Stats
	// Void are the IDs of holds that are worth nothing any more; see Remember.
	Void []string
	// Rests are answers that cost much, by question, to be remembered.
	Rests map[string]cluster.Rest
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

// Stage is a part of a run that takes time.
type Stage struct {
	Kind StageKind
	// Name is the action's or the plugin's, "" of the other kinds.
	Name string
}

// StageKind says what a stage is.
type StageKind uint8

// The kinds of stages. Plugins open within StageOpen and close within StageClose.
const (
	StageOpen        StageKind = iota // the session is laid over the snapshot
	StageOpenPlugin                   // a plugin opens
	StageAction                       // an action runs; what becomes of its plan is not part of it
	StageClose                        // the trace is put together
	StageClosePlugin                  // a plugin that has facts for the trace closes
)

// around tells whoever has a clock that a stage begins; what it returns tells that it has ended.
func (e *Engine) around(kind StageKind, name string) func() {
	if e.Around == nil {
		return func() {}
	}
	return e.Around(Stage{kind, name})
}

// trying tells whoever wants to know, should it end badly, which gang is tried from now on; nil for none.
func (e *Engine) trying(g *GangState) {
	switch {
	case e.Trying == nil:
	case g == nil:
		e.Trying(cluster.Key{})
	default:
		e.Trying(g.Key)
	}
}

// Run decides on a snapshot. It emits one plan per action that decided something, as soon as the action is done. ctx only
// aborts: a run cut short says so in its trace, and what it emitted stays valid.
func (e *Engine) Run(ctx context.Context, snap *cluster.Snapshot, emit func(Plan)) Result {
	done := e.around(StageOpen, "")
	s := newSession(ctx, e, snap, emit)
	done()
	for _, a := range e.actions {
		if s.Aborted() {
			s.trace.truncated = true
			break
		}
		s.plan = Plan{Action: a.name}
		s.bundles = map[cluster.GangID]int{}
		s.trace.stats.Actions = append(s.trace.stats.Actions, ActionStats{Action: a.name})
		done := e.around(StageAction, a.name)
		a.action.Run(s)
		done()
		for i := range s.plan.Bundles {
			b := &s.plan.Bundles[i]
			b.ID = bundleID(snap.Now, b.UID, b.Intents)
		}
		if len(s.plan.Bundles) > 0 {
			s.promises()
			emit(s.plan)
		}
	}
	done = e.around(StageClose, "")
	trace := s.finish()
	done()
	return Result{Trace: trace, Stats: s.trace.stats, Void: s.stillVoid(), Rests: s.trace.rests}
}

// Pending returns the gangs that wait for something, admitted or not, in ID order. Those that cannot be tried have been
// diagnosed and left out.
func (s *Session) Pending() []*GangState {
	var out []*GangState
	defer s.engine.trying(nil)
	for gang := range s.Snap.PendingGangs() {
		g := s.Gang(gang.ID)
		s.engine.trying(g)
		if v := s.Admit(g); !v.Yes() {
			s.Diagnose(g, &Diagnosis{Verdict: v})
			continue
		}
		out = append(out, g)
	}
	s.trace.gangs = slices.Grow(s.trace.gangs, len(out)) // something will be said of each
	return out
}

// Waiting returns the gangs for which others might be disturbed: they are ready, something of theirs has no room yet, no
// room is promised to them, they do not wait for their queues' own pods to go and nothing else, and their preemption delay is over. Those that still wait for that are noted.
func (s *Session) Waiting() []*GangState {
	out := make([]*GangState, 0, len(s.trace.gangs)) // something was said of each
	defer s.engine.trying(nil)
	for gang := range s.Snap.PendingGangs() {
		g := s.Gang(gang.ID)
		s.engine.trying(g)
		if !s.Admit(g).Yes() || s.Holds(g) || s.nominated(g) || g.limited {
			continue
		}
		if end := cluster.After(max(s.Snap.Past(g.Created), s.Snap.Past(g.LastEviction)), g.PreemptionDelay); g.PreemptionDelay > 0 && end > s.Snap.Now {
			s.Note(g, Attempt{Action: s.plan.Action, Verdict: Verdict{Code: Wait, Reason: ReasonPreemptionDelay, Object: g.Key.String(), WakeAt: end}})
			continue
		}
		out = append(out, g)
	}
	return out
}

// nominated says whether this run nominated pods of the gang: they wait for room, and the rest waits with them.
func (s *Session) nominated(g *GangState) bool {
	for i := range g.sets {
		if g.sets[i].nominated > 0 {
			return true
		}
	}
	return false
}

// Settings are the profile's, with the engine's own bound of searches where that is larger.
func (s *Session) Settings() Settings {
	out := s.engine.profile.Settings
	if out.SearchSteps > 0 {
		out.SearchSteps = max(out.SearchSteps, s.engine.SearchSteps)
	}
	return out
}

// Action is the name of the running action.
func (s *Session) Action() string { return s.plan.Action }

// EachGang calls f for every gang, in ID order.
func (s *Session) EachGang(f func(*GangState)) {
	s.Snap.EachGang(func(g *cluster.Gang) { f(s.Gang(g.ID)) })
}

// Diagnose records why a gang has not got what it asks for. The last diagnosis of a run stands; placing the rest of the
// gang removes it.
func (s *Session) Diagnose(g *GangState, d *Diagnosis) { s.trace.diagnose(g, d) }

// traceBuilder gathers the trace.
type traceBuilder struct {
	gangs     []GangTrace
	stats     Stats
	wakeAt    int64
	truncated bool
	stale     []StaleGang
	rests     map[string]cluster.Rest
}

func (t *traceBuilder) init(*cluster.Snapshot) { t.wakeAt = cluster.Forever }

func (t *traceBuilder) entry(g *GangState) *GangTrace {
	if g.sequence < 0 {
		g.sequence = len(t.gangs)
		t.gangs = append(t.gangs, GangTrace{Gang: g.Key, UID: g.UID, ID: g.ID})
	}
	return &t.gangs[g.sequence]
}

func (t *traceBuilder) diagnose(g *GangState, d *Diagnosis) {
	t.entry(g).Diagnosis = d
	if d.Verdict.Code == Wait {
		t.wakeAt = min(t.wakeAt, d.Verdict.WakeAt)
	}
}

// settled notes a bundle: of the operations, the last on each pod stands, and those on others' pods are its victims'.
func (t *traceBuilder) settled(g *GangState, b *Bundle, ops []Op) {
	for i := range b.Intents {
		if b.Intents[i].Verb == Evict {
			t.stats.Evicted++
			if b.Intents[i].To != "" {
				t.stats.Moved++
			}
		}
	}
	e := t.entry(g)
	e.Diagnosis = nil
	for _, op := range ops {
		switch op.Verb {
		case Bind:
			e.Placed++
			t.stats.Placed++
		case Nominate:
			e.Nominated++
			t.stats.Nominated++
		}
	}
	if e.Nominated > 0 {
		e.Diagnosis = &Diagnosis{Verdict: Verdict{Code: No, Reason: ReasonReleasing, Object: g.Key.String(), Have: int64(e.Nominated)}}
	}
}

// finish closes the plugins and returns the trace.
func (s *Session) finish() Trace {
	t := Trace{Gangs: s.trace.gangs, WakeAt: s.trace.wakeAt, Truncated: s.trace.truncated, Stale: s.trace.stale, Risks: s.risks(), Fragmentation: s.engine.Fragmentation(s.Snap)}
	for _, c := range s.points.closers {
		if t.Facts == nil {
			t.Facts = map[string]any{}
		}
		done := s.engine.around(StageClosePlugin, c.name)
		t.Facts[c.name] = c.it.Close()
		done()
	}
	t.Queues = make([]QueueTrace, 0, len(s.queues.order))
	room := make(cluster.Resources, 2*s.dims*len(s.queues.order)) // one piece for all
	carve := func() (out cluster.Resources) {
		out, room = room[:0:s.dims], room[s.dims:]
		return out
	}
	for _, q := range s.queues.order {
		if q.Lost {
			continue
		}
		qt := QueueTrace{
			Name: q.Name, Depth: q.Depth, Quota: q.Quota, Limit: q.Limit, Allocated: q.Allocated,
			NonPreemptible: q.AllocatedNonPreemptible, Requested: q.Requested,
			Taken:               taken(carve(), q.Allocated, q.Stuck, q.Holding),
			TakenNonPreemptible: taken(carve(), q.AllocatedNonPreemptible, q.StuckNonPreemptible, q.HoldingNonPreemptible),
		}
		if q.Parent != nil {
			qt.Parent = q.Parent.Name
		}
		if s.points.shares != nil {
			qt.FairShare = s.points.shares.FairShare(q.ID)
		}
		t.Queues = append(t.Queues, qt)
	}
	return t
}

// taken appends what has to fit under a bound, now and once all that can be waited for has gone.
func taken(out, allocated, stuck, holding cluster.Resources) cluster.Resources {
	out = append(out, allocated...)
	out.AddCapped(stuck)
	for d, x := range holding {
		out[d] = max(out[d], x)
	}
	return out
}

// Note records what came of a disruptive action's attempt for a gang that waits.
func (s *Session) Note(g *GangState, a Attempt) {
	e := s.trace.entry(g)
	if e.Tried == nil { // room for what this action and those after it have to say
		e.Tried = make([]Attempt, 0, max(1, len(s.engine.actions)+1-len(s.trace.stats.Actions)))
	}
	e.Tried = append(e.Tried, a)
	if a.Verdict.Code == Wait {
		s.trace.wakeAt = min(s.trace.wakeAt, a.Verdict.WakeAt)
	}
}

// Stale records since when the gang has had too few pods; 0 says that it has recovered.
func (s *Session) Stale(g *GangState, since int64) {
	s.trace.stale = append(s.trace.stale, StaleGang{Gang: g.Key, UID: g.UID, Since: since})
}

// WakeAt asks for another run at a time, Unix nanoseconds, if nothing happens before.
func (s *Session) WakeAt(at int64) { s.trace.wakeAt = min(s.trace.wakeAt, at) }

// Step counts one what-if, or as much work.
func (s *Session) Step() { s.trace.stats.Steps++ }

// Rated returns how many nodes have been rated for classes in this run: a thousand classes, each of which has every node rated, are
// work that the bound of an action has to know of.
func (s *Session) Rated() int { return s.rated }

// Steps returns how many what-ifs there were in this run.
func (s *Session) Steps() int { return s.trace.stats.Steps }

// Rest asks that the answer to a question be remembered until a time, and not beyond wake, when time alone may change it; both
// are Unix nanoseconds.
func (s *Session) Rest(question string, until, wake int64, answer any) {
	if s.trace.rests == nil {
		s.trace.rests = map[string]cluster.Rest{}
	}
	s.trace.rests[question] = cluster.Rest{Until: min(until, wake), Asked: s.Snap.Generation, Wake: wake, Why: answer}
}

// How long an answer rests that was found in a pass of several runs, in nanoseconds: as long as any, and longer than the pass if runs come
// no further apart than the second amount.
const (
	LongestRest = int64(10_000_000_000)
	runsApart   = int64(1_000_000_000)
)

// PassEnd is until when answers rest of which a run found so many, and left so many questions: all others have had their turn by then.
func (s *Session) PassEnd(left, found int) int64 {
	return s.Snap.Now + LongestRest + int64(left/max(1, found)+1)*runsApart
}

// Rested returns the answer to a question that rests: since this run, or since an earlier one.
func (s *Session) Rested(question string) (cluster.Rest, bool) {
	if r, ok := s.trace.rests[question]; ok && r.Until > s.Snap.Now {
		return r, true
	}
	return s.Snap.Rest(question)
}

// Postpone leaves a gang for the next run, and says so: the searches of this one have cost what they may.
func (s *Session) Postpone(g *GangState) {
	g.open = true
	s.Note(g, Attempt{Action: s.plan.Action, Verdict: Verdict{Code: No, Reason: ReasonNextCycle}})
}

// Leave leaves a gang for the next run, and says so: what its queue may spend in this one is spent, and it is not known whether there
// is room for it, or for one before it in its queue. It must not be given what that one might have had, nor may anybody make way for it.
func (s *Session) Leave(g *GangState) {
	g.left = true
	s.Note(g, Attempt{Action: s.plan.Action, Verdict: Verdict{Code: No, Reason: ReasonNextCycle}})
}

// Considered counts one gang tried.
func (s *Session) Considered() {
	s.trace.stats.Considered++
	s.doing().Considered++
}

// Searched counts one search for somebody to displace or move, and whether it found a way.
func (s *Session) Searched(found bool) {
	a := s.doing()
	a.Searches++
	if found {
		a.Found++
	}
}

// Scenario counts one state that a search looked at: ruled out by queues and sums alone, or worked out.
func (s *Session) Scenario(ruledOut bool) {
	if ruledOut {
		s.doing().Filtered++
	} else {
		s.doing().Simulated++
	}
}

// doing is what the running action has done so far. Outside of one, as what-ifs of tests and explanations are, it counts for nobody.
func (s *Session) doing() *ActionStats {
	if n := len(s.trace.stats.Actions); n > 0 {
		return &s.trace.stats.Actions[n-1]
	}
	return &ActionStats{}
}

// Truncated records that an action stopped before its end because the run was aborted.
func (s *Session) Truncated() { s.trace.truncated = true }

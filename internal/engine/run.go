package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// Result is what a run leaves besides its plans.
type Result struct {
	Trace recorder.Trace
	Stats recorder.Stats
	// Void are the IDs of holds that are worth nothing any more; the Store is told to forget them.
	Void []string
	// Answers are those that cost much, by question, to be remembered.
	Answers map[string]cluster.RememberedAnswer
	// Admitted are the gangs that were admitted, Begun those that had been and have started since.
	Admitted, Begun []cluster.Key
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
func (e *Engine) trying(g *ledger.GangState) {
	switch {
	case e.Trying == nil:
	case g == nil:
		e.Trying(cluster.Key{})
	default:
		e.Trying(g.Key)
	}
}

// Run decides on a snapshot, and changes nothing: what-ifs call it, and what is to count is decided by a Driver. It emits one plan
// per action that decided something, as soon as the action is done. ctx only aborts: a run cut short says so in its trace, and
// what it emitted stays valid.
func (e *Engine) Run(ctx context.Context, snap *cluster.Snapshot, emit func(Plan)) Result {
	r := run{engine: e, ctx: ctx, snap: snap}
	for p := r.step(); p != nil; p = r.step() {
		emit(*p)
	}
	return r.end()
}

// run is a run that is under way. It stands still between its steps: nothing that is done with a plan is part of it.
type run struct {
	engine *Engine
	ctx    context.Context
	snap   *cluster.Snapshot
	s      *Session // nil before the first step
	next   int      // of the engine's actions
}

// step runs actions until one has decided something, and returns its plan; nil when none is left, or the run was aborted.
func (r *run) step() *Plan {
	e := r.engine
	if r.s == nil {
		done := e.around(StageOpen, "")
		r.s = newSession(r.ctx, e, r.snap)
		done()
	}
	for s := r.s; r.next < len(e.actions); {
		if s.Aborted() {
			s.Recorder.Truncated()
			r.next = len(e.actions)
			break
		}
		a := e.actions[r.next]
		r.next++
		s.draft.plan = Plan{Action: a.name, Generation: r.snap.Generation}
		s.draft.bundles = map[cluster.GangID]int{}
		s.Recorder.Begin(a.name)
		done := e.around(StageAction, a.name)
		a.action.Run(s)
		done()
		plan := s.draft.plan
		if len(plan.Bundles) == 0 {
			continue
		}
		for i := range plan.Bundles {
			b := &plan.Bundles[i]
			b.ID = bundleID(r.snap.Now, b.UID, b.Intents)
			s.draft.past.add(b)
		}
		if len(s.Ledger.Voided()) > 0 {
			s.draft.promises()
		}
		return &plan
	}
	return nil
}

// end closes the plugins, after the last step.
func (r *run) end() Result {
	done := r.engine.around(StageClose, "")
	out := r.s.finish()
	done()
	out.Void = r.s.draft.stillVoid(r.s.Ledger.Voided())
	return out
}

// Pending returns the gangs that wait for something, admitted or not, in ID order. Those that cannot be tried have been
// diagnosed and left out.
func (s *Session) Pending() []*ledger.GangState {
	var out []*ledger.GangState
	defer s.engine.trying(nil)
	for gang := range s.Snap.PendingGangs() {
		g := s.Ledger.Gang(gang.ID)
		s.engine.trying(g)
		v := s.Rules.Admit(g)
		if v.Yes() && !s.engine.profile.acts(allocate, g.Key.Face) {
			v = policy.Verdict{Code: policy.No, Reason: policy.ReasonNoAllocate, Object: g.Key.String(), Detail: g.Key.Face}
		}
		if !v.Yes() {
			s.Recorder.Diagnose(g, &recorder.Diagnosis{Verdict: v})
			continue
		}
		out = append(out, g)
	}
	s.Recorder.Expect(len(out)) // something will be said of each
	return out
}

// Unadmitted returns the gangs that have to be admitted before they can be tried, and can be, in ID order.
func (s *Session) Unadmitted() []*ledger.GangState {
	var out []*ledger.GangState
	defer s.engine.trying(nil)
	for gang := range s.Snap.PendingGangs() {
		if g := s.Ledger.Gang(gang.ID); s.Rules.MustAsk(g) {
			out = append(out, g)
		}
	}
	return out
}

// Waiting returns the gangs for which others might be disturbed: they are ready, something of theirs has no room yet, no
// room is promised to them, they do not wait for their queues' own pods to go and nothing else, and their preemption delay is over. Those that still wait for that are noted.
func (s *Session) Waiting() []*ledger.GangState {
	out := make([]*ledger.GangState, 0, s.Recorder.Gangs()) // something was said of each
	defer s.engine.trying(nil)
	for gang := range s.Snap.PendingGangs() {
		g := s.Ledger.Gang(gang.ID)
		s.engine.trying(g)
		if !s.engine.profile.acts(s.Recorder.Action(), g.Key.Face) || !s.engine.profile.acts(allocate, g.Key.Face) {
			continue
		}
		if pods, _ := s.Ledger.Next(g); len(pods) == 0 { // most: they were placed in this cycle
			continue
		}
		if !s.Rules.Admit(g).Yes() || s.Ledger.Holds(g) || g.Nominated() || s.Recorder.IsBehind(g) || s.Placer.Limited(g) {
			continue
		}
		if end := cluster.Latest(s.Snap.Past(g.Created), s.Snap.Past(g.LastEviction)).Add(g.PreemptionDelay); g.PreemptionDelay > 0 && end.After(s.Snap.Now) {
			s.Recorder.Note(g, recorder.Attempt{Action: s.Recorder.Action(), Verdict: policy.Verdict{Code: policy.Wait, Reason: policy.ReasonPreemptionDelay, Object: g.Key.String(), WakeAt: end}})
			continue
		}
		out = append(out, g)
	}
	return out
}

// Settings are the profile's, with the engine's own bound of searches where that is larger.
func (s *Session) Settings() Settings {
	out := s.engine.profile.Settings
	if out.SearchSteps > 0 {
		out.SearchSteps = max(out.SearchSteps, s.engine.SearchSteps)
	}
	return out
}

// finish closes the plugins and returns what the run leaves, but for what becomes of promises.
func (s *Session) finish() Result {
	t := recorder.Trace{Risks: s.Rules.Risks(), Fragmentation: s.engine.Fragmentation(s.Snap)}
	t.Facts = s.Rules.Close(func(plugin string) func() { return s.engine.around(StageClosePlugin, plugin) })
	dims := s.Snap.Dims.Len()
	t.Queues = make([]recorder.QueueTrace, 0, len(s.Ledger.Queues()))
	room := make(cluster.Resources, 2*dims*len(s.Ledger.Queues())) // one piece for all
	carve := func() (out cluster.Resources) {
		out, room = room[:0:dims], room[dims:]
		return out
	}
	for _, q := range s.Ledger.Queues() {
		if q.Lost {
			continue
		}
		qt := recorder.QueueTrace{
			Name: q.Name, Depth: q.Depth, Quota: q.Quota, Limit: q.Limit, Allocated: q.Allocated,
			NonPreemptible: q.AllocatedNonPreemptible, Requested: q.Requested, FairShare: s.Rules.FairShare(q.ID),
			Taken:               taken(carve(), q.Allocated, q.Stuck, q.Holding),
			TakenNonPreemptible: taken(carve(), q.AllocatedNonPreemptible, q.StuckNonPreemptible, q.HoldingNonPreemptible),
		}
		if q.Parent != nil {
			qt.Parent = q.Parent.Name
		}
		t.Queues = append(t.Queues, qt)
	}
	var out Result
	out.Trace, out.Stats, out.Answers = s.Recorder.Result(t)
	out.Admitted, out.Begun = s.Ledger.Admissions()
	return out
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

// StillReleasing is the diagnosis of a gang whose promised room is not there yet.
func (s *Session) StillReleasing(g *ledger.GangState) *recorder.Diagnosis {
	n := int64(0)
	var nodes []string
	for h := range s.Ledger.HeldFor(g) {
		n++
		nodes = append(nodes, h.Node)
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	const shown = 8
	where := "held on " + strings.Join(nodes[:min(len(nodes), shown)], ", ")
	if len(nodes) > shown {
		where += fmt.Sprintf(" and %d more nodes", len(nodes)-shown)
	}
	return &recorder.Diagnosis{Verdict: policy.Verdict{Code: policy.No, Reason: policy.ReasonReleasing, Object: g.Key.String(), Have: n, Detail: where}}
}

package engine

import (
	"context"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Result is what a run leaves besides its plans.
type Result struct {
	Trace Trace
	Stats Stats
}

// Stats counts what a run did; it contains no times.
type Stats struct {
	Considered int // gangs tried
	Placed     int // pods placed
	Nominated  int // pods nominated
}

// Run decides on a snapshot. It emits one plan per action that decided something, as soon as the action is done. ctx only
// aborts: a run cut short says so in its trace, and what it emitted stays valid.
func (e *Engine) Run(ctx context.Context, snap *cluster.Snapshot, emit func(Plan)) Result {
	s := newSession(ctx, e, snap, emit)
	for _, a := range e.actions {
		if s.Aborted() {
			s.trace.truncated = true
			break
		}
		s.plan = Plan{Action: a.name}
		s.bundles = map[cluster.GangID]int{}
		a.action.Run(s)
		for i := range s.plan.Bundles {
			b := &s.plan.Bundles[i]
			b.ID = bundleID(snap.Now, b.UID, b.Intents)
		}
		if len(s.plan.Bundles) > 0 {
			emit(s.plan)
		}
	}
	return Result{Trace: s.finish(), Stats: s.trace.stats}
}

// Pending returns the gangs that wait for something, admitted or not, in ID order. Those that cannot be tried have been
// diagnosed and left out.
func (s *Session) Pending() []*GangState {
	var out []*GangState
	for gang := range s.Snap.PendingGangs() {
		g := s.Gang(gang.ID)
		if v := s.Admit(g); !v.Yes() {
			s.Diagnose(g, &Diagnosis{Verdict: v})
			continue
		}
		out = append(out, g)
	}
	return out
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

func (t *traceBuilder) placed(g *GangState, ops []Op) {
	e := t.entry(g)
	e.Diagnosis = nil
	for _, op := range ops {
		if op.Verb == Bind {
			e.Placed++
			t.stats.Placed++
		} else {
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
	t := Trace{Gangs: s.trace.gangs, WakeAt: s.trace.wakeAt, Truncated: s.trace.truncated}
	for _, c := range s.points.closers {
		if t.Facts == nil {
			t.Facts = map[string]any{}
		}
		t.Facts[c.name] = c.it.Close()
	}
	for _, q := range s.queues.order {
		qt := QueueTrace{
			Name: q.Name, Depth: q.Depth, Quota: q.Quota, Limit: q.Limit, Allocated: q.Allocated,
			NonPreemptible: q.AllocatedNonPreemptible, Requested: q.Requested,
		}
		if q.Parent != nil {
			qt.Parent = q.Parent.Name
		}
		if s.points.shares != nil {
			qt.FairShare = s.points.shares.FairShare(q.ID).Clone()
		}
		t.Queues = append(t.Queues, qt)
	}
	return t
}

// Considered counts one gang tried.
func (s *Session) Considered() { s.trace.stats.Considered++ }

// Truncated records that an action stopped before its end because the run was aborted.
func (s *Session) Truncated() { s.trace.truncated = true }

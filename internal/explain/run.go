package explain

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Run is what the engine says of a snapshot, and what the explanations of all its gangs have in common. It is safe for concurrent use;
// questions are answered one after the other.
type Run struct {
	snap  *cluster.Snapshot
	build func() (*engine.Engine, error)
	all   outcome
	index map[cluster.Key]int // in all.trace.Gangs

	mu                  sync.Mutex
	alone, empty, crowd *stage
	shapes              map[string]*found
}

// Look runs the engine over a snapshot. newEngine builds the engine that decides; it is called once for each copy of the cluster that is
// made, at most four times, because an engine keeps caches for one store. The error is newEngine's, or says that ctx ended.
func Look(ctx context.Context, snap *cluster.Snapshot, newEngine func() (*engine.Engine, error)) (*Run, error) {
	e, err := newEngine()
	if err != nil {
		return nil, err
	}
	r := &Run{snap: snap, build: newEngine, all: ask(ctx, e, snap, cluster.Key{}), index: map[cluster.Key]int{}, shapes: map[string]*found{}}
	for i := range r.all.trace.Gangs {
		r.index[r.all.trace.Gangs[i].Gang] = i
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("decide on the snapshot: %w", err)
	}
	return r, nil
}

// Trace is what the run said. It must not be changed.
func (r *Run) Trace() *engine.Trace { return &r.all.trace }

// Plans are what the run decided. They must not be changed.
func (r *Run) Plans() []engine.Plan { return r.all.plans }

// Snapshot is what was decided on.
func (r *Run) Snapshot() *cluster.Snapshot { return r.snap }

// on is the run's outcome for one gang.
func (r *Run) on(key cluster.Key) outcome {
	o := r.all
	if i, ok := r.index[key]; ok {
		o.gang = &r.all.trace.Gangs[i]
	}
	return o
}

// stage returns a copy of the cluster, made at the first question that needs it.
func (r *Run) stage(s **stage, absent func(*cluster.Pod) bool) (*stage, error) {
	if *s == nil {
		e, err := r.build()
		if err != nil {
			return nil, err
		}
		*s = newStage(r.snap, e, absent)
	}
	return *s, nil
}

// found is what was found for a gang, were it next. Gangs of one shape share it.
type found struct {
	by       outcome // of the gang by itself, without its plans
	start    bool    // it could start by itself
	never    bool
	remedies []Remedy
	beyond   string
}

// Gang explains one gang. Remedies are proven as if it were next; [Run.Prove] proves them in line. The error says that the gang does not
// exist, or that ctx ended, or is newEngine's.
//
// The first gang of a shape costs some dozens of runs with this gang alone, and the first of all a copy of the cluster; another gang of
// that shape costs nothing.
func (r *Run) Gang(ctx context.Context, key cluster.Key) (*Explanation, error) {
	g := r.snap.GangByKey(key)
	if g == nil {
		return nil, fmt.Errorf("there is no gang %s", key)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &Explanation{Namespace: key.Namespace, Gang: key.Name, Queue: g.Queue, Priority: g.Priority, key: key}
	e.Phase, e.Pods = Count(r.snap, g)
	if e.Pods.Pending+e.Pods.Gated == 0 {
		return e, nil
	}
	now := r.on(key)
	e.say(&now)
	e.turn(&now)
	f, err := r.find(ctx, g, &now)
	if err != nil {
		return nil, err
	}
	if now.placed() {
		e.Next, e.Displaces = now.gang.Placed, displacedBy(&now, key)
	} else if e.Tried = tried(&now); slices.ContainsFunc(e.Tried, func(a Attempt) bool { return a.Reason == policy.ReasonNextCycle.Key }) {
		e.Tried = tried(&f.by) // what the scheduler leaves for its next run was answered when the gang was asked about alone
	}
	if e.Reason == "" || now.placed() && !f.start { // with others around it would start, alone not: say what it says alone
		e.say(&f.by)
	}
	if d := f.by.diagnosis(); d != nil {
		e.Selector = Unmet(r.snap, d.Pods)
	}
	switch {
	case now.placed() || e.Reason == policy.ReasonReleasing.Key:
		e.Word = Starting
	case f.start:
		e.Word = InLine
	case f.never:
		e.Word = Never
	default:
		e.Word = Blocked
	}
	if e.Word != Starting && !f.start {
		e.Remedies, e.Beyond, e.Unknown = f.remedies, f.beyond, len(f.remedies) == 0
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("explain gang %s: %w", key, err)
	}
	return e, nil
}

// find looks for what would let a gang start were it next, or takes what was found for another one of its shape.
func (r *Run) find(ctx context.Context, g *cluster.Gang, now *outcome) (*found, error) {
	shape := r.shape(g, now)
	if f := r.shapes[shape]; f != nil && shape != "" {
		return f.of(g.Key), nil
	}
	s, err := r.stage(&r.alone, everyWaiting)
	if err != nil {
		return nil, err
	}
	w := s.enter(ctx, g.Key)
	defer w.leave()
	f := &found{by: w.try(nil)}
	f.start = f.by.placed()
	if !f.start {
		f.search(w)
		if lasting(f.by.verdict().Reason) {
			if s, err = r.stage(&r.empty, everybodyOurs); err != nil {
				return nil, err
			}
			nobody := s.enter(ctx, g.Key)
			o := nobody.try(nil)
			f.never = !o.placed()
			nobody.leave()
		}
	}
	f.by.plans = nil
	if shape != "" && f.shared() && ctx.Err() == nil {
		r.shapes[shape] = f
	}
	return f, nil
}

// lasting says whether a reason stays when time passes and others end: pods that are yet to come, gates and retries do not.
func lasting(r *engine.Reason) bool {
	if r == nil {
		return false
	}
	switch r.Unblock {
	case policy.UnblockPods, policy.UnblockGates, policy.UnblockSubgroup, policy.UnblockBind, policy.UnblockStart, policy.UnblockRetry, policy.UnblockTime, policy.UnblockTurn:
		return false
	}
	return true
}

// search collects the ways in which the gang would start.
func (f *found) search(w *trial) {
	add := func(changes []*Change) {
		o := w.try(changes)
		if o.placed() {
			r := newRemedy(changes, &o, w.key)
			r.First = true
			f.remedies = append(f.remedies, r)
		}
	}
	w.own = true
	changes, last, ok := w.search(nil)
	w.own = false
	if ok {
		add(changes)
		if slices.ContainsFunc(changes, (*Change).corrects) { // nobody may have been mistaken
			if other, _, ok := w.search(nil); ok {
				add(other)
			}
		}
		if slices.ContainsFunc(changes, func(c *Change) bool { return c.Kind == RaiseQuota }) {
			if or, _, ok := w.search(w.one(Change{Kind: MakePreemptible})); ok && len(or) < len(changes) {
				add(or)
			}
		}
	} else if d := last.diagnosis(); d != nil && d.Verdict != f.by.verdict() {
		f.beyond = d.Message(true)
	}
	if f.by.gang != nil {
		for _, changes := range w.instead(&f.by) {
			add(changes)
		}
	}
	if len(f.remedies) > 0 {
		f.beyond = ""
	}
	sortRemedies(f.remedies)
}

// sortRemedies puts those that are proven in line first, then by who can: the submitter's own first.
func sortRemedies(rs []Remedy) {
	slices.SortStableFunc(rs, func(a, b Remedy) int {
		if a.InLine != b.InLine {
			return map[bool]int{true: -1, false: 1}[a.InLine]
		}
		return slices.Index(order[:], a.By) - slices.Index(order[:], b.By)
	})
}

// corrects says that the change takes what the gang asks for to be a mistake.
func (c *Change) corrects() bool {
	switch c.Kind {
	case CorrectSelector, DropSelector, CorrectResource, ShrinkPods:
		return true
	}
	return c.Kind == MoveToQueue && c.Detail != ""
}

// shape tells apart the gangs that are answered differently, were they next; "" for a gang that is like no other.
func (r *Run) shape(g *cluster.Gang, now *outcome) string {
	if g.Invalid != "" || g.GaveUp || g.PreemptionDelay > 0 || g.ActivePods > 0 || now.gang == nil {
		return ""
	}
	pods := map[string]int{}
	for _, id := range g.Pods {
		p := r.snap.Pod(id)
		if p.Phase != cluster.Pending || p.Set == cluster.None || p.NotBefore.After(r.snap.Now) || p.Class.Namespace != "" || !p.Ours || p.Nominated != "" {
			return ""
		}
		pods[fmt.Sprint(p.Class.ID, "/", p.Set)]++
	}
	return fmt.Sprintf("%s %d %t %v %v", g.Queue, g.Priority, g.Preemptible, g.Sets, pods)
}

// shared says whether what was found is true of every gang of the shape: it names none of the gang's own pods.
func (f *found) shared() bool {
	for i := range f.remedies {
		for _, c := range f.remedies[i].Changes {
			if len(c.Pods) > 0 || c.template != nil {
				return false
			}
		}
	}
	return true
}

// of is what was found, for another gang.
func (f *found) of(key cluster.Key) *found {
	out := *f
	out.remedies = slices.Clone(f.remedies)
	for i := range out.remedies {
		r := &out.remedies[i]
		r.Changes = slices.Clone(r.Changes)
		for k, c := range r.Changes {
			d := *c
			d.gang = key
			r.Changes[k] = &d
		}
	}
	return &out
}

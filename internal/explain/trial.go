package explain

import (
	"context"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// stage is a copy of the cluster with an engine of its own, in which changes are tried and taken back: with everybody who waits, with
// nobody else who waits, or with nobody else at all.
type stage struct {
	snap   *cluster.Snapshot // what it is a copy of
	store  *cluster.Store
	engine *engine.Engine
	absent func(*cluster.Pod) bool // whose pods were left out
}

// newStage forks the snapshot without some of its pods. Options without StuckAfter keep the fork from changing by the passing of time.
// O(pods).
func newStage(snap *cluster.Snapshot, e *engine.Engine, absent func(*cluster.Pod) bool) *stage {
	return &stage{snap: snap, store: cluster.ForkWithout(snap, cluster.Options{Revisits: true}, absent), engine: e, absent: absent}
}

// Who is left out of a stage.
func nobody(*cluster.Pod) bool          { return false }
func everyWaiting(p *cluster.Pod) bool  { return p.Phase == cluster.Pending }
func everybodyOurs(p *cluster.Pod) bool { return p.Ours }

// enter brings the pods of a gang onto the stage; leave takes them away again.
func (s *stage) enter(ctx context.Context, key cluster.Key) *trial {
	w := &trial{ctx: ctx, stage: s, key: key, pods: map[string]*cluster.Pod{}, most: maxTries}
	if g := s.snap.GangByKey(key); g != nil {
		for _, id := range g.Pods {
			if p := s.snap.Pod(id); s.absent(p) {
				s.store.Apply(p.State(s.snap.Dims))
				if p.NotBefore.After(s.snap.Now) {
					s.store.Postpone(p.UID, p.NotBefore)
				}
			}
		}
	}
	w.base = s.store.Snapshot(s.snap.Now)
	if g := w.base.GangByKey(key); g != nil {
		for _, id := range g.Pods {
			p := w.base.Pod(id)
			w.pods[p.UID] = p
		}
	}
	return w
}

func (w *trial) leave() {
	for _, p := range w.pods { // order: each pod on its own
		if w.absent(p) {
			w.store.Apply(cluster.PodGone{UID: p.UID})
		}
	}
}

// trial is a stage on which one gang is asked about. A try costs what the changes touch and one run of the engine.
type trial struct {
	*stage
	ctx   context.Context
	base  *cluster.Snapshot
	key   cluster.Key
	pods  map[string]*cluster.Pod // the gang's own, by UID
	tries int
	most  int  // bounds tries
	own   bool // what the submitter can mend is proposed first
}

// maxTries bounds one search. It is far beyond what a search needs for anything but a gang of thousands of pods that are each held back by
// something of their own.
const maxTries = 4000

// spent says that the search may not go on.
func (w *trial) spent() bool { return w.tries > w.most || w.ctx.Err() != nil }

// outcome is what a run said of the gang.
type outcome struct {
	snap  *cluster.Snapshot
	trace engine.Trace
	gang  *engine.GangTrace // nil when it waits for nothing
	plans []engine.Plan
}

// placed says whether the gang got what it waits for: its minimum, or one more pod when it has that.
func (o *outcome) placed() bool { return o.gang != nil && o.gang.Placed+o.gang.Nominated > 0 }

// diagnosis is why the gang got nothing; nil when it did.
func (o *outcome) diagnosis() *engine.Diagnosis {
	if o.gang == nil || o.placed() {
		return nil
	}
	return o.gang.Diagnosis
}

// verdict is the rule that blocks the gang; the zero verdict when none does.
func (o *outcome) verdict() engine.Verdict {
	if d := o.diagnosis(); d != nil {
		return d.Verdict
	}
	return engine.Verdict{}
}

// try makes the changes, asks the engine, and takes them back.
func (w *trial) try(changes []*Change) outcome {
	w.tries++
	now := w.base.Now
	var made []cluster.Event
	for _, c := range changes {
		later, events := c.events(w.store.Snapshot(w.base.Now), now)
		w.store.Apply(events...)
		made = append(made, events...)
		now = later
	}
	o := ask(w.ctx, w.engine, w.store.Snapshot(now), w.key)
	for i := len(made) - 1; i >= 0; i-- {
		w.store.Apply(w.before(made[i]))
		if p, ok := made[i].(cluster.PodState); ok && w.pods[p.UID] != nil && w.pods[p.UID].NotBefore.After(w.base.Now) {
			w.store.Postpone(p.UID, w.pods[p.UID].NotBefore)
		}
	}
	return o
}

func ask(ctx context.Context, e *engine.Engine, snap *cluster.Snapshot, key cluster.Key) outcome {
	o := outcome{snap: snap}
	res := e.Run(ctx, snap, func(p engine.Plan) { o.plans = append(o.plans, p) })
	o.trace = res.Trace
	for i := range o.trace.Gangs {
		if o.trace.Gangs[i].Gang == key {
			o.gang = &o.trace.Gangs[i]
		}
	}
	return o
}

// before returns the event that makes the object of e what it was.
func (w *trial) before(e cluster.Event) cluster.Event {
	dims := w.base.Dims
	switch e := e.(type) {
	case cluster.NodeState:
		if n := w.base.NodeByName(e.Name); n != nil {
			return n.State(dims)
		}
		return cluster.NodeGone{Name: e.Name}
	case cluster.QueueState:
		if q := w.base.QueueByName(e.Name); q != nil {
			return q.State(dims)
		}
		return cluster.QueueGone{Name: e.Name}
	case cluster.GangState:
		return w.base.GangByKey(e.Key).GangState
	case cluster.PodState:
		if p := w.pods[e.UID]; p != nil {
			return p.State(dims)
		}
		return cluster.PodGone{UID: e.UID}
	case cluster.ObjectState:
		if o := w.base.Object(e.Kind, e.Key); o != nil {
			return cluster.ObjectState{Kind: e.Kind, Key: e.Key, Object: o}
		}
		return cluster.ObjectGone{Kind: e.Kind, Key: e.Key}
	}
	panic("explain: a change made an event that nobody can take back")
}

package engine

import (
	"context"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/placer"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/engine/rules"
)

// draft is the plan of the running action.
type draft struct {
	plan     Plan
	bundles  map[cluster.GangID]int   // indices of its bundles
	broken   map[cluster.PodID]string // promises to owners that evictions break
	promised map[string]struct{}      // IDs of holds that this run promises anew
	past     past
}

// newSession lays an empty overlay over snap: O(nodes + queues).
func newSession(ctx context.Context, e *Engine, snap *cluster.Snapshot) *Session {
	ps := &policy.Plugins{}
	s := &Session{Snap: snap, ctx: ctx, engine: e}
	s.draft.broken, s.draft.promised = map[cluster.PodID]string{}, map[string]struct{}{}
	s.Ledger = ledger.New(snap, &e.slabs.ledger)
	s.Recorder = recorder.New(snap, len(e.actions), e.reasons, &e.slabs.traces)
	s.Rules = rules.New(snap, s.Ledger, ps)
	s.Placer = placer.New(ctx, &e.places, snap, s.Ledger, s.Rules, s.Recorder, ps)
	e.open(ps, policy.NewView(snap, s.Ledger, s.Recorder.Step, ps))
	if next := ps.NextChange(); next.Before(cluster.Forever) {
		s.Recorder.Expires(next)
	}
	s.Ledger.Follow(ps.Hooks())
	s.Rules.Open()
	if len(e.asked) > 0 {
		s.Ledger.OpenAdmission(e.asked)
	}
	return s
}

// Aborted says whether the caller gave up on the run; actions return as soon as they see it.
func (s *Session) Aborted() bool { return s.ctx.Err() != nil }

// slabs are the large arrays of a session, kept from run to run: a cluster that changes a little decides a hundred times
// a second, and they would be most of its garbage.
type slabs struct {
	ledger ledger.Slabs
	traces []int32
	queues []queueNode // of the running action
	places []int32     // by queue ID: a guess at its place among its siblings, which is only where sorting begins
}

// open opens the plugins for a run.
func (e *Engine) open(ps *policy.Plugins, v *policy.View) {
	for _, np := range e.plugins {
		done := e.around(StageOpenPlugin, np.name)
		for _, part := range np.parts {
			i := part.open(v)
			for _, x := range part.at {
				x.Bind(ps, np.name, i)
			}
		}
		done()
	}
	ps.Faces, ps.FaceScores = make(map[string][]*policy.Plugins, len(e.faces)), map[string][]policy.NodeScore{}
	ps.DomainScores, ps.FaceFilters = map[string][]policy.DomainScore{}, map[string]bool{}
	for _, face := range sortedNames(e.faces) {
		tiers := e.faces[face]
		ps.Faces[face] = make([]*policy.Plugins, 0, len(tiers))
		for _, tier := range tiers {
			own := &policy.Plugins{}
			for _, np := range tier {
				for _, part := range np.parts {
					i := part.open(v)
					for _, x := range part.at {
						x.Bind(own, np.name, i)
					}
				}
			}
			ps.Add(face, own, v)
		}
	}
}

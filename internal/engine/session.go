package engine

import (
	"context"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
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
	ps := &points{}
	s := &Session{Snap: snap, ctx: ctx, engine: e}
	s.draft.broken, s.draft.promised = map[cluster.PodID]string{}, map[string]struct{}{}
	s.Ledger = ledger.New(snap, &e.slabs.ledger)
	s.Recorder = newRecorder(snap, len(e.actions), e.reasons, &e.slabs)
	s.Rules = newRules(snap, s.Ledger, ps)
	s.Placer = newPlacer(ctx, e, snap, s.Ledger, s.Rules, s.Recorder, ps)
	*ps = e.open(&View{s: s})
	s.Ledger.Follow(ps.hooks())
	s.Rules.Open()
	return s
}

// Aborted says whether the caller gave up on the run; actions return as soon as they see it.
func (s *Session) Aborted() bool { return s.ctx.Err() != nil }

// slabs are the large arrays of a session, kept from run to run: a cluster that changes a little decides a hundred times
// a second, and they would be most of its garbage.
type slabs struct {
	ledger ledger.Slabs
	rank   []int32
	traces []int32
	queues []queueNode // of the running action
	places []int32     // by queue ID: a guess at its place among its siblings, which is only where sorting begins
}

// Package actions holds the flow of a cycle: one file per action. Actions know the engine and no plugin.
package actions

import (
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// Allocate gives waiting gangs the room that is there, in queue order: a gang gets its minimum whole or nothing, and one
// that has its minimum grows by one pod a turn. What fits only when releases have happened is nominated. A gang to which
// room is promised takes that or better, or goes on waiting for it.
type Allocate struct{}

// Run tries every waiting gang once, and gangs that got something again, until nobody gets more, or what may be spent in one run
// is spent (see [turns]): at most pods + gangs tries.
func (Allocate) Run(s *engine.Session) {
	pending := s.Pending()
	turns := newTurns(s, pending)
	queue := s.NewGangQueue(pending)
	for g := queue.Pop(); g != nil && !s.Aborted(); g = queue.Pop() {
		s.Recorder.Considered()
		st := s.Ledger.Begin()
		promised := s.Ledger.Holds(g)
		var d *recorder.Diagnosis
		left := false
		if v := s.Rules.CheckTurn(g); v.Yes() {
			d, left = turns.try(st, g)
		} else {
			d = &recorder.Diagnosis{Verdict: v}
		}
		switch {
		case left:
			queue.Stay(g)
			continue
		case d == nil && promised && !st.Binds():
			st.Discard() // the promise stands, for the room it was made for
			s.Recorder.Diagnose(g, s.StillReleasing(g))
			continue
		case d != nil && promised && s.Placer.Awaits(g):
			s.Recorder.Diagnose(g, s.StillReleasing(g))
			queue.Stay(g)
			continue
		case d != nil && promised:
			s.Ledger.Void(g)
			queue.Push(g)
			continue
		case d != nil:
			s.Recorder.Diagnose(g, d)
			queue.Stay(g)
			continue
		}
		s.Accept(st)
		if pods, _ := s.Ledger.Next(g); len(pods) > 0 {
			queue.Push(g)
		}
	}
	turns.settle()
	if s.Aborted() {
		s.Recorder.Truncated()
	}
}
